"""How far figures agree with what a paper prints."""

from functools import partial

import numpy as np
import pytest

from harness.claims.findings import Agreement
from harness.claims.quantities import Measured, Setting
from harness.claims.verdicts import (
    Band,
    agrees,
    judge_bound,
    judge_figure,
    judge_range,
    judge_trend,
    judge_within,
)
from harness.runs.stats import Estimate

AGREES, DIRECTION, DIFFERS = Agreement.AGREES, Agreement.DIRECTION, Agreement.DIFFERS


def measured(baseline: list[list[float]], *, quantity: str = "speedup") -> Measured:
    """A system that takes 1 s everywhere; `baseline` [seeds][settings] in s."""
    seconds = np.array(baseline)
    return Measured(
        label="",
        quantity=quantity,
        settings=[{"rate": place} for place in range(seconds.shape[1])],
        system=np.ones_like(seconds),
        baseline=seconds,
    )


def sure(value: float) -> Estimate:
    return Estimate(value, value, value, 5)


def test_worse_beyond_noise_is_not_a_range_that_begins_at_no_change() -> None:
    """0.96 [0.95, 0.96] is no speedup of 1.0 to 1.1, though 0.95 would print as 1.0."""
    band = Band(1.0, 1.1, 0.1)
    assert not agrees(Estimate(0.96, 0.95, 0.96, 5), band, alike=1.0)
    assert agrees(Estimate(0.99, 0.95, 1.03, 5), band, alike=1.0)


def test_an_end_at_no_change_is_met_by_what_prints_as_it_however_precise() -> None:
    """1.03 prints as 1.0, be its interval [1.02, 1.04] or twice as wide."""
    for half in (0.01, 0.05):
        low = [1.03 + half * sign for sign in (-1, 1, 0, -1, 1)]
        found = measured([[value, 1.3] for value in low])
        assert judge_range(found, Band(1.0, 1.3, 0.1)).agreement is AGREES
    below = measured([[0.955 + 0.001 * seed, 1.3] for seed in range(5)])
    assert judge_range(below, Band(1.0, 1.3, 0.1)).agreement is not AGREES


def test_a_quarter_less_than_claimed_is_not_the_figure() -> None:
    """A reduction of 0.30 that comes out as 0.225 [0.215, 0.235]."""
    band = Band(0.30, 0.30, 0.01)
    assert not agrees(Estimate(0.225, 0.215, 0.235, 5), band, alike=0.0)
    assert agrees(Estimate(0.26, 0.25, 0.27, 5), band, alike=0.0)  # within 15% of the effect


def test_tolerance_is_of_the_effect() -> None:
    """15% of a speedup of 1.2 is 0.03, not 0.18."""
    band = Band(1.2, 1.2, 0.0)
    assert agrees(sure(1.18), band, alike=1.0)
    assert not agrees(sure(1.10), band, alike=1.0)
    assert agrees(sure(1.10), band)  # where nothing is compared, of the figure


def test_a_printed_figure_stands_for_what_rounds_to_it() -> None:
    assert agrees(sure(1.15), Band(1.2, 1.2, 0.1), alike=1.0, tolerance=0.0)
    assert not agrees(sure(1.14), Band(1.2, 1.2, 0.1), alike=1.0, tolerance=0.0)


def test_the_interval_need_only_touch_the_figure() -> None:
    assert agrees(Estimate(2.0, 1.5, 2.5, 5), Band(2.4, 2.4, 0.0), alike=1.0, tolerance=0.0)
    assert not agrees(Estimate(2.0, 1.5, 2.5, 5), Band(2.6, 2.6, 0.0), alike=1.0, tolerance=0.0)


def test_the_figure_is_the_mean_over_settings() -> None:
    """Speedups of 1 to 3, of which none but their mean is 2."""
    found = judge_figure(measured([[1.0, 3.0]] * 5), Band(2.0, 2.0, 0.1), tolerance=0.0)
    assert (found.agreement, found.ours) == (AGREES, "2.00 [2.00, 2.00]")
    assert found.note == "over settings 1.00 [1.00, 1.00] to 3.00 [3.00, 3.00]"


def test_noise_alone_is_no_agreement() -> None:
    """1.3 [0.8, 2.1] touches 1.5, and nothing at all just as well."""
    noisy = measured([[0.8], [1.9], [1.0], [2.1], [1.1]])
    assert judge_figure(noisy, Band(1.5, 1.5, 0.1)).agreement is DIFFERS


def test_a_range_needs_both_of_its_ends() -> None:
    flat, spread = [[1.2, 1.25]] * 5, [[1.1, 2.3]] * 5
    band = Band(1.1, 2.4, 0.1)
    assert judge_range(measured(spread), band).agreement is AGREES
    assert judge_range(measured(flat), band).agreement is DIRECTION


