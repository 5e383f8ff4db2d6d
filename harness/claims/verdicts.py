"""Verdicts: one of four words for an effect beside what its paper prints. Pure.

Direction and size are judged apart, on one number:

    share = (ours - no effect) / (paper - no effect)

holds     the effect is beyond noise in the paper's direction, share is within 2/3 to 3/2, and no
          variation loses or reverses it beyond noise
partly    the direction is right beyond noise, but share is outside 2/3 to 3/2, or a variation
          loses or reverses the effect
fails     reversed beyond noise, or the interval of share lies below 1/4, or the printed number is
          beyond the ceiling of what any scheduler can reach
untested  for a reason that is named

Beyond noise: the 95% interval over paired seeds excludes no effect. Intervals are Student's t, of
logarithms for ratios; Wilson's for shares of seeds. The rules of other kinds of claims are in
`results/pages/verdicts.md`, one function each below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, exp, inf, isnan, nan, sqrt

import numpy as np

from harness.claims.effects import ClaimError, Effect, EffectKind
from harness.runs.stats import Estimate, Floats, geometric_mean_of, mean_of

NEAR = (2 / 3, 3 / 2)
"""Shares that are as large as claimed."""
LOST = 1 / 4
"""Share below which an effect is lost."""
LOST_WITH = "lost or reversed with"
"""How a reason begins that names variations."""
BOUND_NEAR, BOUND_BEYOND = 1.1, 1.5
"""Of a bound: what still holds, and what fails."""
VALUE_ENDS = (1 / 2, 2)
"""Of a value: shares between which both ends of its interval lie where it holds."""
KEPT_WITHIN = 0.25
"""Of a fact's printed value."""
EQUAL_WITHIN = 0.1
"""Of a value that is claimed not to differ."""
ROUNDING = 1e-9
"""Of the logarithm of a ratio: a setting in which nothing differs is not reversed."""
BEYOND = "beyond the ceiling of"
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
    kind: EffectKind | None = None
    """Of the effect; None for what is not tested."""


def verdict_of(effect: Effect, paper: Printed) -> Verdict:
    """The verdict of an effect by itself; `paper` is what is printed, a pair for a range.

    Raises ClaimError where nothing, or no effect, is printed; trends and facts need no number.
    """
    if effect.kind is EffectKind.DIFFERENCE:
        return replace(_of_difference(effect), kind=effect.kind)
    low, high = sorted(paper) if isinstance(paper, tuple) else (paper, paper)
    far, no_effect = far_end(effect.kind, paper)
    is_change = effect.kind in (EffectKind.RATIO, EffectKind.REDUCTION, EffectKind.RANGE)
    if effect.kind not in (EffectKind.TREND, EffectKind.FACT) and (
        isnan(far) or (is_change and far == no_effect)
    ):
        raise ClaimError(f"the printed number of a claim of kind {effect.kind} cannot be {far:g}")
    reverses = low < 1 < high
    found = _by_kind(effect, effect.samples.to_numpy(float).T, far, no_effect, reverses)
    return replace(found, kind=effect.kind)


def far_end(kind: EffectKind, paper: Printed) -> tuple[float, float]:
    """The printed number, of a range the end that is farther from no effect; and no effect."""
    low, high = sorted(paper) if isinstance(paper, tuple) else (paper, paper)
    no_effect = 0.0 if kind is EffectKind.REDUCTION else 1.0
    return (high if abs(high - no_effect) >= abs(low - no_effect) else low), no_effect


def _by_kind(
    effect: Effect, columns: Floats, far: float, no_effect: float, reverses: bool
) -> Verdict:
    """By the rule of the effect's kind; `columns` has a row per setting, a column per seed."""
    match effect.kind:
        case EffectKind.RANGE:
            return _of_range(columns, far, reverses=reverses)
        case EffectKind.ABSOLUTE:
            return _of_value(mean_of(columns.mean(axis=0)), far)
        case EffectKind.AT_MOST | EffectKind.AT_LEAST:
            sign = 1 if effect.kind is EffectKind.AT_MOST else -1
            found = [_of_bound(mean_of(column), far, sign) for column in columns]
            return _worst(found, lambda one: sign * one.ours)
        case EffectKind.EQUAL:
            found = [_of_equal(geometric_mean_of(column), far) for column in columns]
            return _worst(found, lambda one: abs(one.ours - far))
        case EffectKind.TREND:
            return _of_trend(mean_of(columns.mean(axis=0)))
        case EffectKind.FACT:
            return _of_fact(int(columns.all(axis=0).sum()), columns.shape[1])
        case _:
            return _of_change(columns.mean(axis=0), far, no_effect)


