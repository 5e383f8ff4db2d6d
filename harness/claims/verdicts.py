"""Verdicts: one of four words for an effect beside what its paper prints. Pure.

Direction and size are judged apart, on one number:

    share = (ours - no effect) / (paper - no effect)

holds     the effect is beyond noise in the paper's direction, share is within 2/3 to 3/2, and no
          variation loses or reverses it beyond noise
partly    the direction is right beyond noise, but share is outside 2/3 to 3/2, or a variation
          loses or reverses the effect
fails     reversed beyond noise, or the interval of share lies below 1/4
untested  for a reason that is named

Beyond noise: the 95% interval over paired seeds excludes no effect. Intervals are Student's t, of
logarithms for ratios; Wilson's for shares of seeds. The rules of other kinds of claims are in
`results/pages/verdicts.md`, one function each below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, isfinite, isnan, nan, sqrt

import numpy as np

from harness.claims.effects import Effect, Kind
from harness.runs.stats import Estimate, geometric_mean_of, mean_of

NEAR = (2 / 3, 3 / 2)
"""Shares that are as large as claimed."""
LOST = 1 / 4
"""Share below which an effect is lost."""
BOUND_NEAR, BOUND_BEYOND = 1.1, 1.5
"""Of a bound: what still holds, and what fails."""
EQUAL_WITHIN = 0.1
"""Of a value that is claimed not to differ."""
MOST_SEEDS = 1000
"""Beyond so many, more seeds are no answer to noise."""

Printed = float | tuple[float, float]


class Word(StrEnum):
    """The four words."""

    HOLDS = "holds"
    PARTLY = "partly"
    FAILS = "fails"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word, the number it rests on with its interval, and the reason where it does not hold.

    `share` is NaN where nothing is compared by size; `span` has the smallest and the largest of
    several settings.
    """

    word: Word
    ours: float = nan
    low: float = nan
    high: float = nan
    share: float = nan
    share_low: float = nan
    share_high: float = nan
    span: tuple[float, float] | None = None
    seeds: int = 0
    reason: str = ""
    is_noisy: bool = False


def verdict_of(effect: Effect, paper: Printed) -> Verdict:
    """The verdict of an effect by itself; `paper` is what is printed, a pair for a range.

    A trend and a fact have no printed number: NaN.
    """
    if effect.samples.empty:
        raise ValueError("an effect needs at least one seed")
    match effect.kind:
        case Kind.RATIO | Kind.REDUCTION:
            return _of_change(effect, float(np.max(paper)))
        case Kind.RANGE:
            low, high = paper if isinstance(paper, tuple) else (paper, paper)
            return _of_range(effect, low, high)
        case Kind.ABSOLUTE:
            return _of_value(_column(effect), float(np.max(paper)))
        case Kind.AT_MOST | Kind.AT_LEAST:
            return _of_bound(effect, float(np.max(paper)))
        case Kind.EQUAL:
            return _of_equal(effect, float(np.max(paper)))
        case Kind.TREND:
            return _of_trend(_column(effect))
        case Kind.FACT:
            return _of_fact(effect)


def with_variations(found: Verdict, variations: Mapping[str, Verdict]) -> Verdict:
    """The verdict where each of these is the same claim with one choice changed, by its name.

    A variation that fails makes what holds hold partly; one too noisy to tell decides nothing.
    """
    lost = [name for name, one in variations.items() if one.word is Word.FAILS]
    if found.word not in (Word.HOLDS, Word.PARTLY) or not lost:
        return found
    said = f"lost or reversed with {', '.join(lost)}"
    reason = f"{found.reason}; {said}" if found.reason else said
    return replace(found, word=Word.PARTLY, reason=reason)


