"""Every rule of the verdicts by hand.

Samples lie around a value with a given half width of the 95% interval. Five seeds at -1, -1, 0, 1
and 1 deviations have the standard deviation 1 and the half width t(0.975, 4) / sqrt(5) = 1.24166.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from harness.claims.effects import ClaimError, EffectKind
from harness.claims.verdicts import (
    Printed,
    Verdict,
    Word,
    agrees,
    below_ceiling,
    is_kept,
    measured,
    verdict_of,
    wilson,
    with_variations,
)
from harness.runs.stats import Floats
from harness.tests.support.claims import effect_of

HOLDS, PARTLY, FAILS, UNTESTED = Word.HOLDS, Word.PARTLY, Word.FAILS, Word.UNTESTED
NAN = float("nan")


def around(value: float, half: float = 0.0) -> Floats:
    """Five values with this mean and half width."""
    return value + half / 1.24166 * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])


def ratios(low: float, high: float) -> Floats:
    """Five ratios whose interval has these ends."""
    logs = np.log([low, high])
    return np.exp(around(logs.mean(), (logs[1] - logs[0]) / 2))


def judged(kind: EffectKind, samples: Floats | Mapping[int, Floats], paper: Printed) -> Verdict:
    if isinstance(samples, Mapping):
        return verdict_of(effect_of(kind, {str(k): list(v) for k, v in samples.items()}), paper)
    return verdict_of(effect_of(kind, list(samples)), paper)


# Ratios and reductions: share = (ours - no effect) / (paper - no effect)


@pytest.mark.parametrize(
    ("interval", "paper", "word", "reason"),
    [
        ((1.9, 2.1), 2.0, HOLDS, ""),
        ((1.68, 1.72), 2.0, HOLDS, ""),  # share 0.70
        ((2.44, 2.54), 2.0, HOLDS, ""),  # 1.49
        ((1.62, 1.66), 2.0, PARTLY, "0.64 of the claimed effect"),
        ((2.50, 2.60), 2.0, PARTLY, "1.55 of the claimed effect"),
        ((1.1, 1.4), 2.0, PARTLY, "0.24 of the claimed effect"),  # 0.1 to 0.4: not below 1/4
        ((1.05, 1.24), 2.0, FAILS, "0.14 of the claimed effect"),  # beyond noise, and lost
        ((0.9, 1.2), 2.0, FAILS, "0.04 of the claimed effect"),
        ((0.8, 0.9), 2.0, FAILS, "reversed"),
        ((0.9, 1.6), 2.0, UNTESTED, "too noisy: about"),
        # below 1: 0.5 halves
        ((0.45, 0.55), 0.5, HOLDS, ""),
        ((0.68, 0.72), 0.5, PARTLY, "0.60 of the claimed effect"),
        ((0.20, 0.22), 0.5, PARTLY, "1.58 of the claimed effect"),
        ((0.90, 0.95), 0.5, FAILS, "0.15 of the claimed effect"),
        ((1.1, 1.2), 0.5, FAILS, "reversed"),
        ((0.6, 1.1), 0.5, UNTESTED, "too noisy: about"),
    ],
)
def test_a_ratio(interval: tuple[float, float], paper: float, word: Word, reason: str) -> None:
    found = judged(EffectKind.RATIO, ratios(*interval), paper)
    assert (found.low, found.high) == pytest.approx(interval, rel=1e-4)
    shares = sorted((end - 1) / (paper - 1) for end in interval)
    assert (found.share_low, found.share_high) == pytest.approx(shares, rel=1e-3)
    assert (found.word, found.seeds) == (word, 5)
    assert found.reason.startswith(reason) if reason else not found.reason
    assert found.is_noisy is (word is UNTESTED)


@pytest.mark.parametrize(
    ("interval", "word", "reason"),
    [
        ((0.6, 0.65), HOLDS, ""),  # 37.5% saved of the 34.5% that are printed
        ((0.79, 0.81), PARTLY, "0.58 of the claimed effect"),
        ((0.40, 0.42), PARTLY, "1.71 of the claimed effect"),
        ((0.93, 0.99), FAILS, "0.12 of the claimed effect"),
        ((1.02, 1.20), FAILS, "reversed"),
        ((0.70, 1.05), UNTESTED, "too noisy: about"),
    ],
)
def test_a_reduction(interval: tuple[float, float], word: Word, reason: str) -> None:
    found = judged(EffectKind.REDUCTION, ratios(*interval), 0.345)
    saved = (1 - interval[1], 1 - interval[0])
    assert (found.low, found.high) == pytest.approx(saved, abs=1e-3)
    assert found.low < found.ours < found.high
    assert (found.share_low, found.share_high) == pytest.approx(
        (saved[0] / 0.345, saved[1] / 0.345), abs=1e-3
    )
    assert found.word is word
    assert found.reason.startswith(reason) if reason else not found.reason


def test_an_average_over_settings_is_one_sample_per_seed() -> None:
    found = judged(EffectKind.RATIO, {1: np.array([1.0, 2.0]), 2: np.array([3.0, 2.0])}, 2.0)
    assert (found.word, found.ours, found.low, found.high) == (HOLDS, 2.0, 2.0, 2.0)


def seeds_said(found: Verdict) -> int:
    assert found.word is UNTESTED
    return int(found.reason.removeprefix("too noisy: about ").split()[0])


@pytest.mark.parametrize(("distance", "half"), [(0.3, 0.4), (0.3, 0.6), (0.26, 1.0)])
def test_noise_says_how_many_seeds_would_tell(distance: float, half: float) -> None:
    """The half width shrinks with the root of seeds: n (h / d)^2 bring it to the distance."""
    found = judged(EffectKind.TREND, around(distance, half), NAN)
    assert seeds_said(found) == pytest.approx(5 * (half / distance) ** 2, abs=1)
    # 15% saved of 30%: 0.15 is farther from 0 than 0.075, which is lost, and nearly symmetric
    saved = 1 - np.exp(around(np.log(0.85), 0.2))
    found = judged(EffectKind.REDUCTION, 1 - saved, 0.3)
    low = 1 - 0.85 * np.exp(0.2)
    assert seeds_said(found) == pytest.approx(5 * ((0.15 - low) / 0.15) ** 2, abs=1)


def test_no_effect_tells_by_being_lost() -> None:
    """Nothing is as far from a quarter of the effect (0.25) as its interval must be narrow."""
    found = judged(EffectKind.RATIO, ratios(1 / 1.6, 1.6), 2.0)
    assert seeds_said(found) == pytest.approx(5 * (0.6 / 0.25) ** 2, abs=1)


def test_noise_that_seeds_cannot_cure() -> None:
    assert judged(EffectKind.TREND, around(0.001, 0.5), NAN).reason == (
        "too noisy: more than 1000 seeds would be needed"
    )
    assert judged(EffectKind.TREND, around(0.0, 0.0), NAN).reason == "too noisy with 5 seeds"


# Ranges


@pytest.mark.parametrize(
    ("settings", "paper", "word", "reason"),
    [
        ([(1.05, 1.15), (2.0, 2.2)], (1.1, 2.4), HOLDS, ""),  # far end: 1.1 of 1.4
        ([(1.05, 1.15), (1.7, 1.8)], (1.1, 2.4), PARTLY, "0.54 of the claimed effect"),
        ([(1.05, 1.15), (3.2, 3.4)], (1.1, 2.4), PARTLY, "1.64 of the claimed effect"),
        ([(1.05, 1.15), (1.2, 1.3)], (1.1, 2.4), FAILS, "0.18 of the claimed effect"),
        ([(0.7, 0.8), (0.8, 0.9)], (1.1, 2.4), FAILS, "reversed"),
        ([(0.3, 0.4), (2.0, 2.2)], (1.1, 2.4), FAILS, "reversed"),  # on average
        ([(0.8, 0.9), (2.0, 2.2)], (1.1, 2.4), PARTLY, "reversed at 1 of 2 settings"),
        ([(0.8, 1.1), (2.0, 2.2)], (1.1, 2.4), HOLDS, ""),  # not beyond noise
        ([(1 - 2e-16, 1 - 1e-16), (2.0, 2.2)], (1.1, 2.4), HOLDS, ""),  # the same runs
        ([(0.8, 0.9), (2.0, 2.2)], (0.9, 2.4), HOLDS, ""),  # printed, too
        ([(0.8, 0.9), (2.0, 2.2)], (1.0, 2.4), PARTLY, "reversed at 1 of 2 settings"),
        (
            [(0.8, 0.9), (1.7, 1.8)],
            (1.1, 2.4),
            PARTLY,
            "0.54 of the claimed effect; reversed at 1 of 2 settings",
        ),
        ([(0.5, 1.4), (0.8, 2.2)], (1.1, 2.4), UNTESTED, "too noisy: about"),
        # far end below 1
        ([(0.88, 0.90), (0.99, 1.01)], (0.9, 1.0), HOLDS, ""),
        ([(0.88, 0.90), (1.05, 1.06)], (0.9, 1.0), PARTLY, "reversed at 1 of 2 settings"),
        ([(0.80, 0.82), (0.99, 1.01)], (0.9, 1.0), PARTLY, "1.90 of the claimed effect"),
        ([(1.01, 1.05), (1.10, 1.12)], (0.9, 1.0), FAILS, "reversed"),
        ([(0.45, 0.55), (1.1, 1.2)], (0.4, 0.8), PARTLY, "reversed at 1 of 2 settings"),
    ],
)
def test_a_range(
    settings: list[tuple[float, float]], paper: tuple[float, float], word: Word, reason: str
) -> None:
    found = judged(EffectKind.RANGE, {n: ratios(*ends) for n, ends in enumerate(settings)}, paper)
    middles = [float(np.sqrt(low * high)) for low, high in settings]
    assert found.span == pytest.approx((min(middles), max(middles)))
    assert found.ours == pytest.approx(np.sqrt(middles[0] * middles[1]))
    assert found.low < found.ours < found.high
    assert found.word is word
    assert found.reason.startswith(reason) if reason else not found.reason


def test_the_share_of_a_range_is_that_of_its_far_end() -> None:
    found = judged(EffectKind.RANGE, {1: ratios(1.05, 1.15), 2: ratios(2.0, 2.2)}, (1.1, 2.4))
    assert (found.share_low, found.share_high) == pytest.approx((1.0 / 1.4, 1.2 / 1.4), abs=1e-3)


# Values, bounds, what makes no difference, trends


@pytest.mark.parametrize(
    ("value", "half", "word", "reason"),
    [
        (92.0, 1.0, HOLDS, ""),
        (62.0, 15.9, HOLDS, ""),  # 0.67, not below 1/2
        (62.0, 30.0, UNTESTED, "too noisy: about 18 seeds would tell"),  # 16 from 46
        (137.0, 1.0, HOLDS, ""),  # 1.49
        (50.0, 5.0, FAILS, "0.54 of the printed value"),
        (150.0, 5.0, FAILS, "1.63 of the printed value"),
        (50.0, 20.0, UNTESTED, "too noisy: about 16 seeds would tell"),  # 11.33 from 61.33
        (150.0, 20.0, UNTESTED, "too noisy: about 14 seeds would tell"),  # 12 from 138
    ],
)
def test_a_value(value: float, half: float, word: Word, reason: str) -> None:
    found = judged(EffectKind.ABSOLUTE, around(value, half), 92.0)
    assert (found.word, found.reason) == (word, reason)
    assert (found.ours, found.share) == pytest.approx((value, value / 92))


@pytest.mark.parametrize(
    ("value", "half", "word", "reason"),
    [
        (30.0, 1.0, HOLDS, ""),
        (40.0, 2.0, HOLDS, ""),  # 42 is within 1.1 times 38.7, 42.57
        (42.0, 2.0, PARTLY, "1.09 of the bound"),  # above the bound beyond noise
        (50.0, 10.0, PARTLY, "1.29 of the bound"),
        (62.0, 2.0, FAILS, "1.60 of the bound"),
        (62.0, 8.0, PARTLY, "1.60 of the bound"),
        (30.0, 20.0, UNTESTED, "too noisy: about 13 seeds would tell"),  # 12.57 from 42.57
        (50.0, 30.0, UNTESTED, "too noisy: about 36 seeds would tell"),  # 11.3 from 38.7
    ],
)
def test_an_upper_bound(value: float, half: float, word: Word, reason: str) -> None:
    found = judged(EffectKind.AT_MOST, around(value, half), 38.7)
    assert (found.word, found.reason) == (word, reason)
    assert (found.low, found.high) == pytest.approx((value - half, value + half), abs=1e-3)


@pytest.mark.parametrize(
    ("value", "half", "word"),
    [
        (120.0, 5.0, HOLDS),
        (96.0, 5.0, HOLDS),  # 91 is within 100 / 1.1
        (85.0, 5.0, PARTLY),
        (60.0, 5.0, FAILS),  # beyond 100 / 1.5
        (100.0, 20.0, UNTESTED),
    ],
)
def test_a_lower_bound(value: float, half: float, word: Word) -> None:
    assert judged(EffectKind.AT_LEAST, around(value, half), 100.0).word is word


def test_a_bound_counts_at_its_worst_setting() -> None:
    settings = {1: around(20.0, 1.0), 2: around(36.0, 1.0)}
    found = judged(EffectKind.AT_MOST, settings, 38.7)
    assert found.word is HOLDS
    assert (found.ours, found.span) == (36.0, (20.0, 36.0))
    noisy = judged(EffectKind.AT_MOST, settings | {1: around(20.0, 40.0)}, 38.7)
    assert (noisy.word, noisy.ours) == (UNTESTED, 20.0)
    assert judged(EffectKind.AT_LEAST, settings, 30.0).ours == pytest.approx(20)
    assert judged(EffectKind.AT_LEAST, settings, 30.0).word is PARTLY


@pytest.mark.parametrize(
    ("interval", "word", "reason"),
    [
        ((0.91, 1.09), HOLDS, ""),
        ((1.05, 1.08), HOLDS, ""),
        ((1.12, 1.2), FAILS, "it differs by more than 10%"),
        ((0.7, 0.88), FAILS, "it differs by more than 10%"),
        ((1.04, 1.16), PARTLY, "it differs by 10%"),
        ((0.85, 1.10), UNTESTED, "too noisy: about"),
        ((0.5, 2.0), UNTESTED, "too noisy: about"),
    ],
)
def test_what_makes_no_difference(interval: tuple[float, float], word: Word, reason: str) -> None:
    found = judged(EffectKind.EQUAL, ratios(*interval), 1.0)
    assert found.word is word
    assert found.reason.startswith(reason) if reason else not found.reason
    # Every setting counts, not the first or the average.
    both = judged(EffectKind.EQUAL, {1: ratios(0.99, 1.01), 2: ratios(*interval)}, 1.0)
    assert (both.word, both.ours) == (word, found.ours)


@pytest.mark.parametrize(
    ("change", "word", "reason"),
    [
        (0.5, HOLDS, ""),
        (-0.5, FAILS, "reversed"),
        (0.2, UNTESTED, "too noisy: about 20 seeds would tell"),
        (-0.2, UNTESTED, "too noisy: about 20 seeds would tell"),
    ],
)
def test_a_trend(change: float, word: Word, reason: str) -> None:
    found = judged(EffectKind.TREND, around(change, 0.3999), NAN)
    assert (found.word, found.reason) == (word, reason)
    assert (found.ours, found.high) == pytest.approx(np.exp([change, change + 0.4]), rel=1e-4)


# Facts


@pytest.mark.parametrize(
    ("so", "low", "high", "word", "reason"),
    [
        (10, 0.7225, 1.0, HOLDS, ""),
        (9, 0.5958, 0.9821, HOLDS, ""),
        (8, 0.4902, 0.9433, UNTESTED, "too noisy: in 8 of 10 seeds, about 11 seeds would tell"),
        (5, 0.2366, 0.7634, UNTESTED, "too noisy: in 5 of 10 seeds, more would not tell"),
        (1, 0.0179, 0.4042, FAILS, "in 1 of 10 seeds"),
        (0, 0.0, 0.2775, FAILS, "in 0 of 10 seeds"),
    ],
)
def test_a_fact(so: int, low: float, high: float, word: Word, reason: str) -> None:
    """Wilson: 10 of 10 is 10 / (10 + 1.96^2) to 1."""
    assert wilson(so, 10) == pytest.approx((low, high), abs=1e-4)
    found = judged(EffectKind.FACT, np.array([1.0] * so + [0.0] * (10 - so)), NAN)
    assert (found.ours, found.low, found.high) == pytest.approx((so / 10, low, high), abs=1e-4)
    assert (found.word, found.reason) == (word, reason)


# One seed, no number, variations


@pytest.mark.parametrize(
    ("kind", "sample", "paper"),
    [
        (EffectKind.RATIO, 2.0, 2.0),
        (EffectKind.RATIO, 0.5, 0.5),
        (EffectKind.RATIO, 0.5, 2.0),
        (EffectKind.REDUCTION, 0.655, 0.345),
        (EffectKind.RANGE, 2.4, (1.1, 2.4)),
        (EffectKind.RANGE, 0.9, (0.9, 1.0)),
        (EffectKind.ABSOLUTE, 200.0, 92.0),
        (EffectKind.AT_MOST, 1.0, 38.7),
        (EffectKind.AT_LEAST, 1.0, 38.7),
        (EffectKind.EQUAL, 1.0, 1.0),
        (EffectKind.TREND, 1.0, NAN),
        (EffectKind.FACT, 1.0, NAN),
    ],
)
def test_one_seed_has_no_interval_and_does_not_tell(
    kind: EffectKind, sample: float, paper: Printed
) -> None:
    found = judged(kind, np.array([sample]), paper)
    assert (found.word, found.is_noisy, found.seeds) == (UNTESTED, True, 1)
    if kind is not EffectKind.FACT:
        assert found.reason == "too noisy with 1 seed"


@pytest.mark.parametrize(
    ("kind", "paper", "sentence"),
    [
        (EffectKind.RATIO, 1.0, "the printed number of a claim of kind ratio cannot be 1"),
        (EffectKind.REDUCTION, 0.0, "kind reduction cannot be 0"),
        (EffectKind.RANGE, (1.0, 1.0), "kind range cannot be 1"),
        (EffectKind.ABSOLUTE, NAN, "kind absolute cannot be nan"),
        (EffectKind.AT_MOST, NAN, "kind at most cannot be nan"),
    ],
)
def test_a_size_needs_a_printed_number(kind: EffectKind, paper: Printed, sentence: str) -> None:
    with pytest.raises(ClaimError, match=sentence):
        judged(kind, around(2.0), paper)


def difference(value: float, half: float, printed: float) -> Verdict:
    return verdict_of(
        replace(effect_of(EffectKind.DIFFERENCE, around(value, half)), printed=printed), 2.0
    )


@pytest.mark.parametrize(
    ("value", "half", "word", "reason"),
    [
        (0.30, 0.02, HOLDS, ""),  # 30 points of 64% - 32%
        (0.10, 0.02, PARTLY, "0.31 of the claimed effect"),
        (0.01, 0.02, FAILS, "0.03 of the claimed effect"),
        (-0.03, 0.02, FAILS, "reversed"),
        (0.10, 0.1999, UNTESTED, "too noisy: about 20 seeds would tell"),  # 0.1 from 0
    ],
)
def test_shares_near_0_are_compared_in_points(
    value: float, half: float, word: Word, reason: str
) -> None:
    found = difference(value, half, 0.32)
    assert (found.word, found.reason, found.kind) == (word, reason, EffectKind.DIFFERENCE)
    assert (found.share, found.low) == pytest.approx((value / 0.32, value - half), abs=1e-5)


def test_shares_near_0_need_printed_shares() -> None:
    found = difference(0.3, 0.02, NAN)
    assert (found.word, found.is_noisy) == (UNTESTED, False)
    assert found.ours == pytest.approx(0.3)
    assert found.reason == "one side is below 5%: the paper prints no shares"


@pytest.mark.parametrize(
    ("kind", "interval", "paper", "ceiling", "word"),
    [
        (EffectKind.REDUCTION, (0.79, 0.81), 0.345, 0.30, FAILS),  # partly: 20% saved of 34.5%
        (
            EffectKind.REDUCTION,
            (0.79, 0.81),
            0.345,
            0.36,
            PARTLY,
        ),  # the printed number can be reached
        (EffectKind.REDUCTION, (0.6, 0.65), 0.345, 0.30, HOLDS),
        (EffectKind.REDUCTION, (0.70, 1.05), 0.345, 0.30, FAILS),  # too noisy
        (EffectKind.RATIO, (0.68, 0.72), 0.5, 0.55, FAILS),  # no scheduler comes below
        (EffectKind.RATIO, (0.68, 0.72), 0.5, 0.45, PARTLY),
    ],
)
def test_what_is_printed_beyond_the_ceiling_fails(
    kind: EffectKind, interval: tuple[float, float], paper: float, ceiling: float, word: Word
) -> None:
    most = measured(effect_of(EffectKind.ABSOLUTE, around(ceiling, 0.01)))
    found = below_ceiling(judged(kind, ratios(*interval), paper), most, paper, "X")
    assert found.word is word
    assert (found.reason == "beyond the ceiling of X") is (word is FAILS)


def test_a_ceiling_alone_does_not_lose_an_effect() -> None:
    most = measured(effect_of(EffectKind.ABSOLUTE, around(1.8, 0.01)))
    partly, turned = (
        below_ceiling(judged(EffectKind.RATIO, ratios(*ends), 2.0), most, 2.0, "1.80x")
        for ends in ((1.5, 1.6), (0.8, 0.9))
    )
    assert [one.reason for one in (partly, turned)] == [
        "beyond the ceiling of 1.80x",
        "reversed; beyond the ceiling of 1.80x",
    ]
    holds = judged(EffectKind.RATIO, ratios(1.9, 2.1), 2.0)
    assert with_variations(holds, {"a": partly}) == holds
    assert with_variations(holds, {"b": turned}).word is PARTLY


@pytest.mark.parametrize(
    ("kind", "values", "printed", "ours", "kept"),
    [
        (EffectKind.ABSOLUTE, {1: 100.0, 2: 140.0}, 100.0, 120.0, True),  # within 25%
        (EffectKind.ABSOLUTE, {1: 130.0, 2: 130.0}, 100.0, 130.0, False),
        (EffectKind.AT_MOST, {1: 2.0, 2: 2.9}, 3.0, 2.9, True),
        (EffectKind.AT_MOST, {1: 2.0, 2: 3.1}, 3.0, 3.1, False),
        (EffectKind.AT_LEAST, {1: 0.95, 2: 0.91}, 0.9, 0.91, True),
        (EffectKind.AT_LEAST, {1: 0.95, 2: 0.89}, 0.9, 0.89, False),
        (EffectKind.ABSOLUTE, {1: 1.0}, NAN, 1.0, None),
    ],
)
def test_a_fact_is_kept_within_a_quarter_or_its_bound(
    kind: EffectKind, values: Mapping[int, float], printed: float, ours: float, kept: bool | None
) -> None:
    samples = {str(setting): list(around(value, 0.1)) for setting, value in values.items()}
    found = measured(effect_of(kind, samples))
    assert (found.ours, found.high - found.low) == pytest.approx((ours, 0.2), abs=1e-4)
    assert is_kept(found, printed) is kept


def test_a_fact_that_is_a_ratio_has_a_geometric_mean() -> None:
    """4 and 1 have 2, which is printed; their mean would be 2.5."""
    found = measured(effect_of(EffectKind.RATIO, {"a": [4.0, 1.0]}))
    assert found.ours == pytest.approx(2.0)
    assert is_kept(found, 2.0)
    assert not is_kept(found, 3.0)


def test_a_variation_that_fails_makes_it_hold_partly() -> None:
    holds = judged(EffectKind.RATIO, ratios(1.9, 2.1), 2.0)
    partly = judged(EffectKind.RATIO, ratios(1.5, 1.6), 2.0)
    lost = judged(EffectKind.RATIO, ratios(1.05, 1.15), 2.0)
    turned = judged(EffectKind.RATIO, ratios(0.8, 0.9), 2.0)
    noisy = judged(EffectKind.RATIO, ratios(0.5, 2.0), 2.0)

    found = with_variations(holds, {"a": holds, "b": lost, "c": turned, "d": partly})
    assert (found.word, found.reason) == (PARTLY, "lost or reversed with b, c")
    assert found.ours == holds.ours
    kept = with_variations(holds, {"a": partly, "b": noisy})
    assert (kept.word, kept.reason) == (HOLDS, "")
    both = with_variations(partly, {"a": turned})
    assert both.reason == "0.55 of the claimed effect; lost or reversed with a"
    assert with_variations(turned, {"a": holds}) == turned
    assert with_variations(noisy, {"a": turned}) == noisy


def test_a_variation_agrees_where_both_fail_or_neither_does() -> None:
    holds, partly, fails, noisy = map(Verdict, (HOLDS, PARTLY, FAILS, UNTESTED))
    assert [agrees(partly, one) for one in (holds, partly, fails)] == [True, True, False]
    assert [agrees(fails, one) for one in (holds, partly, fails)] == [False, False, True]
    assert agrees(holds, noisy) is agrees(noisy, holds) is None
