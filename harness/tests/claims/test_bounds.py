"""Bounds and trends: figures that stay on one side, or go one way."""

from functools import partial

import numpy as np
import pytest

from harness.claims.findings import Agreement
from harness.claims.quantities import Measured, Setting
from harness.claims.trends import judge_trend
from harness.claims.verdicts import Band, judge_bound, judge_within
from harness.tests.support.claims import measured

AGREES, DIRECTION, DIFFERS = Agreement.AGREES, Agreement.DIRECTION, Agreement.DIFFERS
UNTOLD = Agreement.UNTOLD


def test_a_bound_is_kept_at_the_setting_named() -> None:
    found = [measured([[1.5, 2.4]] * 5)]
    bound = Band(2.5, 2.5, 0.1)
    most = partial(judge_bound, take="largest", side="at_most")
    assert most(found, bound, at={"rate": 1}).agreement is AGREES
    assert most(found, bound, at={"rate": 0}).agreement is DIRECTION
    assert most(found, Band(2.0, 2.0, 0.1), at={}).agreement is DIFFERS
    least = judge_bound(found, Band(1.0, 1.0, 0.1), take="smallest", side="at_least", at={})
    assert (least.agreement, least.note) == (AGREES, "smallest at rate 0")


def test_a_trend_must_be_certain() -> None:
    falling = measured([[3.0, 2.0, 1.5]] * 5)
    assert judge_trend([falling], against="rate", expect="falling").agreement is AGREES
    assert judge_trend([falling], against="rate", expect="rising").agreement is DIFFERS
    doubtful = measured([[3.0, 2.0, 1.5], [3.0, 2.0, 1.5], [1.5, 2.0, 3.0]])
    found = judge_trend([doubtful], against="rate", expect="falling")
    assert (found.agreement, found.ours) == (UNTOLD, "-0.33 [-1.00, 1.00]")
    assert "not falling for certain" in found.note
    flat = measured([[3.0, 2.0, 2.99], [2.99, 2.0, 3.0], [3.0, 2.0, 3.0]])
    assert judge_trend([flat], against="rate", expect="falling").agreement is DIFFERS


def test_one_curve_of_several_that_is_not_certain_leaves_the_direction() -> None:
    falling, flat = measured([[3.0, 2.0, 1.5]] * 5), measured([[2.0, 2.0, 2.0]] * 5)
    found = judge_trend([falling, flat], against="rate", expect="falling")
    assert found.agreement is DIRECTION
    assert found.figure is not None
    assert found.figure.value == 0.0  # the curve that decides stands for them


def test_a_trend_is_more_than_a_trifle() -> None:
    """Falling in every seed, by a hundredth of a percent."""
    hardly = measured([[1.3002, 1.3001, 1.3]] * 5)
    assert judge_trend([hardly], against="rate", expect="falling").agreement is DIFFERS


def test_better_throughout_is_not_no_effect() -> None:
    least = partial(judge_bound, take="smallest", side="at_least", at={})
    bound = Band(1.0, 1.0, 0.01)
    assert least([measured([[1.0, 1.0]] * 5)], bound).agreement is DIFFERS
    assert least([measured([[1.0, 1.3]] * 5)], bound).agreement is AGREES
    assert least([measured([[0.97, 1.3]] * 5)], bound).agreement is DIFFERS
    noisy = measured([[0.9, 1.3], [1.1, 1.3], [1.0, 1.3], [0.8, 1.3], [1.05, 1.3]])
    assert least([noisy], bound).agreement is UNTOLD


def test_a_bound_that_the_interval_reaches_is_not_broken() -> None:
    most = partial(judge_bound, take="largest", side="at_most", at={})
    noisy = measured([[2.4], [2.7], [2.5], [2.8], [2.4]])
    assert most([noisy], Band(2.5, 2.5, 0.0)).agreement is AGREES
    assert most([noisy], Band(2.2, 2.2, 0.0)).agreement is DIFFERS