def told(variations: Mapping[str, Verdict]) -> int:
    """How many variations are not too noisy to tell."""
    return sum(not one.is_noisy for one in variations.values())


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95% interval of a share, by Wilson's score."""
    z, share = 1.959963984540054, successes / trials
    middle = share + z * z / (2 * trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    whole = 1 + z * z / trials
    return (middle - half) / whole, (middle + half) / whole


def _column(effect: Effect) -> Estimate:
    """Mean over seeds of samples that have one column."""
    return mean_of(effect.samples.mean(axis=1).to_numpy(float))


def _ends(found: Estimate) -> tuple[float, float]:
    """The interval; of one seed everything."""
    if found.low is None or found.high is None:
        return -np.inf, np.inf
    return found.low, found.high


def _noisy(found: Verdict, distance: float, half: float) -> Verdict:
    """Untested for noise; `half` is the half width of the interval, `distance` what it must be."""
    seeds = nan
    if distance > 0 and isfinite(half):
        seeds = ceil(found.seeds * (half / distance) ** 2)
    if seeds <= MOST_SEEDS:
        reason = f"too noisy: about {max(seeds, found.seeds + 1)} seeds would tell"
    elif isnan(seeds):
        reason = f"too noisy with {found.seeds} seed{'s' * (found.seeds != 1)}"
    else:
        reason = f"too noisy: more than {MOST_SEEDS} seeds would be needed"
    return replace(found, word=Word.UNTESTED, reason=reason, is_noisy=True)


def _sized(
    found: Verdict, *, beyond: bool, reversed_: bool, distance: float, half: float
) -> Verdict:
    """The word of an effect by direction and share."""
    if reversed_:
        return replace(found, word=Word.FAILS, reason="reversed")
    if found.share_high < LOST:
        reason = f"{max(found.share, 0.0):.2f} of the claimed effect"
        return replace(found, word=Word.FAILS, reason=reason)
    if not beyond:
        return _noisy(found, distance, half)
    if NEAR[0] <= found.share <= NEAR[1]:
        return replace(found, word=Word.HOLDS)
    return replace(found, word=Word.PARTLY, reason=f"{found.share:.2f} of the claimed effect")


def _of_change(effect: Effect, paper: float) -> Verdict:
    """A ratio or a reduction, averaged over settings."""
    logs = geometric_mean_of(effect.samples.mean(axis=1).to_numpy(float))
    no_effect = 1.0
    value, (low, high) = logs.value, _ends(logs)
    low, high = max(low, 0.0), high
    if effect.kind is Kind.REDUCTION:
        value, low, high, no_effect = 1 - value, 1 - high, 1 - low, 0.0
    shares = [(end - no_effect) / (paper - no_effect) for end in (value, low, high)]
    share, (share_low, share_high) = shares[0], sorted(shares[1:])
    found = Verdict(
        *(Word.UNTESTED, value, low, high, share, share_low, share_high), seeds=logs.count
    )
    half = np.log(logs.high / logs.value) if logs.high else np.inf
    return _sized(
        found,
        beyond=share_low > 0,
        reversed_=share_high < 0,
        distance=abs(np.log(logs.value)),
        half=half,
    )


def _of_range(effect: Effect, paper_low: float, paper_high: float) -> Verdict:
    """Ratios over settings: their mean has the direction, the far end the size."""
    far = paper_high if abs(paper_high - 1) >= abs(paper_low - 1) else paper_low
    sign = 1.0 if far > 1 else -1.0
    logs = np.log(effect.samples.to_numpy(float))
    mean = mean_of(logs.mean(axis=1))
    settings = [mean_of(column) for column in logs.T]
    by_size = sorted(settings, key=lambda one: sign * one.value)
    farthest = by_size[-1]
    low, high = (float(np.exp(end)) for end in _ends(mean))
    shares = [(float(np.exp(end)) - 1) / (far - 1) for end in (farthest.value, *_ends(farthest))]
    values = [float(np.exp(one.value)) for one in settings]
    found = Verdict(
        *(Word.UNTESTED, float(np.exp(mean.value)), low, high, shares[0], *sorted(shares[1:])),
        span=(min(values), max(values)),
        seeds=mean.count,
    )
    mean_low, mean_high = sorted(sign * end for end in _ends(mean))
    # The far end may be large where the average is reversed or lost.
    sized = _sized(
        found,
        beyond=mean_low > 0,
        reversed_=mean_high < 0,
        distance=abs(mean.value),
        half=_ends(mean)[1] - mean.value,
    )
    if sized.word is Word.HOLDS and not paper_low <= 1 <= paper_high:
        turned = sum(max(sign * end for end in _ends(one)) < 0 for one in settings)
        if turned:
            reason = f"reversed at {turned} of {len(settings)} settings"
            return replace(sized, word=Word.PARTLY, reason=reason)
    return sized


def _of_value(found: Estimate, paper: float) -> Verdict:
    """A value in its own unit."""
    low, high = _ends(found)
    shares = [end / paper for end in (found.value, low, high)]
    verdict = Verdict(Word.UNTESTED, found.value, low, high, *shares, seeds=found.count)
    if NEAR[0] <= shares[0] <= NEAR[1]:
        return replace(verdict, word=Word.HOLDS)
    if shares[2] < NEAR[0] or shares[1] > NEAR[1]:
        return replace(verdict, word=Word.FAILS, reason=f"{shares[0]:.2f} of the printed value")
    limit = NEAR[0] if shares[0] < NEAR[0] else NEAR[1]
    return _noisy(verdict, abs(found.value - limit * paper), high - found.value)


def _of_bound(effect: Effect, bound: float) -> Verdict:
    """A value with a bound, at the setting where it is nearest to it."""
    upper = effect.kind is Kind.AT_MOST
    settings = [mean_of(column) for column in effect.samples.to_numpy(float).T]
    worst = (max if upper else min)(settings, key=lambda one: one.value)
    low, high = _ends(worst)
    values = [one.value for one in settings]
    verdict = Verdict(
        *(Word.UNTESTED, worst.value, low, high),
        span=(min(values), max(values)) if len(values) > 1 else None,
        seeds=worst.count,
    )
    inner, outer = (high, low) if upper else (-low, -high)
    near = bound * BOUND_NEAR if upper else -bound / BOUND_NEAR
    beyond = bound * BOUND_BEYOND if upper else -bound / BOUND_BEYOND
    if inner <= near:
        return replace(verdict, word=Word.HOLDS)
    if outer > beyond:
        return replace(verdict, word=Word.FAILS, reason=f"{worst.value / bound:.2f} of the bound")
    if outer < near and inner > beyond:
        return _noisy(verdict, abs(worst.value - abs(near)), high - worst.value)
    return replace(verdict, word=Word.PARTLY, reason=f"{worst.value / bound:.2f} of the bound")


def _of_equal(effect: Effect, paper: float) -> Verdict:
    """A ratio that is claimed not to differ, at the setting where it differs most."""
    settings = [geometric_mean_of(column) for column in effect.samples.to_numpy(float).T]
    farthest = max(settings, key=lambda one: abs(np.log(one.value / paper)))
    low, high = _ends(farthest)
    values = [one.value for one in settings]
    verdict = Verdict(
        *(Word.UNTESTED, farthest.value, low, high),
        span=(min(values), max(values)) if len(values) > 1 else None,
        seeds=farthest.count,
    )
    near = (paper * (1 - EQUAL_WITHIN), paper * (1 + EQUAL_WITHIN))
    if near[0] <= low and high <= near[1]:
        return replace(verdict, word=Word.HOLDS)
    if high < near[0] or low > near[1]:
        return replace(verdict, word=Word.FAILS, reason="it differs by more than 10%")
    distance = min(abs(farthest.value - end) for end in near)
    return _noisy(verdict, distance, high - farthest.value)


def _of_trend(found: Estimate) -> Verdict:
    """A change that is claimed to be positive; printed as a factor."""
    low, high = _ends(found)
    verdict = Verdict(
        *(Word.UNTESTED, *(float(np.exp(end)) for end in (found.value, low, high))),
        seeds=found.count,
    )
    if low > 0:
        return replace(verdict, word=Word.HOLDS)
    if high < 0:
        return replace(verdict, word=Word.FAILS, reason="reversed")
    return _noisy(verdict, abs(found.value), high - found.value)


def _of_fact(effect: Effect) -> Verdict:
    """A fact by seed: its share of all seeds."""
    holds = effect.samples.all(axis=1).to_numpy(bool)
    successes, seeds = int(holds.sum()), len(holds)
    low, high = wilson(successes, seeds)
    verdict = Verdict(Word.UNTESTED, successes / seeds, low, high, seeds=seeds)
    said = f"in {successes} of {seeds} seeds"
    if low > 0.5:
        return replace(verdict, word=Word.HOLDS)
    if high < 0.5:
        return replace(verdict, word=Word.FAILS, reason=said)
    share = successes / seeds
    more = next((n for n in range(seeds + 1, MOST_SEEDS) if _tells(share, n)), None)
    would = f"about {more} seeds would tell" if more else "more seeds would not tell"
    reason = f"too noisy: {said}, {would}"
    return replace(verdict, reason=reason, is_noisy=True)


def _tells(share: float, seeds: int) -> bool:
    low, high = wilson(round(share * seeds), seeds)
    return low > 0.5 or high < 0.5
