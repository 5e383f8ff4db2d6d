"""Intervals that cover what they should, and comparisons that keep their pairs."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.runs.stats import Estimate, Floats, geometric_mean_of, mean_of, paired_ratio

TRIALS = 4000
SEEDS = (3, 5, 10)
Draw = Callable[[np.random.Generator, int], Floats]


def _covered(draw: Draw, count: int, truth: float, of: Callable[[Floats], Estimate]) -> float:
    """Share of trials whose interval holds the truth."""
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(TRIALS):
        low, high = of(draw(rng, count)).ends
        held += low <= truth <= high
    return held / TRIALS


@pytest.mark.slow
@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_the_interval_of_a_mean_covers_normal_and_lognormal_figures(
    count: int, spread: float
) -> None:
    normal = _covered(lambda rng, n: rng.normal(10.0, 10.0 * spread, n), count, 10.0, mean_of)
    truth = float(np.exp(spread**2 / 2))
    skewed = _covered(lambda rng, n: rng.lognormal(0.0, spread, n), count, truth, mean_of)
    assert 0.92 <= normal <= 0.97
    assert 0.92 <= skewed <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_interval_of_a_paired_ratio_covers(count: int, spread: float) -> None:
    """Both sides of a pair share what the seed does to them."""

    def pairs(rng: np.random.Generator, n: int) -> Floats:
        shared = rng.lognormal(3.0, 1.0, n)
        over = 1.5 * shared * rng.lognormal(0.0, spread, n)
        return over / (shared * rng.lognormal(0.0, spread, n))

    def normals(rng: np.random.Generator, n: int) -> Floats:
        return rng.normal(1.5, 0.15, n) / rng.normal(1.0, 0.1, n)

    assert 0.92 <= _covered(pairs, count, 1.5, geometric_mean_of) <= 0.97
    assert 0.92 <= _covered(normals, count, 1.5, geometric_mean_of) <= 0.97


def test_the_interval_of_a_mean_by_hand() -> None:
    """1, 2, 3: deviation 1, and t(0.975, 2) = 4.3027, so the half width is 4.3027 / sqrt(3)."""
    found = mean_of([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.ends == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)


def test_one_value_has_no_interval() -> None:
    assert mean_of([2.0]) == Estimate(2.0, None, None, 1)
    assert mean_of([2.0]).text() == "2.00 (1 seed)"
    assert mean_of([2.0]).ends == (2.0, 2.0)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert mean_of([3.0, 3.0, 3.0]) == Estimate(3.0, 3.0, 3.0, 3)


def test_no_value_has_no_estimate() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_of([])


def test_a_ratio_is_the_geometric_mean_of_its_pairs() -> None:
    """2 and 8 are 4 on average, the other way round 1/4."""
    there, back = paired_ratio([10, 80], [5, 10]), paired_ratio([5, 10], [10, 80])
    assert there.value == pytest.approx(4.0)
    assert back.value == pytest.approx(1 / 4)
    assert there.low is not None
    assert back.high == pytest.approx(1 / there.low)


def test_pairs_share_their_seed() -> None:
    """A constant factor within each seed leaves no doubt, however much seeds differ."""
    system = np.array([1.0, 10.0, 100.0, 1000.0, 5.0])
    found = paired_ratio(2 * system, system)
    assert found.ends == pytest.approx((2.0, 2.0))
    crossed = paired_ratio(2 * system[::-1], system)
    assert crossed.ends[0] < 1 < crossed.ends[1]


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(ValueError, match="3 values cannot be paired with 2"):
        paired_ratio([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="positive values, not 0"):
        paired_ratio([1, 2], [1, 0])
    with pytest.raises(ValueError, match="must be positive, not -1"):
        geometric_mean_of([1.0, -1.0])


def test_what_an_interval_meets() -> None:
    estimate = Estimate(1.0, 0.9, 1.1, 5)
    assert estimate.meets(1.1, 2.0)
    assert not estimate.meets(1.11, 2.0)
    assert Estimate(1.0, None, None, 1).meets(1.0, 1.0)
