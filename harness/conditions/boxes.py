"""Boxes: a few limits inside which most cells come out, found by peeling (PRIM).

Friedman and Fisher, Bump hunting in high-dimensional data, 1999. A box is fitted to some cells and
reported by others, which it has not seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from harness.claims.verdicts import wilson

PEEL = 0.05
"""Share of a box's cells that is cut off an end at a time."""
LEAST_SHARE, LEAST_CELLS = 0.05, 10
"""Of all cells: what the smallest box holds."""
MOST_LIMITS = 4
WORTH = 0.01
"""Of the density: what a limit must be worth to be kept."""
AT_END = 0.05
"""Of a dimension's cells: a limit that leaves out fewer is none."""
LEAST_POSITIVE = 15
"""Cells that come out, of those a box is fitted to, for it to be told."""
HALF = 0.5
"""Of the cells in a box: what more than so many must come out for it to be told as a condition."""
MORE_COVERED = 0.15
"""Of those that come out: what a second box must add."""

Mask = NDArray[np.bool_]
Columns = Mapping[str, NDArray[np.float64]]
"""Values of cells by dimension."""


@dataclass(frozen=True, slots=True)
class Box:
    """Limits by dimension, from and to; those without are open, an open end is infinite."""

    limits: Mapping[str, tuple[float, float]]

    def holds(self, table: Columns) -> Mask:
        """Which rows are inside."""
        inside = np.ones(len(next(iter(table.values()))), np.bool_)
        for name, (low, high) in self.limits.items():
            inside &= (table[name] >= low) & (table[name] <= high)
        return inside

    def at(self, name: str, low: float, high: float) -> "Box":
        """With other limits on one dimension, or none where both ends are open."""
        rest = {key: it for key, it in self.limits.items() if key != name}
        return Box(rest if (low, high) == (-inf, inf) else {**rest, name: (low, high)})


@dataclass(frozen=True, slots=True)
class Checked:
    """A box by cells that it was not fitted to.

    `density` is how many of its cells come out, with the 95% interval, `coverage` how many of all
    that come out are in it, `agrees` in how many cells the box and the outcome say the same.
    """

    box: Box
    density: float
    density_low: float
    density_high: float
    coverage: float
    agrees: float
    cells: int

    @property
    def is_right(self) -> bool:
        """Whether it is right more often than not, beyond noise."""
        return self.density_low > HALF


def told_boxes(fit: Columns, comes: Mask, held: Columns, held_comes: Mask) -> list[Checked]:
    """The box of some cells, checked by others, and a second one where that adds enough.

    None where it is no better than chance by the cells it has not seen. A second box covers
    `MORE_COVERED` more and is right more often than not where the first one does not reach, by the
    cells of which it is checked, too.
    """
    if comes.sum() < LEAST_POSITIVE:
        return []
    first = best_box(fit, comes)
    found = [check(first, held, held_comes)]
    if not found[0].density_low > held_comes.mean():
        return []
    outside = ~first.holds(fit)
    left, left_comes = _rows(fit, outside), comes[outside]
    if left_comes.sum() >= LEAST_POSITIVE:
        second = best_box(left, left_comes)
        right = left_comes[second.holds(left)]
        beyond = ~first.holds(held)
        checked = check(second, _rows(held, beyond), held_comes[beyond])
        is_told = checked.density_low > held_comes.mean() and right.mean() > HALF
        if is_told and right.sum() >= MORE_COVERED * comes.sum():
            found.append(checked)
    return found


def check(box: Box, table: Columns, comes: Mask) -> Checked:
    """A box by these cells."""
    inside = box.holds(table)
    right, count = int(comes[inside].sum()), int(inside.sum())
    low, high = wilson(right, count) if count else (0.0, 1.0)
    return Checked(
        box=box,
        density=right / count if count else 0.0,
        density_low=low,
        density_high=high,
        coverage=right / comes.sum() if comes.any() else 0.0,
        agrees=float((inside == comes).mean()) if len(comes) else 0.0,
        cells=count,
    )


def best_box(table: Columns, comes: Mask) -> Box:
    """Of all boxes on the way down, the one of the best harmonic mean of density and coverage."""

    def score(box: Box) -> float:
        inside = box.holds(table)
        right = comes[inside].sum()
        return float(2 * right / (inside.sum() + comes.sum())) if right else 0.0

    kept = (_rounded(_needed(box, table, comes)) for box in _peeled(table, comes))
    few = [box for box in kept if len(box.limits) <= MOST_LIMITS]
    return max(few, key=score)


def _peeled(table: Columns, comes: Mask) -> Iterator[Box]:
    """Boxes from the whole space downwards, each the last one without its best peel."""
    box, least = Box({}), max(LEAST_CELLS, int(LEAST_SHARE * len(comes)))
    while True:
        yield box
        inside = box.holds(table)
        now = comes[inside].mean()
        gains: list[tuple[float, int, Box]] = []
        for peel in _peels(box, _rows(table, inside)):
            kept = peel.holds(table)
            if least <= kept.sum() < inside.sum():
                gain = (comes[kept].mean() - now) / (inside.sum() - kept.sum())
                gains.append((gain, len(gains), peel))
        if not gains:
            return
        box = max(gains)[2]


def _peels(box: Box, inside: Columns) -> Iterator[Box]:
    for name, column in inside.items():
        low, high = box.limits.get(name, (-inf, inf))
        values, cut = np.sort(column), max(1, int(PEEL * len(column)))
        if len(values) > cut and values[0] < values[-1]:
            yield box.at(name, float(values[cut - 1] + values[cut]) / 2, high)
            yield box.at(name, low, float(values[-cut - 1] + values[-cut]) / 2)


def _needed(box: Box, table: Columns, comes: Mask) -> Box:
    """Without limits that are worth next to nothing, or stand at the end of their range."""
    while box.limits:
        density = comes[box.holds(table)].mean()
        fewer = []
        for one, beyond in _without_one(box, table):
            loss = float(density - comes[one.holds(table)].mean())
            if beyond < AT_END or loss <= WORTH:
                fewer.append((loss, one))
        if not fewer:
            return box
        box = min(fewer, key=lambda it: it[0])[1]
    return box


def _without_one(box: Box, table: Columns) -> Iterator[tuple[Box, float]]:
    """The box with one end opened, and the share of all cells that are beyond that end."""
    for name, (low, high) in box.limits.items():
        if isfinite(low):
            yield box.at(name, -inf, high), float((table[name] < low).mean())
        if isfinite(high):
            yield box.at(name, low, inf), float((table[name] > high).mean())


def _rows(table: Columns, chosen: Mask) -> Columns:
    return {name: column[chosen] for name, column in table.items()}


def _rounded(box: Box) -> Box:
    """To two digits, as it is printed."""
    return Box({n: (rounded(low), rounded(high)) for n, (low, high) in box.limits.items()})


def rounded(value: float) -> float:
    """Two significant digits."""
    return float(f"{value:.2g}") if isfinite(value) else value