def measured(effect: Effect) -> Verdict:
    """A value alone, with its interval: the mean over settings, of a bound its worst setting."""
    columns = effect.samples.to_numpy(float).T
    if effect.kind is EffectKind.ABSOLUTE:
        columns = columns.mean(axis=0, keepdims=True)
    elif effect.kind is EffectKind.RATIO:
        columns = np.exp(np.log(columns).mean(axis=0, keepdims=True))
    mean = geometric_mean_of if effect.kind is EffectKind.RATIO else mean_of
    found = [mean(column) for column in columns]
    worst = min if effect.kind is EffectKind.AT_LEAST else max
    one = worst(found, key=lambda it: it.value)
    return replace(_untested(one.count, _each(one)), kind=effect.kind)


def is_kept(found: Verdict, printed: float) -> bool | None:
    """Whether a fact is: its value within 25% of what is printed, or its bound; None: no number."""
    if isnan(printed):
        return None
    if found.kind in (EffectKind.ABSOLUTE, EffectKind.RATIO):
        return bool(abs(found.ours - printed) <= KEPT_WITHIN * abs(printed))
    return bool(
        found.ours <= printed if found.kind is EffectKind.AT_MOST else found.ours >= printed
    )


def below_ceiling(found: Verdict, ceiling: Verdict, paper: Printed, shown: str) -> Verdict:
    """The verdict where no scheduler can reach more than a ceiling, `shown` in words.

    What is printed beyond the interval of the ceiling fails, unless it holds here all the same.
    """
    assert found.kind is not None
    far, no_effect = far_end(found.kind, paper)
    values = (EffectKind.ABSOLUTE, EffectKind.AT_MOST, EffectKind.AT_LEAST)
    rises = found.kind is not EffectKind.AT_MOST if found.kind in values else far >= no_effect
    is_beyond = far > ceiling.high if rises else far < ceiling.low
    if found.word is Word.HOLDS or not is_beyond:
        return found
    said = f"{BEYOND} {shown}"
    reason = _both(found.reason, said) if found.word is Word.FAILS else said
    return replace(found, word=Word.FAILS, reason=reason, is_noisy=False)


def with_variations(found: Verdict, variations: Mapping[str, Verdict]) -> Verdict:
    """The verdict where each of these is the same claim with one choice changed, by its name.

    A variation that fails makes what holds hold partly; one too noisy to tell decides nothing, nor
    does one that fails by its ceiling alone.
    """
    fails = {name: one for name, one in variations.items() if one.word is Word.FAILS}
    lost = [name for name, one in fails.items() if not one.reason.startswith(BEYOND)]
    if found.word not in (Word.HOLDS, Word.PARTLY) or not lost:
        return found
    said = f"{LOST_WITH} {', '.join(lost)}"
    return replace(found, word=Word.PARTLY, reason=_both(found.reason, said))


def _both(reason: str, more: str) -> str:
    return f"{reason}; {more}" if reason else more


