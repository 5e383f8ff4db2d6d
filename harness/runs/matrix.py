"""Cells of a scenario: the product of its matrix, and beside it one choice varied at a time.

Under the key `cases` a matrix may hold mappings of several axes to a value or a list of values, for
what goes together: a system and its policies, a policy and its predictors. Each case is a matrix of
its own: the product of its lists and of the other axes. What it says of an axis that the matrix
has stands in place of the matrix's values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

Axes = Mapping[str, Sequence[Any]]
Setting = Mapping[str, object]

CASES = "cases"


@dataclass(frozen=True, slots=True)
class Place:
    """A cell's value on every axis and, in a variation, of the key that is `varied` there."""

    setting: Setting
    varied: str = ""


ALONE = Place({})
"""Of a cell that stands in no scenario."""


def settings_of(matrix: Axes) -> list[Setting]:
    """A value on every axis for each cell, the last axis fastest; cases are one axis, in order."""
    found: list[Setting] = [
        dict(zip(part, values, strict=True))
        for part in _parts(matrix)
        for values in product(*part.values())
    ]
    if CASES in matrix:
        every, keys = axes_of(matrix), [*matrix]
        slower = keys[: keys.index(CASES)]
        found.sort(key=lambda setting: [every[axis].index(setting[axis]) for axis in slower])
    return found


def axes_of(matrix: Axes) -> dict[str, list[Any]]:
    """Every axis, with the values that some cell has on it."""
    first, *_ = parts = _parts(matrix)
    found = {axis: [*matrix.get(axis, ())] for axis in first}
    for part in parts:
        for axis, values in part.items():
            found[axis] += [value for value in values if value not in found[axis]]
    return found


def _parts(matrix: Axes) -> list[dict[str, Sequence[Any]]]:
    """The matrix of each case; the matrix itself where it has none."""
    parts = []
    for case in matrix.get(CASES, [{}]):
        own = {axis: it if isinstance(it, list) else [it] for axis, it in case.items()}
        part: dict[str, Sequence[Any]] = {}
        for axis, values in matrix.items():
            new = {key: own[key] for key in own if key not in matrix}
            part |= new if axis == CASES else {axis: own.get(axis, values)}
        parts.append(part)
    return parts


def places(matrix: Axes, *, vary: Axes, vary_at: Sequence[Axes]) -> Iterator[Place]:
    """The matrix's own cells, then of each varied key its further values.

    Variations are run where one of the patterns of `vary_at` fits, everywhere if there is none. A
    pattern that names a varied key restricts this key alone, beside the others: to where its values
    tell something.
    """
    settings = settings_of(matrix)
    yield from map(Place, settings)
    common = [pattern for pattern in vary_at if not pattern.keys() & vary.keys()]
    there = [setting for setting in settings if _fits(setting, common)]
    for key, values in vary.items():
        own = [pattern for pattern in vary_at if key in pattern]
        for value in values:
            for setting in there:
                varied = {**setting, key: value}
                if _fits(varied, own):
                    yield Place(varied, key)


def _fits(setting: Setting, patterns: Sequence[Axes]) -> bool:
    """Whether a cell has, on every axis of one of the patterns, if any, one of its values."""
    return not patterns or any(
        all(axis in setting and setting[axis] in values for axis, values in pattern.items())
        for pattern in patterns
    )