def test_no_effect_is_not_a_range_that_reaches_no_effect() -> None:
    """Running times of 0.99 throughout, where the paper has 0.9 to 1.0."""
    alike = measured([[0.99, 0.99]] * 5, quantity="speedup")
    assert judge_range(alike, Band(0.9, 1.0, 0.1)).agreement is DIFFERS


def test_the_direction_is_more_than_two_percent_beyond_noise() -> None:
    far = Band(2.0, 2.0, 0.1)
    assert judge_figure(measured([[1.01], [1.0], [1.02], [1.01], [1.01]]), far).agreement is DIFFERS
    assert judge_figure(measured([[1.05]] * 5), far).agreement is DIRECTION
    assert judge_figure(measured([[0.8], [1.6]] * 3), far).agreement is DIFFERS


def test_better_in_most_settings_only_is_not_the_direction() -> None:
    """Of ten settings one may be worse than none, of five none may."""
    one_worse = [1.3] * 9 + [0.98]
    assert judge_figure(measured([one_worse] * 5), Band(3, 3, 0.1)).agreement is DIRECTION
    assert judge_figure(measured([one_worse[5:]] * 5), Band(3, 3, 0.1)).agreement is DIFFERS


def test_a_system_that_is_worse_fails() -> None:
    worse = measured([[0.8, 0.7]] * 5)
    assert judge_range(worse, Band(1.1, 1.3, 0.1)).agreement is DIFFERS
    assert judge_figure(worse, Band(1.2, 1.2, 0.1)).agreement is DIFFERS


def test_a_reduction_is_averaged_as_the_ratio_that_it_is() -> None:
    """Seeds that keep 1/2 and 1/8 keep 1/4 on average."""
    found = measured([[2.0], [8.0]], quantity="reduction").mean()
    assert found.value == pytest.approx(0.75)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.75 < found.high < 1.0


def test_figures_within_a_range() -> None:
    values = Measured(
        label="",
        quantity="value",
        settings=[{}, {}],
        system=np.array([[11.4, 46.0]] * 5),
        baseline=np.array([[11.4, 46.0]] * 5),
    )
    assert judge_within(values, Band(11, 47, 1)).agreement is AGREES
    assert judge_within(values, Band(12, 47, 1)).agreement is AGREES  # 5% off
    assert judge_within(values, Band(12, 47, 1), tolerance=0.0).agreement is DIFFERS


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
    assert (found.agreement, found.ours) == (DIFFERS, "-0.33 [-1.00, 1.00]")
    assert "not falling for certain" in found.note


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


def test_a_paper_that_has_it_worse_has_a_direction_too() -> None:
    """Known lengths take 0.9 of the time; ours take 0.97, or 1.00."""
    band = Band(0.9, 0.9, 0.1)
    assert judge_figure(measured([[0.97]] * 5), Band(0.8, 0.8, 0.0)).agreement is DIRECTION
    assert judge_figure(measured([[1.2]] * 5), band).agreement is DIFFERS
    assert judge_figure(measured([[1.0]] * 5), band).agreement is DIFFERS


def test_a_range_from_no_change_needs_an_effect_at_its_other_end() -> None:
    """1.0 to 1.6, where ours cannot be told from no change anywhere."""
    noisy = measured([[0.7, 0.8], [1.5, 1.9], [0.9, 1.0], [1.3, 1.8], [0.8, 1.1]])
    assert judge_range(noisy, Band(1.0, 1.6, 0.1)).agreement is DIFFERS


def test_better_throughout_is_not_no_effect() -> None:
    least = partial(judge_bound, take="smallest", side="at_least", at={})
    bound = Band(1.0, 1.0, 0.01)
    assert least([measured([[1.0, 1.0]] * 5)], bound).agreement is DIFFERS
    assert least([measured([[1.0, 1.3]] * 5)], bound).agreement is AGREES
    assert least([measured([[0.97, 1.3]] * 5)], bound).agreement is DIFFERS


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
    assert wide.agreement is DIFFERS
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
    assert bound(Band(1.6, 1.6, 0.01), take="mean").agreement is DIFFERS
    assert bound(Band(1.4, 1.4, 0.01), take="smallest").agreement is DIFFERS
    most = partial(judge_bound, [of_two(of_averages=True)], take="mean", side="at_most", at={})
    assert most(Band(1.6, 1.6, 0.01)).agreement is DIFFERS
    assert most(Band(1.9, 1.9, 0.01)).agreement is AGREES
