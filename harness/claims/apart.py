"""Whether figures under two specifications are told apart, or are one figure with noise."""

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr

from harness.claims.quantities import Measured
from harness.runs.stats import LEVEL, Floats


def are_apart(one: Sequence[Measured], other: Sequence[Measured]) -> bool:
    """Whether any figure of `one` differs from that of `other` beyond what seeds make of it.

    Figures are paired by seed and setting; a t test of each, its p-value times their number
    (Bonferroni), so that among many settings chance does not find one. What cannot be paired, by
    other settings or seeds, counts as apart, and so does what differs without any scatter.
    """
    if [_places(measured) for measured in one] != [_places(measured) for measured in other]:
        return True
    changes = [left.compared() - right.compared() for left, right in zip(one, other, strict=True)]
    columns = np.concatenate(changes, axis=1)
    return bool(_p_values(columns).min() * columns.shape[1] <= 1 - LEVEL)


def _places(measured: Measured) -> tuple[object, ...]:
    return measured.seeds, [*measured.settings]


def _p_values(changes: Floats) -> Floats:
    """Of the mean of each column [seeds, columns] being 0, on both sides; 0 without scatter."""
    count = len(changes)
    means = np.abs(changes.mean(axis=0))
    errors = changes.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(means)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = 2 * stdtr(max(count - 1, 1), -means / errors)
    return np.where(means > 0, np.where(errors > 0, found, 0.0), 1.0)
