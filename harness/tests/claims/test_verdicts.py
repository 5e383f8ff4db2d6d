"""How far figures agree with what a paper prints."""

import numpy as np
import pytest

from harness.claims.findings import Agreement
from harness.claims.quantities import Measured
from harness.claims.verdicts import (
    TOLERANCE,
    Band,
    agreement_of,
    judge_figure,
    judge_range,
    judge_within,
)
from harness.runs.stats import Estimate
from harness.tests.support.claims import measured

AGREES, DIRECTION, DIFFERS = Agreement.AGREES, Agreement.DIRECTION, Agreement.DIFFERS
UNTOLD = Agreement.UNTOLD


def sure(value: float) -> Estimate:
    return Estimate(value, value, value, 5)


def agrees(
    found: Estimate, band: Band, *, alike: float = np.nan, tolerance: float = TOLERANCE
) -> bool:
    return agreement_of(found, band, alike=alike, tolerance=tolerance) is AGREES


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
    """And be no wider than the effect: [0.9, 3.5] touches 2.4, and 1.0 as well."""
    found = Estimate(2.0, 1.6, 2.5, 5)
    assert agreement_of(found, Band(2.4, 2.4, 0.0), alike=1.0) is AGREES
    assert agreement_of(found, Band(2.6, 2.6, 0.0), alike=1.0) is DIFFERS
    wide = Estimate(2.0, 0.9, 3.5, 5)
    assert agreement_of(wide, Band(2.4, 2.4, 0.0), alike=1.0) is UNTOLD
    assert agreement_of(found, Band(2.4, 2.4, 0.0), alike=1.0, tolerance=0.0) is UNTOLD


def test_no_end_of_a_range_is_met_by_noise() -> None:
    """Three settings are sure, one is anywhere from 1.4 to 5: it may be the 2.4 and may be not."""
    band = Band(1.1, 2.4, 0.1)
    assert judge_range(measured([[1.1, 2.3]] * 5), band).agreement is AGREES
    found = judge_range(
        measured([[1.1, 1.2], [1.1, 4.5], [1.1, 1.4], [1.1, 4.9], [1.1, 2.4]]), band
    )
    assert found.agreement is UNTOLD
    assert found.note.endswith("too noisy to tell")


def test_an_end_at_no_change_has_the_far_ends_tolerance() -> None:
    """0.15 of 0.6, so that 1.08 is there however sure; of no effect it would be nothing."""
    band = Band(1.0, 1.6, 0.1)
    assert judge_range(measured([[1.08, 1.6]] * 5), band).agreement is AGREES
    assert judge_range(measured([[1.15, 1.6]] * 5), band).agreement is DIRECTION
    assert judge_range(measured([[0.9, 1.6]] * 5), band).agreement is DIFFERS


def test_a_range_at_one_setting_is_anywhere_in_it() -> None:
    band = Band(1.1, 2.4, 0.1)
    assert judge_range(measured([[1.7]] * 5), band).agreement is AGREES
    assert judge_range(measured([[2.8]] * 5), band).agreement is DIRECTION


def test_the_figure_is_the_mean_over_settings() -> None:
    """Speedups of 1 to 3, of which none but their mean is 2."""
    found = judge_figure(measured([[1.0, 3.0]] * 5), Band(2.0, 2.0, 0.1), tolerance=0.0)
    assert (found.agreement, found.ours) == (AGREES, "2.00 [2.00, 2.00]")
    assert found.note == "over settings 1.00 [1.00, 1.00] to 3.00 [3.00, 3.00]"


def test_noise_alone_is_no_agreement() -> None:
    """1.3 [0.8, 2.1] touches 1.5, and nothing at all just as well."""
    noisy = measured([[0.8], [1.9], [1.0], [2.1], [1.1]])
    found = judge_figure(noisy, Band(1.5, 1.5, 0.1))
    assert (found.agreement, found.note) == (UNTOLD, "too noisy to tell")
    assert judge_figure(noisy, Band(9.0, 9.0, 0.1)).agreement is DIFFERS


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


def test_a_paper_that_has_it_worse_has_a_direction_too() -> None:
    """Known lengths take 0.9 of the time; ours take 0.97, or 1.00."""
    band = Band(0.9, 0.9, 0.1)
    assert judge_figure(measured([[0.97]] * 5), Band(0.8, 0.8, 0.0)).agreement is DIRECTION
    assert judge_figure(measured([[1.2]] * 5), band).agreement is DIFFERS
    assert judge_figure(measured([[1.0]] * 5), band).agreement is DIFFERS


def test_a_range_from_no_change_needs_an_effect_at_its_other_end() -> None:
    """1.0 to 1.6, where ours cannot be told from no change anywhere."""
    noisy = measured([[0.7, 0.8], [1.5, 1.9], [0.9, 1.0], [1.3, 1.8], [0.8, 1.1]])
    assert judge_range(noisy, Band(1.0, 1.6, 0.1)).agreement is UNTOLD
    assert judge_range(measured([[1.0, 1.0]] * 5), Band(1.0, 1.1, 0.2)).agreement is DIFFERS
