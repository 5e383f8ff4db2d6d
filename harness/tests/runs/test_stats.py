"""Intervals that cover what they should, and comparisons that keep their pairs."""

import numpy as np
import pytest

from harness.runs.stats import Estimate, bootstrap_interval, estimate, paired_ratio


def test_the_interval_covers_a_known_mean() -> None:
    """95% nominal; a percentile bootstrap of 30 normal values covers about 93-94%."""
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(300):
        found = bootstrap_interval(
            rng.normal(10, 3, size=30), statistic=np.mean, seed=trial, resamples=400
        )
        assert found is not None
        covered += found[0] <= 10 <= found[1]
    assert 0.90 <= covered / 300 <= 0.97


def test_the_interval_is_as_wide_as_theory_says() -> None:
    """Mean of 400 values of deviation 2: half width 1.96 x 2 / 20 = 0.196."""
    values = np.random.default_rng(2).normal(0, 2, size=400)
    found = bootstrap_interval(values, statistic=np.mean, seed=0)
    assert found is not None
    assert (found[1] - found[0]) / 2 == pytest.approx(0.196, rel=0.1)


def test_a_wider_level_is_wider() -> None:
    values = np.random.default_rng(3).normal(size=20)
    narrow = bootstrap_interval(values, statistic=np.median, seed=0, level=0.5)
    wide = bootstrap_interval(values, statistic=np.median, seed=0, level=0.99)
    assert narrow is not None
    assert wide is not None
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_seed_decides_the_interval() -> None:
    values = np.random.default_rng(4).normal(size=20)
    first = bootstrap_interval(values, statistic=np.mean, seed=5)
    assert first == bootstrap_interval(values, statistic=np.mean, seed=5)
    assert first != bootstrap_interval(values, statistic=np.mean, seed=6)


def test_one_value_has_no_interval() -> None:
    assert bootstrap_interval([1.0], statistic=np.mean, seed=0) is None
    assert bootstrap_interval([], statistic=np.mean, seed=0) is None
    assert estimate([2.0], seed=0) == Estimate(2.0, None, None, 1)


def test_no_value_has_no_estimate() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        estimate([], seed=0)


def test_the_ratio_is_of_means() -> None:
    """(10 + 30) / (10 + 10) = 2, where the mean of the ratios 1 and 3 is 2, and here 11/6."""
    assert paired_ratio([10, 30], [10, 10], seed=0).value == 2
    assert paired_ratio([10, 40], [20, 15], seed=0).value == pytest.approx(50 / 35)


def test_pairs_stay_paired() -> None:
    """Seeds differ tenfold but each ratio is exactly 2: only paired drawing sees no spread."""
    system = np.array([1.0, 3.0, 10.0, 2.0])
    found = paired_ratio(2 * system, system, seed=0)
    assert found.low == pytest.approx(2)
    assert found.high == pytest.approx(2)
    crossed = paired_ratio(2 * system[::-1], system, seed=0)
    assert crossed.value == pytest.approx(2)
    assert crossed.low is not None
    assert crossed.low < 1


def test_unpaired_or_impossible_ratios_are_refused() -> None:
    with pytest.raises(ValueError, match="3 baseline values cannot be paired with 2"):
        paired_ratio([1, 2, 3], [1, 2], seed=0)
    with pytest.raises(ValueError, match="positive values of the system, not 0"):
        paired_ratio([1, 2], [1, 0], seed=0)


def test_text_is_what_tables_print() -> None:
    assert Estimate(1.4321, 1.379, 1.4666, 3).text() == "1.43 [1.38, 1.47]"
    assert Estimate(1.4321, None, None, 1).text() == "1.43 (1 seed)"
    assert Estimate(14.321, 13.0, 15.04, 3).text(digits=1) == "14.3 [13.0, 15.0]"


def test_an_estimate_meets_a_band_it_touches() -> None:
    assert Estimate(2.0, 1.0, 3.0, 2).meets(3.0, 4.0)
    assert not Estimate(2.0, 1.0, 3.0, 2).meets(3.1, 4.0)
    assert not Estimate(2.0, 1.0, 3.0, 2).meets(0.0, 0.9)
    assert Estimate(2.0, None, None, 1).meets(2.0, 4.0)
    assert not Estimate(2.0, None, None, 1).meets(2.1, 4.0)
