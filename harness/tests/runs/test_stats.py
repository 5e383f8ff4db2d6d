"""Intervals by hand, and comparisons that keep their pairs."""

import numpy as np
import pytest

from harness.runs.stats import Estimate, geometric_mean_of, mean_of, paired_ratio


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
