"""Every verdict from made-up runs, and what keeps a claim from one."""

from dataclasses import replace
from typing import Any

import pytest

from harness.claims.judge import judge, verdict_of
from harness.claims.verdicts import Verdict
from harness.tests.support.claims import LIMIT, REQUESTS, check, claim, even, falling, runs


def test_range_reproduced() -> None:
    outcome = judge(check(), runs(even(falling)))
    assert outcome.verdict == Verdict.REPRODUCED
    assert outcome.ours == "1.10 [1.10, 1.10] to 2.40 [2.40, 2.40]"
    assert (outcome.seeds, outcome.basis) == (3, "gpu (fit error 5.0%)")


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({300: 1.06}, Verdict.REPRODUCED),  # printed 1.1
        ({300: 1.04}, Verdict.DIRECTION),  # printed 1.0: outside
        ({100: 2.0}, Verdict.DIRECTION),  # inside, but its largest is 17% short of 2.4
        ({100: 2.1}, Verdict.REPRODUCED),  # inside, 12.5% short
        ({100: 2.5}, Verdict.DIRECTION),  # outside, though within 15%
    ],
)
def test_range_is_strict_about_both_ends(changed: dict[int, float], verdict: Verdict) -> None:
    speedups = {100: 2.4, 200: 1.6, 300: 1.1} | changed
    assert judge(check(), runs(even(lambda count, _: speedups[count]))).verdict == verdict


def test_an_uncertain_setting_may_touch_the_range() -> None:
    """2.6 on average at 100 requests, but 2.4 lies in the interval over seeds."""
    spread = (2.3, 2.6, 2.9)

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        if name != "old":
            return 10.0
        return 10 * (spread[seed] if count == 100 else {200: 1.6, 300: 1.1}[count])

    assert judge(check(), runs(seconds)).verdict == Verdict.REPRODUCED


def test_direction_needs_nine_settings_of_ten() -> None:
    slower = runs(even(lambda count, limit: 0.98 if (count, limit) == (300, 16) else 3.0))
    assert judge(check(), slower).verdict == Verdict.NOT_REPRODUCED
    hardly = runs(even(lambda count, limit: 0.996 if (count, limit) == (300, 16) else 3.0))
    assert judge(check(), hardly).verdict == Verdict.DIRECTION


def test_direction_needs_the_whole_interval_of_the_mean() -> None:
    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return 10.0 * ((0.6, 1.0, 1.5)[seed] if name == "old" else 1.0)

    outcome = judge(check(), runs(seconds))
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert outcome.note.startswith("mean over settings 1.03 [0.60, 1.50]")


def test_gain_and_reduction_have_their_own_zero() -> None:
    half = runs(even(lambda *_: 0.5))  # old takes half as long: new / old = 2
    assert judge(check(quantity="gain", paper=[2.0, 2.0]), half).verdict == Verdict.REPRODUCED
    saved = runs(even(lambda *_: 2.0))  # (old - new) / old = 0.5
    reduction = check(quantity="reduction", paper=0.5)
    assert judge(reduction, saved).verdict == Verdict.REPRODUCED
    assert judge(check(quantity="reduction", paper=0.9), saved).verdict == Verdict.DIRECTION
    assert judge(reduction, runs(even(lambda *_: 0.9))).verdict == Verdict.NOT_REPRODUCED


def test_within_takes_the_printed_digits() -> None:
    within = check(
        rule="within", quantity="value", baselines=(), columns=["least_s", "most_s"], step=1
    )
    rows = runs(even(falling))
    for paper, verdict in (
        ([11, 47], Verdict.REPRODUCED),
        ([10, 47], Verdict.REPRODUCED),
        ([12, 47], Verdict.NOT_REPRODUCED),
        ([11, 46], Verdict.NOT_REPRODUCED),
    ):
        outcome = judge(replace(within, paper=paper), rows)
        assert outcome.verdict == verdict, paper
    assert outcome.ours.startswith("10.60 [10.60, 10.60] to 47.40")


BOUND: dict[str, Any] = {"rule": "bound", "take": "largest", "side": "at_most", "paper": 2.5}


@pytest.mark.parametrize(
    ("largest", "where", "verdict"),
    [
        (2.5, (100, 8), Verdict.REPRODUCED),
        (2.54, (100, 8), Verdict.REPRODUCED),  # printed 2.5
        (2.56, (100, 8), Verdict.NOT_REPRODUCED),
        (2.5, (300, 8), Verdict.DIRECTION),
        (2.5, (100, 16), Verdict.DIRECTION),
    ],
)
def test_bound(largest: float, where: tuple[int, int], verdict: Verdict) -> None:
    rows = runs(even(lambda count, limit: largest if (count, limit) == where else 1.2))
    outcome = judge(check(**BOUND, at={REQUESTS: 100, LIMIT: 8}), rows)
    assert outcome.verdict == verdict
    assert outcome.note == (
        f"largest at requests {where[0]}, max_output_tokens {where[1]} over old"
    )


