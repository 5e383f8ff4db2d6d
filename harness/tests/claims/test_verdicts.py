"""The rule `mean`, from figures per seed and setting; other rules are in test_claims.py."""

import numpy as np
import pytest

from harness.claims.verdicts import Band, Measured, Outcome, Verdict, judge_mean

REDUCTION = "reduction"


def judged(
    baseline: list[list[float]],
    paper: float,
    *,
    quantity: str = REDUCTION,
    step: float = 0.1,
    tolerance: float = 0.1,
) -> Outcome:
    """Of a system that takes 1 s everywhere; `baseline` [seeds][settings] in s."""
    seconds = np.array(baseline)
    measured = Measured(
        label="",
        quantity=quantity,
        settings=[{"rate": place} for place in range(seconds.shape[1])],
        system=np.ones_like(seconds),
        baseline=seconds,
    )
    return judge_mean(measured, Band(paper, paper, step), tolerance=tolerance)


def test_the_mean_over_settings_is_what_counts() -> None:
    """Speedups of 1 to 3, of which none but their mean is 2."""
    outcome = judged([[1.0, 3.0], [1.0, 3.0]], 2.0, quantity="speedup", tolerance=0.0)
    assert outcome == Outcome(
        Verdict.REPRODUCED,
        "2.00 [2.00, 2.00]",
        "over settings 1.00 [1.00, 1.00] to 3.00 [3.00, 3.00]",
    )


@pytest.mark.parametrize(
    ("paper", "verdict"),
    [
        (0.5, Verdict.REPRODUCED),
        (0.55, Verdict.REPRODUCED),  # printed in steps of 0.1, what is 0.5 may be 0.55
        (0.6, Verdict.REPRODUCED),  # (0.6 - 0.05) less a tenth of it is 0.495
        (0.62, Verdict.DIRECTION),  # 0.513
        (0.41, Verdict.REPRODUCED),  # (0.41 + 0.05) and a tenth of it is 0.506
        (0.4, Verdict.DIRECTION),  # 0.495
    ],
)
def test_tolerance_is_added_to_what_the_step_leaves_open(paper: float, verdict: Verdict) -> None:
    """Half is saved, whatever the seed."""
    assert judged([[2.0, 2.0], [2.0, 2.0]], paper).verdict == verdict


def test_the_interval_need_only_touch_the_figure() -> None:
    """Speedups of 1.5, 2 and 2.5 over seeds: 2 [1.5, 2.5]."""
    seeds = [[1.5], [2.0], [2.5]]
    for paper, verdict in ((2.4, Verdict.REPRODUCED), (2.6, Verdict.DIRECTION)):
        outcome = judged(seeds, paper, quantity="speedup", step=0.01, tolerance=0.0)
        assert (outcome.verdict, outcome.ours) == (verdict, "2.00 [1.50, 2.50]")


def test_better_by_less_than_printed_is_the_direction() -> None:
    outcome = judged([[1.2], [1.2]], 0.9)
    assert outcome == Outcome(
        Verdict.DIRECTION, "0.17 [0.17, 0.17]", "over settings 0.17 [0.17, 0.17]"
    )


def test_worse_on_the_whole_is_not_reproduced() -> None:
    assert judged([[0.8], [0.8]], 0.5).verdict == Verdict.NOT_REPRODUCED


def test_better_for_some_seeds_only_is_not_reproduced() -> None:
    assert judged([[0.8], [1.8]], 0.9).verdict == Verdict.NOT_REPRODUCED


def test_better_in_most_settings_only_is_not_reproduced() -> None:
    """Of ten settings one may be worse than none, of five none may."""
    one_worse = [2.0] * 9 + [0.98]
    assert judged([one_worse, one_worse], 0.9).verdict == Verdict.DIRECTION
    assert judged([one_worse[5:], one_worse[5:]], 0.9).verdict == Verdict.NOT_REPRODUCED


def test_one_seed_is_judged_by_its_value() -> None:
    outcome = judged([[2.0, 4.0]], 0.625, step=0.001)
    assert (outcome.verdict, outcome.ours) == (Verdict.REPRODUCED, "0.62 (1 seed)")
    assert judged([[2.0, 4.0]], 0.8, step=0.001).verdict == Verdict.DIRECTION
