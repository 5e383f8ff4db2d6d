"""When a claim holds: from figures per seed and setting to a verdict. Pure; nothing is read here.

A *finding* says how far the figures of one specification (one choice for everything that the paper
leaves open) agree with what it prints. Papers print rounded figures, so a printed figure stands for
itself +- half of its last printed step. A figure of ours *agrees* with a printed one where its 95%
interval touches the printed figure, or its estimate is off by at most `tolerance`, if not said 15%
of the effect that is claimed (of the figure itself where nothing is compared; of the far end's
where a range begins at no change); in either case it lies on the side of no change that the paper
has it on. An effect that the paper has throughout must be beyond noise on average, the far end of a
range that begins at no change must be as well. A figure that would agree with an interval wider
than the claimed effect agrees with anything: it *cannot be told*, and more seeds would tell. A
finding of several parts is as good as the worst of them. The rules:

range   a quantity over settings, claimed to lie in [lo, hi]: every setting and their average agree
        with [lo, hi] and, where there are several, the smallest with lo and the largest with hi.
figure  a quantity averaged over settings, claimed to be a figure: the average agrees with it.
within  figures at stated settings, claimed to lie in [lo, hi]: each of them agrees.
bound   the largest (or smallest) of all figures, or of averages over settings the one that is
        farthest out, claimed to stay on one side of a figure: its whole interval does, or it does
        or its interval reaches there and is no wider than the figure or the effect that is claimed,
        and it is found at the setting that the paper names (or not beyond noise elsewhere), if it
        names one. Where the figure is no change ("better throughout") it must itself lie on that
        side, and the average must stand out; it differs where its whole interval is on the other
        side, or that of the average at most a trifle on its own, and else cannot be told.
trend   a quantity against one setting: Spearman's rank correlation is on the claimed side of 0
        with its whole interval, for every curve, and from one end to the other every curve changes
        by more than 2%. One that changes so much with an interval around 0 cannot be told.

An average *stands out* where it is beyond no change on the paper's side with its whole interval and
by more than 2%. What does not agree may still have its *direction* right: the average over settings
stands out, and at most a tenth of the settings lies on the other side; so may what falls short of a
bound that is away from no change, but not what goes beyond one. Of a trend: the correlation
averaged over curves is certain. Figures that nothing is compared with have no direction.

The verdict of a claim is drawn from the findings of all its specifications; see
`harness.claims.settling`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan

import numpy as np

from harness.claims.findings import Agreement, Finding
from harness.claims.quantities import Measured, Setting, short
from harness.runs.stats import Estimate

SHARE_NOT_WORSE = 0.9
WORSE_BY = 0.005
MATTERS = 0.02
"""An effect that is smaller than this share is none that a paper would print."""
TOLERANCE = 0.15
"""Of the claimed effect: what repeated runs and another machine may well make of it."""
NOISY = "too noisy to tell"


@dataclass(frozen=True, slots=True)
class Band:
    """What the paper prints, and the step of its last printed digit."""

    low: float
    high: float
    step: float


def agreement_of(
    found: Estimate,
    band: Band,
    *,
    alike: float = np.nan,
    tolerance: float = TOLERANCE,
    whole: Band | None = None,
) -> Agreement:
    """Whether a figure agrees with a printed figure or range, differs or tells nothing.

    `alike` is the value that means no change, NaN where nothing is compared. A band that is the end
    of a range has that as its `whole`: what is on its other side is on the other side of all of it,
    and an end that is itself no change has the effect of the far end.
    """
    half = band.step / 2 + 1e-9
    low, high = band.low - half, band.high + half
    end = band.low if found.value < band.low else band.high
    claimed = whole or band
    effect = _effect(alike, end) or _effect(alike, claimed.low, claimed.high)
    off = max(band.low - found.value, found.value - band.high, 0.0)
    if not (found.meets(low, high) or off <= tolerance * effect):
        return Agreement.DIFFERS
    if not _tells(found, claimed, alike, tolerance=tolerance):
        return Agreement.UNTOLD
    return Agreement.DIFFERS if _is_opposite(found, claimed, alike) else Agreement.AGREES


def _effect(alike: float, *ends: float) -> float:
    """How far from no change the farthest end is, or from 0 where nothing is compared."""
    return max(abs(end if isnan(alike) else end - alike) for end in ends)


def _tells(found: Estimate, band: Band, alike: float, *, tolerance: float = TOLERANCE) -> bool:
    """Whether a figure says something: its interval is no wider than the claimed effect.

    A wide one touches every figure. Where nothing is tolerated it is no wider than the last digit.
    """
    effect = _effect(alike, band.low, band.high) if tolerance else 0.0
    bottom, top = found.ends
    return top - bottom <= max(band.step, effect) + 1e-9


def _is_opposite(found: Estimate, band: Band, alike: float) -> bool:
    """Whether it is worse than no change where the paper has it better, or the reverse."""
    if isnan(alike):
        return False
    if band.low > alike:
        return found.value <= alike
    if band.high < alike:
        return found.value >= alike
    bottom, top = found.ends  # where the range touches no change, all of it is to be excluded
    return top < min(band.low, alike) or bottom > max(band.high, alike)


def _is_beyond_noise(found: Estimate, end: float, alike: float) -> bool:
    """Whether an effect that the paper has can be told from none."""
    if end > alike:
        return found.ends[0] > alike
    return not end < alike or found.ends[1] < alike


def range_parts(
    mean: Estimate, estimates: Sequence[Estimate], band: Band, *, alike: float, tolerance: float
) -> list[Agreement]:
    """Of the average, of each setting and, where there are several, of the smallest and largest."""
    agree = partial(agreement_of, alike=alike, tolerance=tolerance, whole=band)
    parts = [agree(found, band) for found in (mean, *estimates)]
    if len(estimates) > 1:
        low, high, _ = span_of(estimates)
        parts.append(agree(low, Band(band.low, band.low, band.step)))
        parts.append(agree(high, Band(band.high, band.high, band.step)))
    return parts


def judge_range(measured: Measured, band: Band, *, tolerance: float = TOLERANCE) -> Finding:
    """Rule `range`."""
    estimates, alike, mean = measured.per_setting(), measured.alike, measured.mean()
    low, high, text = span_of(estimates)
    parts = range_parts(mean, estimates, band, alike=alike, tolerance=tolerance)
    # Of a range that begins at no change it is the far end that must be told from it.
    far, end = (high, band.high) if side_of(band, alike) > 0 else (low, band.low)
    is_sure = _is_beyond_noise(far, end, alike)
    if not band.low <= alike <= band.high:
        is_sure &= _is_beyond_noise(mean, band.low, alike)
    note = f"mean over settings {mean.text()}" if len(estimates) > 1 else ""
    return _found(measured, band, parts, is_sure=is_sure, text=text, note=note)


def judge_figure(measured: Measured, band: Band, *, tolerance: float = TOLERANCE) -> Finding:
    """Rule `figure`."""
    mean = measured.mean()
    _, _, text = span_of(measured.per_setting())
    note = f"over settings {text}" if len(measured.settings) > 1 else ""
    part = agreement_of(mean, band, alike=measured.alike, tolerance=tolerance)
    far = band.high if side_of(band, measured.alike) > 0 else band.low
    is_sure = _is_beyond_noise(mean, far, measured.alike)
    return _found(measured, band, [part], is_sure=is_sure, text=mean.text(), note=note)


def judge_within(measured: Measured, band: Band, *, tolerance: float = TOLERANCE) -> Finding:
    """Rule `within`."""
    estimates = measured.per_setting()
    _, _, text = span_of(estimates)
    agree = partial(agreement_of, band=band, alike=measured.alike, tolerance=tolerance)
    return _found(measured, band, [agree(found) for found in estimates], text=text, note="")


def judge_bound(
    measured: Sequence[Measured], bound: Band, *, take: str, side: str, at: Setting
) -> Finding:
    """Rule `bound`. `take` is largest, smallest or mean, `side` is at_most or at_least."""
    sign = 1 if take == "largest" or (take == "mean" and side == "at_most") else -1
    entries = [
        (estimate, setting, one.label)
        for one in measured
        for estimate, setting in _candidates(one, take)
    ]
    found, setting, label = max(entries, key=lambda entry: sign * entry[0].value)
    place = ", ".join(f"{short(key)} {value}" for key, value in setting.items())
    note = take + (f" at {place}" if place else "") + (f" over {label}" if label else "")
    half = bound.step / 2 + 1e-9
    low, high = (-np.inf, bound.high + half) if side == "at_most" else (bound.low - half, np.inf)
    kept, alike = low <= found.value <= high, measured[0].alike
    agreement = Agreement.DIFFERS
    bottom, top = found.ends
    is_told = _tells(found, bound, alike) or (low <= bottom and top <= high)
    if bound.low == alike == bound.high:
        agreement = _throughout(measured, found, -1 if side == "at_most" else 1)
        if agreement is Agreement.UNTOLD:
            note = f"{note}; {NOISY}"
    elif is_told and (kept or (found.meets(low, high) and not _is_opposite(found, bound, alike))):
        agreement = Agreement.AGREES
    elif not is_told and found.meets(low, high):
        agreement, note = Agreement.UNTOLD, f"{note}; {NOISY}"
    elif (side == "at_least") == (side_of(bound, alike) > 0) and all(
        _direction(one, bound) is Agreement.DIRECTION for one in measured
    ):
        agreement = Agreement.DIRECTION
    there = [one for one, where, _ in entries if all(where[key] == at[key] for key in at)]
    if agreement is Agreement.AGREES and not any(one.meets(*found.ends) for one in there):
        agreement = Agreement.DIRECTION
    return Finding(agreement, found.text(), note, found, measured[0].seeds)


def _throughout(measured: Sequence[Measured], found: Estimate, side: int) -> Agreement:
    """Whether all figures lie on one side of no change, of which `found` is the farthest out."""
    alike, means = measured[0].alike, [one.mean() for one in measured]
    if side * (found.value - alike) >= 0 and all(stands_out(one, side, alike) for one in means):
        return Agreement.AGREES
    bests = [max(side * (end - alike) for end in one.ends) for one in means]
    other_side = max(side * (end - alike) for end in found.ends) < 0
    return Agreement.DIFFERS if other_side or min(bests) <= MATTERS else Agreement.UNTOLD


def _candidates(measured: Measured, take: str) -> list[tuple[Estimate, Setting]]:
    """Among which the largest or smallest is looked for; one where it is about the average."""
    if take == "mean":
        return [(measured.mean(), {})]
    return list(zip(measured.per_setting(), measured.settings, strict=True))


def span_of(estimates: Sequence[Estimate]) -> tuple[Estimate, Estimate, str]:
    """Smallest and largest, and both as text."""
    low = min(estimates, key=lambda found: found.value)
    high = max(estimates, key=lambda found: found.value)
    text = low.text() if len(estimates) == 1 else f"{low.text()} to {high.text()}"
    return low, high, text


def side_of(band: Band, alike: float) -> int:
    """On which side of no change the paper's effect is, by its farther end; 1 where above."""
    return 1 if isnan(alike) or band.high - alike >= alike - band.low else -1


