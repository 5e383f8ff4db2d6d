"""Whether figures under two specifications are told apart, or are one figure with noise."""

from collections.abc import Callable, Sequence

import numpy as np

from harness.claims.quantities import Measured
from harness.claims.verdicts import Band, range_parts
from harness.runs.stats import LEVEL, Floats, mean_of

Picks = Floats
"""[figures, picks]: each column makes of all figures one that counts."""

Counting = Callable[[Sequence[Measured], Sequence[Measured]], Picks | None]
"""Which figures of two sides count; None where all do."""


def are_apart(
    one: Sequence[Measured], other: Sequence[Measured], counting: Counting | None = None
) -> bool:
    """Whether any figure that counts differs between the two beyond what seeds make of it.

    Figures are paired by seed and setting; the interval of each change is as wide as all of them
    together need (Bonferroni), so that among many settings chance does not find one. What cannot
    be paired, by other settings or seeds, counts as apart, as does what differs without scatter.
    """
    if [_places(measured) for measured in one] != [_places(measured) for measured in other]:
        return True
    picks = counting(one, other) if counting else None
    changes = _figures(one) - _figures(other)
    changes = changes if picks is None else changes @ picks
    level = 1 - (1 - LEVEL) / changes.shape[1]
    return not all(mean_of(change, level).meets(0.0, 0.0) for change in changes.T)


def extremes(one: Sequence[Measured], other: Sequence[Measured], *, take: str) -> Picks | None:
    """Where either has its largest or smallest figure; None where a rule takes neither."""
    extreme = {"largest": np.argmax, "smallest": np.argmin}.get(take)
    if extreme is None:
        return None
    sides = [_figures(side).mean(axis=0) for side in (one, other)]
    return np.eye(len(sides[0]))[:, sorted({int(extreme(side)) for side in sides})]


def turned(
    one: Sequence[Measured], other: Sequence[Measured], *, band: Band, tolerance: float
) -> Picks | None:
    """Of a range the parts that agree in another way; None where none does, or something else."""
    found: list[Floats] = []
    figures = np.eye(sum(len(it.settings) for it in one))
    first = 0
    for sides in zip(one, other, strict=True):
        own = figures[first : first + len(sides[0].settings)]
        first += len(own)
        means = [side.compared().mean(axis=0) for side in sides]
        ends = [own[[int(extreme(it)) for it in means]] for extreme in (np.argmin, np.argmax)]
        now, then = (
            range_parts(it.mean(), it.per_setting(), band, alike=it.alike, tolerance=tolerance)
            for it in sides
        )
        # Of one setting there are no ends.
        for picks, *agreements in zip(
            [own.mean(axis=0, keepdims=True), *own[:, None], *ends], now, then, strict=False
        ):
            found += [*picks] if len({*agreements}) > 1 else []
    return np.unique(found, axis=0).T if found else None


def _figures(measured: Sequence[Measured]) -> Floats:
    return np.concatenate([it.compared() for it in measured], axis=1)


def _places(measured: Measured) -> tuple[object, ...]:
    return measured.seeds, [*measured.settings]