def test_bound_looks_at_every_baseline_and_either_side() -> None:
    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return {"new": 10.0, "old": 20.0, "older": 30.0}[name]

    baselines = [{"config.system.name": name} for name in ("old", "older")]
    outcome = judge(check(**BOUND, baselines=baselines), runs(seconds))
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert "over older" in outcome.note
    least = BOUND | {"take": "smallest", "side": "at_least"}
    assert judge(check(**least, baselines=baselines), runs(seconds)).ours.startswith("2.00")
    kept = check(**(least | {"paper": 2.0}), baselines=baselines)
    assert judge(kept, runs(seconds)).verdict == Verdict.REPRODUCED
    broken = check(**(least | {"paper": 2.1}), baselines=baselines)
    assert judge(broken, runs(seconds)).verdict == Verdict.NOT_REPRODUCED


TREND: dict[str, Any] = {"rule": "trend", "against": REQUESTS, "expect": "falling", "paper": None}


def test_trend() -> None:
    rows = runs(even(falling))
    outcome = judge(check(**TREND), rows)
    assert outcome.verdict == Verdict.REPRODUCED
    assert outcome.ours.startswith("-1.00 [-1.00, -1.00]")
    rising = check(**(TREND | {"expect": "rising"}))
    assert judge(rising, rows).verdict == Verdict.NOT_REPRODUCED
    flat = runs(even(lambda *_: 1.5))
    assert judge(check(**TREND), flat).verdict == Verdict.NOT_REPRODUCED


def test_trend_of_one_curve_of_four_that_is_not_sure() -> None:
    """Two of three seeds fall, one rises: the mean falls, its interval reaches above 0."""

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        if name == "new":
            return 10.0
        if (name, limit) == ("older", 16) and seed == 2:
            return 10.0 + count / 100
        return 20.0 - count / 50

    baselines = [{"config.system.name": name} for name in ("old", "older")]
    outcome = judge(check(**TREND, baselines=baselines), runs(seconds))
    assert outcome.verdict == Verdict.DIRECTION
    assert outcome.note == (
        "rank correlation; not falling for certain: older, max_output_tokens 16"
    )


def test_one_seed_cannot_reproduce() -> None:
    outcome = judge(check(), runs(even(falling), seeds=1))
    assert outcome.verdict == Verdict.DIRECTION
    assert outcome.ours == "1.10 (1 seed) to 2.40 (1 seed)"
    assert outcome.note == "one seed cannot reproduce"


def test_unfinished_requests_cannot_reproduce() -> None:
    rows = runs(even(falling))
    rows.loc[rows["config.system.name"] == "older", "unfinished"] = 5  # takes no part
    assert judge(check(), rows).verdict == Verdict.REPRODUCED
    rows.loc[0, "unfinished"] = 7
    outcome = judge(check(), rows)
    assert outcome.verdict == Verdict.DIRECTION
    assert outcome.note == "7 requests unfinished"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"paper": 1.6}, Verdict.REPRODUCED),  # the mean of 2.3, 1.6 and 1.1 is 1.7
        ({"paper": 1.4, "tolerance": 0.15}, Verdict.DIRECTION),  # 1.45 x 1.15 is 1.67
        ({"paper": 1.4, "tolerance": 0.3}, Verdict.REPRODUCED),
    ],
)
def test_mean_is_held_against_one_figure(changes: dict[str, Any], verdict: Verdict) -> None:
    outcome = judge(check(**({"rule": "mean"} | changes)), runs(even(falling)))
    assert outcome.verdict == verdict
    assert outcome.note == "over settings 1.10 [1.10, 1.10] to 2.40 [2.40, 2.40]"


def test_a_mean_that_is_no_better_is_not_reproduced() -> None:
    outcome = judge(check(rule="mean", paper=1.6), runs(even(lambda *_: 0.9)))
    assert outcome.verdict == Verdict.NOT_REPRODUCED


def test_mean_is_a_rule_of_checks() -> None:
    """Speedups of 2.4 or 2.3, 1.6 and 1.1, equally often: 1.68 on average."""
    mean = check(rule="mean", paper=1.7, tolerance=0.0)
    outcome = judge(mean, runs(even(falling)))
    assert (outcome.verdict, outcome.ours) == (Verdict.REPRODUCED, "1.68 [1.68, 1.68]")
    assert judge(replace(mean, paper=1.9), runs(even(falling))).verdict == Verdict.DIRECTION
    assert judge(replace(mean, paper=1.9, tolerance=0.1), runs(even(falling))).verdict == (
        Verdict.REPRODUCED
    )


def test_a_claim_of_two_parts_is_as_good_as_the_worse() -> None:
    parts = {key: getattr(check(), key) for key in ("rule", "columns", "quantity", "system")}
    parts |= {key: getattr(check(), key) for key in ("baselines", "settings", "step", "tolerance")}
    whole = parts | {"scenario": "toy"}
    both = claim(check=[whole, whole | {"paper": [1.1, 9.0]}], where="", metric="", note="mind")
    row = verdict_of(both, lambda scenario: runs(even(falling)))
    assert row["verdict"] == "direction only"
    assert row["ours"].count("to 2.40") == 2
    assert row["note"].endswith("; mind")
