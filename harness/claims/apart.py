"""Whether figures under two specifications are told apart, or are one figure with noise."""

from collections.abc import Sequence

import numpy as np

from harness.claims.quantities import Measured
from harness.runs.stats import LEVEL, mean_of


def are_apart(one: Sequence[Measured], other: Sequence[Measured]) -> bool:
    """Whether any figure of `one` differs from that of `other` beyond what seeds make of it.

    Figures are paired by seed and setting; the interval of each change is as wide as all of them
    together need (Bonferroni), so that among many settings chance does not find one. What cannot
    be paired, by other settings or seeds, counts as apart, as does what differs without scatter.
    """
    if [_places(measured) for measured in one] != [_places(measured) for measured in other]:
        return True
    changes = [left.compared() - right.compared() for left, right in zip(one, other, strict=True)]
    columns = np.concatenate(changes, axis=1).T
    level = 1 - (1 - LEVEL) / len(columns)
    return not all(mean_of(column, level).meets(0.0, 0.0) for column in columns)


def _places(measured: Measured) -> tuple[object, ...]:
    return measured.seeds, [*measured.settings]
