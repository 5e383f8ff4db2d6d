"""How often the intervals behind the verdicts hold the truth, with 5 and 10 seeds.

Student's t covers 95% for normal figures and for logarithms of paired ratios. Means of skewed
figures are covered less: 94% for lognormal figures with a spread of 0.3, 92% with 0.5, and 82% with
1.0, which is why ratios and reductions are judged by their logarithms. Wilson's interval covers
95% on average over shares and, for shares from 0.1 to 0.9, at least 90%.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from harness.claims.verdicts import wilson
from harness.runs.stats import Estimate, Floats, geometric_mean_of, mean_of

TRIALS = 4000
SEEDS = (5, 10)


def covered(rows: Floats, truth: float, of: Callable[[Floats], Estimate]) -> float:
    """Share of rows whose interval holds the truth."""
    low, high = np.array([of(row).ends for row in rows]).T
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_mean_of_normal_figures(seeds: int) -> None:
    rows = np.random.default_rng(seeds).normal(10.0, 3.0, (TRIALS, seeds))
    assert 0.93 <= covered(rows, 10.0, mean_of) <= 0.97


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_ratios_of_paired_lognormal_figures(seeds: int, spread: float) -> None:
    """Both sides of a pair share what the seed does to them, which drops out."""
    rng = np.random.default_rng(seeds)
    shared = rng.lognormal(3.0, 1.0, (TRIALS, seeds))
    above, below = (shared * rng.lognormal(0.0, spread, shared.shape) for _ in range(2))
    assert 0.93 <= covered(1.5 * above / below, 1.5, geometric_mean_of) <= 0.97


@pytest.mark.parametrize("seeds", SEEDS)
def test_ratios_of_normal_figures(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    rows = rng.normal(1.5, 0.15, (TRIALS, seeds)) / rng.normal(1.0, 0.1, (TRIALS, seeds))
    assert 0.93 <= covered(rows, 1.5, geometric_mean_of) <= 0.97


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("spread", "least"), [(0.1, 0.93), (0.3, 0.93), (0.5, 0.90), (1.0, 0.80)])
def test_the_mean_of_lognormal_figures(seeds: int, spread: float, least: float) -> None:
    rows = np.random.default_rng(seeds).lognormal(0.0, spread, (TRIALS, seeds))
    assert least <= covered(rows, float(np.exp(spread**2 / 2)), mean_of) <= 0.97


@pytest.mark.parametrize("seeds", SEEDS)
def test_shares_of_seeds(seeds: int) -> None:
    """Exact: the probability of every count, where its interval holds the share."""
    counts, shares = np.arange(seeds + 1), np.linspace(0.1, 0.9, 81)[:, None]
    low, high = np.array([wilson(int(count), seeds) for count in counts]).T
    holds = (low <= shares) & (shares <= high)
    found = (binom.pmf(counts, seeds, shares) * holds).sum(axis=1)
    assert found.min() >= 0.90
    assert 0.93 <= found.mean() <= 0.97
