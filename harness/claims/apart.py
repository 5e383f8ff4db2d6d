"""Whether figures under two specifications are told apart, or are one figure with noise."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.claims.quantities import Measured
from harness.runs.stats import LEVEL, Floats, mean_of

Extreme = Callable[[Floats], Any]
"""The place of the figure that counts, among the means over seeds of all of them."""


def are_apart(
    one: Sequence[Measured], other: Sequence[Measured], *, extreme: Extreme | None = None
) -> bool:
    """Whether any figure of `one` differs from that of `other` beyond what seeds make of it.

    Where only the largest or the smallest counts (`extreme`), those at whose places one of the two
    has it.

    Figures are paired by seed and setting; the interval of each change is as wide as all of them
    together need (Bonferroni), so that among many settings chance does not find one. What cannot
    be paired, by other settings or seeds, counts as apart, as does what differs without scatter.
    """
    if [_places(measured) for measured in one] != [_places(measured) for measured in other]:
        return True
    ours, theirs = (np.concatenate([it.compared() for it in side], axis=1) for side in (one, other))
    columns = (ours - theirs).T
    if extreme is not None:
        columns = columns[sorted({int(extreme(side.mean(axis=0))) for side in (ours, theirs)})]
    level = 1 - (1 - LEVEL) / len(columns)
    return not all(mean_of(column, level).meets(0.0, 0.0) for column in columns)


def extreme_of(take: str) -> Extreme | None:
    """Where the figure is that a rule takes, None where all count."""
    return {"largest": np.argmax, "smallest": np.argmin}.get(take)


def _places(measured: Measured) -> tuple[object, ...]:
    return measured.seeds, [*measured.settings]
