"""Whether figures under two specifications are told apart, or are one figure with noise."""

from collections.abc import Sequence

import numpy as np

from harness.claims.quantities import Measured
from harness.claims.verdicts import Band, range_parts
from harness.runs.stats import LEVEL, Floats, mean_of

Picks = Floats
"""[figures, picks]: each column makes of all figures one that counts."""


def are_apart(
    one: Sequence[Measured], other: Sequence[Measured], picks: Picks | None = None
) -> bool:
    """Whether any figure that counts differs between the two beyond what seeds make of it.

    All count where `picks` is None. Figures are paired by seed and setting; the interval of each
    change is as wide as all of them together need (Bonferroni), so that among many settings chance
    does not find one. What cannot be paired, by other settings or seeds, counts as apart, as does
    what differs without scatter.
    """
    if not are_paired(one, other):
        return True
    ours, theirs = (_figures(side) for side in (one, other))
    changes = ours - theirs if picks is None else (ours - theirs) @ picks
    level = 1 - (1 - LEVEL) / changes.shape[1]
    return not all(mean_of(change, level).meets(0.0, 0.0) for change in changes.T)


def are_paired(one: Sequence[Measured], other: Sequence[Measured]) -> bool:
    """Whether both have the same seeds and settings."""
    return [_places(measured) for measured in one] == [_places(measured) for measured in other]


def extremes(one: Sequence[Measured], other: Sequence[Measured], take: str) -> Picks | None:
    """Where either has its largest or smallest figure; None where a rule takes neither."""
    extreme = {"largest": np.argmax, "smallest": np.argmin}.get(take)
    if extreme is None:
        return None
    sides = [_figures(side).mean(axis=0) for side in (one, other)]
    return np.eye(len(sides[0]))[:, sorted({int(extreme(side)) for side in sides})]


def turned(
    one: Sequence[Measured], other: Sequence[Measured], band: Band, *, tolerance: float
) -> Picks | None:
    """Of a range the parts that agree in another way; None where none does, or something else."""
    found: list[Floats] = []
    count, first = sum(len(it.settings) for it in one), 0
    for ours, theirs in zip(one, other, strict=True):
        places = range(first, first + len(ours.settings))
        first += len(ours.settings)
        whole = np.zeros(count)
        whole[places] = 1 / len(places)
        means = [side.compared().mean(axis=0) for side in (ours, theirs)]
        ends = [
            [np.eye(count)[places[int(extreme(mean))]] for mean in means]
            for extreme in (np.argmin, np.argmax)
        ]
        parts = [[whole], *([np.eye(count)[place]] for place in places), *ends]
        pairs = zip(
            *(range_parts(it, band, tolerance=tolerance) for it in (ours, theirs)), strict=True
        )
        # Of one setting there are no ends.
        for picks, (is_now, was) in zip(parts, pairs, strict=False):
            found += picks if is_now is not was else []
    return np.unique(found, axis=0).T if found else None


def _figures(measured: Sequence[Measured]) -> Floats:
    return np.concatenate([it.compared() for it in measured], axis=1)


def _places(measured: Measured) -> tuple[object, ...]:
    return measured.seeds, [*measured.settings]