def stands_out(mean: Estimate, side: int, alike: float) -> bool:
    """Whether a figure is beyond no change on a side, more than noise and more than a trifle."""
    near = mean.ends[0] if side > 0 else mean.ends[1]
    return side * (near - alike) > 0 and side * (mean.value - alike) > MATTERS


def _found(
    measured: Measured,
    band: Band,
    parts: Sequence[Agreement],
    *,
    text: str,
    note: str,
    is_sure: bool = True,
) -> Finding:
    """As good as the worst part; with `is_sure` off it has the direction at most."""
    agreement = max(parts, key=list(Agreement).index)
    if agreement is Agreement.UNTOLD:
        note = "; ".join(filter(None, (note, NOISY)))
    elif agreement is Agreement.DIFFERS or not is_sure:
        agreement = _direction(measured, band)
    return Finding(agreement, text, note, measured.mean(), measured.seeds)


def _direction(measured: Measured, band: Band) -> Agreement:
    """Whether who wins is right on the whole, by more than a trifle, and hardly ever wrong."""
    alike, side = measured.alike, side_of(band, measured.alike)
    fine = np.mean([side * (one.value - alike) >= -WORSE_BY for one in measured.per_setting()])
    right = stands_out(measured.mean(), side, alike) and fine >= SHARE_NOT_WORSE
    return Agreement.DIRECTION if right else Agreement.DIFFERS
