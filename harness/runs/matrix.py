"""Cells of a scenario: the product of its matrix, and beside it one choice varied at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

Axes = Mapping[str, Sequence[Any]]
Setting = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Place:
    """A cell's value on every axis and, in a variation, of the key that is `varied` there."""

    setting: Setting
    varied: str = ""


def combinations_of(matrix: Axes) -> Iterator[dict[str, object]]:
    """One value per axis, the last axis fastest."""
    for values in product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def places(
    matrix: Axes, *, skip: Sequence[Axes], vary: Axes, vary_at: Sequence[Axes]
) -> Iterator[Place]:
    """Every cell but those to skip: the matrix's own, then of each varied key its further values.

    Variations are run where one of the patterns of `vary_at` fits, everywhere if there is none. A
    pattern of `skip` may name a varied key, too: where its values would tell nothing.
    """
    own = [Place(setting) for setting in combinations_of(matrix) if not _fits(setting, skip)]
    yield from own
    there = [place for place in own if not vary_at or _fits(place.setting, vary_at)]
    for key, values in vary.items():
        for value in values:
            for place in there:
                setting = {**place.setting, key: value}
                if not _fits(setting, skip):
                    yield replace(place, setting=setting, varied=key)


def _fits(setting: Setting, patterns: Sequence[Axes]) -> bool:
    """Whether a cell has, on every axis of one of the patterns, one of its values."""
    return any(
        all(axis in setting and setting[axis] in values for axis, values in pattern.items())
        for pattern in patterns
    )