def agrees(found: Verdict, variation: Verdict) -> bool | None:
    """Whether both fail or neither does; None where one of them is untested."""
    if Word.UNTESTED in (found.word, variation.word):
        return None
    return (found.word is Word.FAILS) is (variation.word is Word.FAILS)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95% interval of a share, by Wilson's score."""
    z, share = 1.959963984540054, successes / trials
    middle = share + z * z / (2 * trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    whole = 1 + z * z / trials
    return (middle - half) / whole, (middle + half) / whole


def _ends(found: Estimate) -> tuple[float, float]:
    """The interval; of one seed everything."""
    if found.low is None or found.high is None:
        return -inf, inf
    return found.low, found.high


def _each(
    found: Estimate, of: Callable[[float], float] = lambda end: end
) -> tuple[float, float, float]:
    """A function of a value and of the ends of its interval."""
    low, high = _ends(found)
    return of(found.value), of(low), of(high)


def _untested(
    seeds: int, ours: Sequence[float], shares: Sequence[float] = (nan, nan, nan)
) -> Verdict:
    """A verdict before its word: a value with the ends of its interval, and so its share."""
    (value, *ends), (share, *share_ends) = ours, shares
    (low, high), (share_low, share_high) = sorted(ends), sorted(share_ends)
    return Verdict(Word.UNTESTED, value, low, high, share, share_low, share_high, seeds=seeds)


def _noisy(found: Verdict, *ways: tuple[float, float]) -> Verdict:
    """Untested for noise; a way is how far a value is from telling, with its half interval.

    An interval shrinks with the root of the number of seeds, so that the way that takes the fewest
    says how many would tell.
    """
    ratios = [half / distance for distance, half in ways if distance > 0]
    if not ratios or found.seeds == 1:
        reason = f"too noisy with {found.seeds} seed{'s' * (found.seeds != 1)}"
    elif (seeds := ceil(found.seeds * min(ratios) ** 2)) > MOST_SEEDS:
        reason = f"too noisy: more than {MOST_SEEDS} seeds would be needed"
    else:
        reason = f"too noisy: about {max(seeds, found.seeds + 1)} seeds would tell"
    return replace(found, word=Word.UNTESTED, reason=reason, is_noisy=True)


def _sized(found: Verdict, direction: Sequence[float]) -> Verdict:
    """The word by share and by `direction`: value and interval, positive as the paper has it."""
    value, low, high = direction
    if high < 0:
        return replace(found, word=Word.FAILS, reason="reversed")
    size = f"{max(found.share, 0.0):.2f} of the claimed effect"
    if found.share_high < LOST:
        return replace(found, word=Word.FAILS, reason=size)
    if low <= 0:
        lost = (LOST - found.share, found.share_high - found.share)
        return _noisy(found, (value, value - low), (-value, high - value), lost)
    if NEAR[0] <= found.share <= NEAR[1]:
        return replace(found, word=Word.HOLDS)
    return replace(found, word=Word.PARTLY, reason=size)


def _of_change(samples: Floats, far: float, no_effect: float) -> Verdict:
    """A ratio or, where no effect is 0, what it saves."""
    mean = mean_of(np.log(samples))
    ours = _each(mean, lambda end: 1 - exp(end) if no_effect == 0 else exp(end))
    shares = [(end - no_effect) / (far - no_effect) for end in ours]
    found = _untested(mean.count, ours, shares)
    return _sized(found, (found.share, found.share_low, found.share_high))


def _of_difference(effect: Effect) -> Verdict:
    """A difference of shares, of which one is too small for a ratio."""
    mean = mean_of(effect.samples.to_numpy(float).mean(axis=1))
    far = nan if effect.printed is None else effect.printed
    found = _untested(mean.count, _each(mean), _each(mean, lambda end: end / far if far else nan))
    if isnan(far) or not far:
        return replace(found, reason="one side is below 5%: the paper prints no shares")
    return _sized(found, (found.share, found.share_low, found.share_high))


def _of_range(columns: Floats, far: float, *, reverses: bool) -> Verdict:
    """Ratios over settings: their mean has the direction, the far end the size.

    A setting that is reversed beyond noise makes it hold partly, unless the printed range
    `reverses` too.
    """
    sign = 1.0 if far > 1 else -1.0
    logs = sign * np.log(columns)
    mean, settings = mean_of(logs.mean(axis=0)), [mean_of(column) for column in logs]
    values = [exp(sign * one.value) for one in settings]
    farthest = max(settings, key=lambda one: one.value)
    found = _untested(
        mean.count,
        _each(mean, lambda end: exp(sign * end)),
        _each(farthest, lambda end: (exp(sign * end) - 1) / (far - 1)),
    )
    found = replace(found, span=(min(values), max(values)))
    sized = _sized(found, _each(mean))
    turned = sum(_ends(one)[1] < -ROUNDING for one in settings)
    if sized.word in (Word.HOLDS, Word.PARTLY) and turned and not reverses:
        said = f"reversed at {turned} of {len(settings)} settings"
        return replace(sized, word=Word.PARTLY, reason=_both(sized.reason, said))
    return sized


def _of_value(found: Estimate, paper: float) -> Verdict:
    """A value in its own unit."""
    shares = _each(found, lambda end: end / paper)
    verdict = _untested(found.count, _each(found), shares)
    half = verdict.share_high - verdict.share
    if NEAR[0] <= verdict.share <= NEAR[1]:
        least, most = VALUE_ENDS
        room = min(verdict.share - least, most - verdict.share)
        holds = replace(verdict, word=Word.HOLDS)
        return holds if half <= room else _noisy(verdict, (room, half))
    if verdict.share_high < NEAR[0] or verdict.share_low > NEAR[1]:
        return replace(verdict, word=Word.FAILS, reason=f"{verdict.share:.2f} of the printed value")
    return _noisy(verdict, (max(NEAR[0] - verdict.share, verdict.share - NEAR[1]), half))


def _worst(settings: Sequence[Verdict], distance: Callable[[Verdict], float]) -> Verdict:
    """The verdict of the worst setting, of several with that word the farthest; with the span."""
    order = [Word.HOLDS, Word.UNTESTED, Word.PARTLY, Word.FAILS]
    worst = max(settings, key=lambda one: (order.index(one.word), distance(one)))
    values = [one.ours for one in settings]
    return replace(worst, span=(min(values), max(values)) if len(values) > 1 else None)


def _of_bound(found: Estimate, bound: float, sign: int) -> Verdict:
    """A value with an upper bound, or a lower one where `sign` is -1."""
    verdict = _untested(found.count, _each(found))
    value, *ends = _each(found, lambda end: sign * end)
    nearest, farthest = sorted(ends)
    near, beyond = (sign * bound * factor**sign for factor in (BOUND_NEAR, BOUND_BEYOND))
    if farthest <= near:
        return replace(verdict, word=Word.HOLDS)
    size = f"{found.value / bound:.2f} of the bound"
    if nearest > beyond:
        return replace(verdict, word=Word.FAILS, reason=size)
    if nearest > sign * bound:
        return replace(verdict, word=Word.PARTLY, reason=size)
    half = farthest - value
    return _noisy(verdict, (near - value, half), (value - sign * bound, half))


def _of_equal(found: Estimate, paper: float) -> Verdict:
    """A ratio that is claimed not to differ."""
    low, high = _ends(found)
    apart, *ends = _each(found, lambda end: abs(end / paper - 1))
    verdict = _untested(found.count, _each(found))
    is_apart = not low <= paper <= high
    if max(ends) <= EQUAL_WITHIN:
        return replace(verdict, word=Word.HOLDS)
    if is_apart and min(ends) > EQUAL_WITHIN:
        return replace(verdict, word=Word.FAILS, reason="it differs by more than 10%")
    if is_apart:
        return replace(verdict, word=Word.PARTLY, reason=f"it differs by {apart:.0%}")
    half = max(ends) - apart
    return _noisy(verdict, (EQUAL_WITHIN - apart, half), (apart, half))


def _of_trend(found: Estimate) -> Verdict:
    """A change that is claimed to be positive; printed as a factor."""
    low, high = _ends(found)
    verdict = _untested(found.count, _each(found, exp))
    if low > 0:
        return replace(verdict, word=Word.HOLDS)
    if high < 0:
        return replace(verdict, word=Word.FAILS, reason="reversed")
    return _noisy(verdict, (abs(found.value), high - found.value))


def _of_fact(successes: int, seeds: int) -> Verdict:
    """A fact by seed: its share of all seeds."""
    share, (low, high) = successes / seeds, wilson(successes, seeds)
    verdict = _untested(seeds, (share, low, high))
    said = f"in {successes} of {seeds} seeds"
    if low > 0.5:
        return replace(verdict, word=Word.HOLDS)
    if high < 0.5:
        return replace(verdict, word=Word.FAILS, reason=said)
    tells = (n for n in range(seeds + 1, MOST_SEEDS) if _tells(share, n))
    would = f"about {more} seeds would tell" if (more := next(tells, 0)) else "more would not tell"
    return replace(verdict, reason=f"too noisy: {said}, {would}", is_noisy=True)


def _tells(share: float, seeds: int) -> bool:
    low, high = wilson(round(share * seeds), seeds)
    return low > 0.5 or high < 0.5
