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


def places(matrix: Axes, *, skip: Sequence[Axes], vary: Axes, vary_at: Axes) -> Iterator[Place]:
    """Every cell but those to skip: the matrix's own, then of each varied key its further values.

    Variations are run at the values of `vary_at` alone, on the axes that it names.
    """
    own = [Place(setting) for setting in combinations_of(matrix) if not _skipped(setting, skip)]
    yield from own
    there = [place for place in own if _fits(place.setting, vary_at, absent=True)]
    for key, values in vary.items():
        for value in values:
            for place in there:
                yield replace(place, setting={**place.setting, key: value}, varied=key)


def _skipped(setting: Setting, skip: Sequence[Axes]) -> bool:
    return any(_fits(setting, pattern, absent=False) for pattern in skip)


def _fits(setting: Setting, pattern: Axes, *, absent: bool) -> bool:
    """Whether a cell has one of the values of a pattern on each of its axes.

    `absent` says what to make of an axis that the cell is not on.
    """
    return all(
        setting[axis] in values if axis in setting else absent for axis, values in pattern.items()
    )
