"""Estimates over seeds: Student's t intervals of means and of paired ratios.

With the handful of seeds that a simulation affords, resampling (a percentile bootstrap of three
values is just their smallest and largest) covers far less than it prints. Student's t covers what
it says for normal figures from two seeds on, and ratios of paired seeds are taken on their
logarithms, where a factor that both sides share drops out; `tests/claims/test_coverage.py` measures
how often these intervals hold the truth.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over `count` seeds and its 95% interval; one seed has no interval."""

    value: float
    low: float | None
    high: float | None
    count: int

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; the value twice where there is none."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high

    def text(self, digits: int = 2) -> str:
        """As printed in tables: `1.43 [1.38, 1.47]`, or `1.43 (1 seed)`."""
        if self.low is None or self.high is None:
            return f"{self.value:.{digits}f} ({self.count} seed{'s' * (self.count != 1)})"
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def mean_of(values: ArrayLike, level: float = LEVEL) -> Estimate:
    """Mean over seeds, one value each; its interval covers `level`. `ValueError` for no values."""
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) == 0:
        raise ValueError("an estimate needs at least one value")
    mean = float(rows.mean())
    if len(rows) < 2:
        return Estimate(mean, None, None, len(rows))
    half = stdtrit(len(rows) - 1, (1 + level) / 2) * rows.std(ddof=1) / np.sqrt(len(rows))
    return Estimate(mean, mean - float(half), mean + float(half), len(rows))


def geometric_mean_of(values: ArrayLike) -> Estimate:
    """Geometric mean over seeds of positive figures such as ratios; the interval is of their logs.

    Raises `ValueError` for no values and for one that is not positive.
    """
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) and not (rows > 0).all():
        raise ValueError(f"a ratio must be positive, not {rows.min():g}")
    logs = mean_of(np.log(rows))
    low, high = (None if end is None else float(np.exp(end)) for end in (logs.low, logs.high))
    return Estimate(float(np.exp(logs.value)), low, high, logs.count)


def paired_ratio(over: ArrayLike, under: ArrayLike) -> Estimate:
    """`over` / `under`; entry i of both comes from the same seed.

    Raises `ValueError` for unequal counts, for none, and for figures that are not all positive.
    """
    above = np.asarray(over, dtype=np.float64)
    below = np.asarray(under, dtype=np.float64)
    if above.shape != below.shape:
        raise ValueError(f"{above.size} values cannot be paired with {below.size}")
    if not (below > 0).all():
        raise ValueError(f"a ratio needs positive values, not {below.min():g}")
    return geometric_mean_of(above / below)
