"""Robust least squares of times that are sums of nonnegative pieces."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

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
        root = np.linalg.cholesky(weighted.T @ scaled + ridge)
        found, _ = nnls(root.T, np.linalg.solve(root, weighted.T @ target))
        weight = SMALL_ERROR / np.maximum(np.abs(scaled @ found - target), SMALL_ERROR)
    return np.asarray(found / scale)