def plain(*figures: float) -> Measured:
    """Figures that nothing is compared with, the same for five seeds."""
    values = np.array([figures] * 5)
    places: list[Setting] = [{} for _ in figures]
    return Measured(label="", quantity="value", settings=places, system=values, baseline=values)


def test_a_search_that_is_faster_than_the_papers_is_no_failure() -> None:
    """22 to 69 s on its machine and 3 s here: as a bound it holds, as a range it cannot."""
    most = partial(judge_bound, take="largest", side="at_most", at={})
    assert most([plain(3.0)], Band(69, 69, 1)).agreement is AGREES
    assert judge_within(plain(3.0), Band(22, 69, 1)).agreement is DIFFERS


def test_similar_is_a_size_and_no_probability() -> None:
    """Lengths 2% apart are similar however many samples say so: a difference beside the paper's."""
    most = partial(judge_bound, take="largest", side="at_most", at={})
    assert most([plain(0.02, 0.01)], Band(0.05, 0.05, 0.01)).agreement is AGREES
    assert most([plain(0.02, 0.12)], Band(0.05, 0.05, 0.01)).agreement is DIFFERS


def test_a_flat_line_is_a_line() -> None:
    """Nothing varies, so a line explains none of it, and leaves no residual either."""
    y = np.array([5.0, 5.01, 4.99, 5.0])
    x = np.arange(4.0)
    residual = np.abs(y - np.polyval(np.polyfit(x, y, 1), x)).mean() / y.mean()
    most = partial(judge_bound, take="largest", side="at_most", at={})
    assert most([plain(float(residual))], Band(0.05, 0.05, 0.0)).agreement is AGREES


def test_a_bound_that_noise_alone_reaches_is_not_kept() -> None:
    """Around 750 within a tenth, and from 19 to 1453: nobody can say of the latter."""
    bound = partial(judge_bound, take="largest", side="at_most", at={})
    near = bound([measured([[710.0], [790.0], [755.0], [760.0], [740.0]])], SEVEN)
    assert near.agreement is AGREES
    wide = bound([measured([[20.0], [20.0], [1500.0], [2000.0], [140.0]])], SEVEN)
    assert wide.agreement is UNTOLD
    assert wide.note.endswith("too noisy to tell")


SEVEN = Band(750.0, 750.0, 10.0)


def of_two(*, of_averages: bool) -> Measured:
    """1 s for 1 s at the first setting and 5 s for 10 s at the second, the same for five seeds."""
    return Measured(
        label="",
        quantity="speedup",
        settings=[{"rate": 0, "round": 1}, {"rate": 1, "round": 1}],
        system=np.array([[1.0, 5.0]] * 5),
        baseline=np.array([[1.0, 10.0]] * 5),
        of_averages=of_averages,
    )


def test_an_average_is_of_ratios_or_of_figures() -> None:
    assert of_two(of_averages=False).mean().value == pytest.approx(1.5)
    assert of_two(of_averages=True).mean().value == pytest.approx(11 / 6)
    (curve,) = of_two(of_averages=True).curves("round")
    assert curve.values.tolist() == [pytest.approx([11 / 6])] * 5


def test_a_bound_of_the_mean_asks_nothing_of_single_settings() -> None:
    """Nowhere less than 1.0 is another claim than 1.4 on average."""
    bound = partial(judge_bound, [of_two(of_averages=False)], side="at_least", at={})
    assert bound(Band(1.4, 1.4, 0.01), take="mean").agreement is AGREES
    assert bound(Band(1.6, 1.6, 0.01), take="mean").agreement is DIRECTION
    assert bound(Band(1.4, 1.4, 0.01), take="smallest").agreement is DIRECTION
    most = partial(judge_bound, [of_two(of_averages=True)], take="mean", side="at_most", at={})
    assert most(Band(1.6, 1.6, 0.01)).agreement is DIFFERS
    assert most(Band(1.9, 1.9, 0.01)).agreement is AGREES
