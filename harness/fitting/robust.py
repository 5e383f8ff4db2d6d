"""Robust least squares of times that are sums of nonnegative pieces."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS = 12
SMALL_ERROR = 0.002  # relative to the iteration: below it, errors count squared, above it by size
RIDGE = 1e-7  # settles what the data leave open; far below the noise


def hats(values: Floats, knots: Floats) -> Floats:
    """Columns that sum to 1: a value's weight on each knot under linear interpolation."""
    return np.stack([np.interp(values, knots, unit) for unit in np.eye(len(knots))], axis=1)


def ramps(values: Floats, knots: Floats) -> Floats:
    """One column per segment, from 0 at its start to 1 at its end.

    Nonnegative coefficients of them make a nondecreasing line through the knots.
    """
    return np.clip((values[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)


def fit_relative(columns: Floats, times_s: Floats, whole_s: Floats) -> Floats:
    """Nonnegative coefficients that predict `times_s`; errors count relative to `whole_s`.

    Rows that stick out (profiling noise) lose weight in proportion to their error, which makes
    this a fit of least absolute deviations but for small errors.
    """
    scaled = columns / whole_s[:, None]
    scale = np.sqrt((scaled**2).mean(axis=0))
    scale[scale == 0.0] = 1.0
    scaled /= scale
    target = times_s / whole_s
    weight = np.ones(len(target))
    for _ in range(ROUNDS):
        weighted = scaled * weight[:, None]
        ridge = RIDGE * weight.sum() * np.eye(columns.shape[1])
        found = nonnegative(weighted.T @ scaled + ridge, weighted.T @ target)
        weight = SMALL_ERROR / np.maximum(np.abs(scaled @ found - target), SMALL_ERROR)
    return np.asarray(found / scale)


def nonnegative(gram: Floats, moment: Floats) -> Floats:
    """The x >= 0 that minimises x'Gx/2 - m'x for positive definite G (Lawson and Hanson 1974)."""
    found = np.zeros(len(moment))
    free = np.zeros(len(moment), dtype=bool)
    for _ in range(3 * len(moment)):
        pull = np.where(free, -np.inf, moment - gram @ found)
        candidate = int(np.argmax(pull))
        if pull[candidate] <= 1e-10 * np.abs(moment).max():
            break
        free[candidate] = True
        found = _free_minimum(gram, moment, found, free)
    return found


def _free_minimum(gram: Floats, moment: Floats, start: Floats, free: NDArray[np.bool_]) -> Floats:
    """Minimum over the free variables; variables that would turn negative leave `free`, at 0."""
    while True:
        aim = np.zeros(len(moment))
        aim[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
        blocked = free & (aim <= 0.0)
        if not blocked.any():
            return aim
        step = np.min(start[blocked] / (start[blocked] - aim[blocked]))
        start = start + step * (aim - start)
        free &= start > 1e-14
        start[~free] = 0.0
