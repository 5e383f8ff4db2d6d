"""Estimates over seeds: bootstrap intervals and paired comparisons."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over `count` seeds and its 95% interval; one seed has no interval."""

    value: float
    low: float | None
    high: float | None
    count: int

    def text(self, digits: int = 2) -> str:
        """As printed in tables: `1.43 [1.38, 1.47]`, or `1.43 (1 seed)`."""
        if self.low is None or self.high is None:
            return f"{self.value:.{digits}f} ({self.count} seed{'s' * (self.count != 1)})"
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"

    def meets(self, low: float, high: float) -> bool:
        """Whether the interval, or the value where there is none, touches `low`..`high`."""
        mine_low = self.value if self.low is None else self.low
        mine_high = self.value if self.high is None else self.high
        return mine_low <= high and mine_high >= low


def bootstrap_interval(
    values: ArrayLike,
    *,
    statistic: Statistic,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of `statistic` over the rows of `values`, the same for a seed.

    Rows (the first axis) are drawn with replacement, so what stands in one row stays paired.
    None for fewer than two rows, of which nothing can be said.
    """
    rows = np.asarray(values, dtype=np.float64)
    count = len(rows)
    if count < 2:
        return None
    drawn = np.random.default_rng(seed).integers(0, count, size=(resamples, count))
    found = np.array([statistic(rows[index]) for index in drawn])
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def estimate(
    values: ArrayLike,
    *,
    seed: int,
    statistic: Statistic = np.mean,
    resamples: int = 2000,
    level: float = 0.95,
) -> Estimate:
    """`statistic` over the rows of `values` with its interval. Raises `ValueError` for no rows."""
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) == 0:
        raise ValueError("an estimate needs at least one value")
    interval = bootstrap_interval(
        rows, statistic=statistic, seed=seed, resamples=resamples, level=level
    )
    low, high = interval or (None, None)
    return Estimate(float(statistic(rows)), low, high, len(rows))


def ratio_of_means(pairs: Floats) -> float:
    """Mean of the first column over mean of the second."""
    return float(pairs[:, 0].mean() / pairs[:, 1].mean())


def paired_ratio(
    baseline: ArrayLike,
    system: ArrayLike,
    *,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> Estimate:
    """Baseline over system, as ratio of means; entry i of both comes from the same seed.

    The interval resamples pairs. Raises `ValueError` for unequal counts, for none, and where the
    system's figures are not all positive.
    """
    over = np.asarray(baseline, dtype=np.float64)
    under = np.asarray(system, dtype=np.float64)
    if over.shape != under.shape:
        raise ValueError(f"{over.size} baseline values cannot be paired with {under.size}")
    if not (under > 0).all():
        raise ValueError(f"a ratio needs positive values of the system, not {under.min():g}")
    pairs = np.stack([over, under], axis=1)
    return estimate(pairs, seed=seed, statistic=ratio_of_means, resamples=resamples, level=level)
