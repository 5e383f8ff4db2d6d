"""What comes out of a claim in one setting: one of five words, by the size of its effect."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isnan, nan

from harness.claims.effects import Cells, ClaimError, EffectKind
from harness.claims.paper import Claim
from harness.claims.verdicts import LOST, NEAR, Verdict, Word, verdict_of

SIZED = (EffectKind.RATIO, EffectKind.REDUCTION, EffectKind.DIFFERENCE, EffectKind.RANGE)
"""Kinds of effects whose size is compared with the printed one."""
DIRECTED = (EffectKind.TREND, EffectKind.FACT)
"""Kinds that are reversed where they fail."""
LEAST_SHARE, MOST_SHARE = -0.5, 1.0
"""Of the claimed effect: what searches tell apart."""


class Outcome(StrEnum):
    """What comes out in a setting."""

    COMES_OUT = "comes out"  # beyond noise, at least two thirds of the claimed effect
    IN_PART = "in part"  # beyond noise, and smaller
    NO_EFFECT = "no effect"  # within noise, or surely below a quarter of the claimed effect
    REVERSED = "reversed"  # beyond noise, against the claim
    IMPOSSIBLE = "impossible"  # the setting is refused


@dataclass(frozen=True, slots=True)
class Found:
    """A claim in a setting: its effect with the 95% interval, its share of the claimed one."""

    outcome: Outcome
    value: float = nan
    low: float = nan
    high: float = nan
    share: float = nan
    is_open: bool = False
    """Whether more seeds could give another word."""

    @property
    def size(self) -> float:
        """The share as searches compare it; of claims without a size 1 where it comes out."""
        if isnan(self.share):
            return float(self.outcome is Outcome.COMES_OUT)
        return min(max(self.share, LEAST_SHARE), MOST_SHARE)


IMPOSSIBLE = Found(Outcome.IMPOSSIBLE)


def found_of(claim: Claim, cells: Cells) -> Found:
    """A claim by the cells of a setting; impossible where they have no effect to show."""
    assert claim.effect is not None
    try:
        verdict = verdict_of(claim.effect(cells), claim.paper)
    except ClaimError:  # a figure that no run of the setting has, a ratio to nothing
        return IMPOSSIBLE
    share = verdict.share if verdict.kind in SIZED else nan
    ends = (verdict.share_low, verdict.share_high)
    is_open = verdict.is_noisy or any(ends[0] < edge < ends[1] for edge in (LOST, NEAR[0]))
    return Found(_word(verdict), verdict.ours, verdict.low, verdict.high, share, is_open)


def _word(verdict: Verdict) -> Outcome:
    if verdict.kind not in SIZED:
        if verdict.word is Word.FAILS and verdict.kind in DIRECTED:
            return Outcome.REVERSED
        by_word: Mapping[Word, Outcome] = {
            Word.HOLDS: Outcome.COMES_OUT,
            Word.PARTLY: Outcome.IN_PART,
        }
        return by_word.get(verdict.word, Outcome.NO_EFFECT)
    if verdict.share_high < 0:
        return Outcome.REVERSED
    if not verdict.share_low > 0 or verdict.share_high < LOST:
        return Outcome.NO_EFFECT
    return Outcome.COMES_OUT if verdict.share >= NEAR[0] else Outcome.IN_PART
