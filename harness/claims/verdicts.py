"""When a claim holds: from figures per seed and setting to a verdict. Pure; nothing is read here.

Every rule works on `Measured` quantities, whose estimates carry a 95% bootstrap interval over
seeds. Papers print rounded figures, so a printed figure stands for itself +- half of its last
printed step. The rules, and what makes a claim *reproduced* or *direction only*:

range   a quantity over settings, claimed to lie in [lo, hi]. Reproduced: every setting's interval
        touches [lo, hi] and the smallest and largest estimate are within `tolerance` of lo and hi.
        Direction only: the mean over settings is on the better side of no change (its whole
        interval), and at most 10% of the settings are worse than none by more than 0.005.
mean    a quantity averaged over settings, claimed to be a figure. Reproduced: its interval touches
        the figure, give or take `tolerance` of it. Direction only: as for `range`.
within  figures claimed to lie in [lo, hi]. Reproduced: all estimates do. No direction to speak of.
bound   the largest (or smallest) of all estimates, claimed to stay on one side of a figure.
        Reproduced: it does, and is found at the setting the paper names. Direction only: it does,
        but elsewhere.
trend   a quantity against one setting. Reproduced: for every curve Spearman's rank correlation is
        on the claimed side of 0 with its whole interval. Direction only: with its estimate.

A *reproduced* claim that rests on one seed, or on runs with unfinished requests, is given as
*direction only*; see `gated`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from harness.runs.stats import Estimate, Floats, estimate

Setting = Mapping[str, object]
BOOTSTRAP_SEED = 0
SHARE_NOT_WORSE = 0.9
WORSE_BY = 0.005


class Verdict(StrEnum):
    """From best to worst."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Quantity:
    """How two means are compared, and the result that says they are alike."""

    compare: Callable[[Floats, Floats], Floats]
    alike: float


QUANTITIES: Mapping[str, Quantity] = {
    "value": Quantity(lambda system, baseline: system, np.nan),
    "speedup": Quantity(lambda system, baseline: baseline / system, 1.0),
    "gain": Quantity(lambda system, baseline: system / baseline, 1.0),
    "reduction": Quantity(lambda system, baseline: 1 - system / baseline, 0.0),
}


@dataclass(frozen=True, slots=True)
class Band:
    """What the paper prints, and the step of its last printed digit."""

    low: float
    high: float
    step: float

    @property
    def rounded(self) -> tuple[float, float]:
        """The figures that would be printed as these, in floating-point arithmetic."""
        half = self.step / 2 + 1e-9
        return self.low - half, self.high + half


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One quantity over settings. `system` and `baseline` are float64 [seeds, settings]."""

    label: str
    quantity: str
    settings: Sequence[Setting]
    system: Floats
    baseline: Floats

    @property
    def seeds(self) -> int:
        """Seeds behind every setting."""
        return len(self.system)

    def per_setting(self) -> list[Estimate]:
        """The quantity at each setting, from means over seeds."""
        return [self._over(np.array([index]), np.mean) for index in range(len(self.settings))]

    def mean(self) -> Estimate:
        """Mean of the quantity over settings; seeds are drawn for all settings together."""
        return self._over(np.arange(len(self.settings)), np.mean)

    def correlation(self, against: str) -> list[tuple[str, Estimate]]:
        """Spearman's rank correlation with one numeric setting, for each value of the others."""
        rest = [
            ", ".join(f"{short(key)} {value}" for key, value in setting.items() if key != against)
            for setting in self.settings
        ]
        curves = []
        for name in dict.fromkeys(rest):
            index = np.array([at for at, other in enumerate(rest) if other == name])
            along = np.array([self.settings[at][against] for at in index], dtype=np.float64)
            found = self._over(index, partial(spearman, along))
            curves.append((", ".join(filter(None, (self.label, name))), found))
        return curves

    def _over(self, index: NDArray[np.int64], reduce: Callable[[Floats], float]) -> Estimate:
        compare = QUANTITIES[self.quantity].compare
        rows = np.stack([self.system[:, index], self.baseline[:, index]], axis=1)

        def statistic(drawn: Floats) -> float:
            system, baseline = drawn.mean(axis=0)
            return float(reduce(compare(system, baseline)))

        return estimate(rows, statistic=statistic, seed=BOOTSTRAP_SEED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, our figures as text, and what a reader must know beside them.

    `seeds` is how many stand behind it, `basis` what its seconds rest on.
    """

    verdict: Verdict
    ours: str
    note: str = ""
    seeds: int = 0
    basis: str = ""


def short(column: str) -> str:
    """The last word of a dotted column name."""
    return column.rpartition(".")[2]


def spearman(left: Floats, right: Floats) -> float:
    """Rank correlation, ties at their mean rank; 0 where one side does not vary."""
    ranks = [(x[:, None] > x).sum(1) + (x[:, None] == x).sum(1) / 2 for x in (left, right)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _span(estimates: Sequence[Estimate]) -> tuple[Estimate, Estimate, str]:
    """Smallest and largest, and both as text."""
    low = min(estimates, key=lambda found: found.value)
    high = max(estimates, key=lambda found: found.value)
    text = low.text() if len(estimates) == 1 else f"{low.text()} to {high.text()}"
    return low, high, text


def judge_range(measured: Measured, band: Band, *, tolerance: float) -> Outcome:
    """Rule `range`. `tolerance` is relative, 0.15 = 15%."""
    estimates = measured.per_setting()
    low, high, text = _span(estimates)
    ends_agree = (
        abs(low.value - band.low) <= tolerance * band.low
        and abs(high.value - band.high) <= tolerance * band.high
    )
    if ends_agree and all(found.meets(*band.rounded) for found in estimates):
        return Outcome(Verdict.REPRODUCED, text)
    several = len(estimates) > 1
    note = f"mean over settings {measured.mean().text()}" if several else ""
    return Outcome(_direction(measured), text, note)


def judge_mean(measured: Measured, band: Band, *, tolerance: float) -> Outcome:
    """Rule `mean`. `tolerance` is relative."""
    mean, (bottom, top) = measured.mean(), band.rounded
    _, _, text = _span(measured.per_setting())
    note = f"over settings {text}"
    if mean.meets(bottom * (1 - tolerance), top * (1 + tolerance)):
        return Outcome(Verdict.REPRODUCED, mean.text(), note)
    return Outcome(_direction(measured), mean.text(), note)


def _direction(measured: Measured) -> Verdict:
    """Whether the system is better on the whole, and hardly anywhere worse."""
    alike, mean = QUANTITIES[measured.quantity].alike, measured.mean()
    better = (mean.value if mean.low is None else mean.low) > alike
    fine = np.mean([found.value >= alike - WORSE_BY for found in measured.per_setting()])
    return Verdict.DIRECTION if better and fine >= SHARE_NOT_WORSE else Verdict.NOT_REPRODUCED


def judge_within(measured: Measured, band: Band) -> Outcome:
    """Rule `within`."""
    low, high, text = _span(measured.per_setting())
    bottom, top = band.rounded
    holds = low.value >= bottom and high.value <= top
    return Outcome(Verdict.REPRODUCED if holds else Verdict.NOT_REPRODUCED, text)


def judge_bound(
    measured: Sequence[Measured], bound: Band, *, take: str, side: str, at: Setting
) -> Outcome:
    """Rule `bound`. `take` is largest or smallest, `side` is at_most or at_least."""
    sign = 1 if take == "largest" else -1
    found, setting, label = max(
        (
            (estimate, setting, one.label)
            for one in measured
            for estimate, setting in zip(one.per_setting(), one.settings, strict=True)
        ),
        key=lambda entry: sign * entry[0].value,
    )
    bottom, top = bound.rounded
    kept = found.value <= top if side == "at_most" else found.value >= bottom
    there = all(setting[key] == value for key, value in at.items())
    place = ", ".join(f"{short(key)} {value}" for key, value in setting.items())
    note = f"{take} at {place}" + (f" over {label}" if label else "")
    if not kept:
        return Outcome(Verdict.NOT_REPRODUCED, found.text(), note)
    return Outcome(Verdict.REPRODUCED if there else Verdict.DIRECTION, found.text(), note)


def judge_trend(measured: Sequence[Measured], *, against: str, expect: str) -> Outcome:
    """Rule `trend`. `expect` is falling or rising."""
    curves = [curve for one in measured for curve in one.correlation(against)]
    sign = 1 if expect == "rising" else -1
    toward = [sign * found.value > 0 for _, found in curves]
    sure = [
        ok and found.low is not None and found.high is not None and found.low * found.high > 0
        for ok, (_, found) in zip(toward, curves, strict=True)
    ]
    _, _, text = _span([found for _, found in curves])
    against_it = [name for ok, (name, _) in zip(sure, curves, strict=True) if not ok]
    note = f"rank correlation; not {expect} for certain: {'; '.join(against_it)}"
    if all(sure):
        return Outcome(Verdict.REPRODUCED, text, "rank correlation")
    return Outcome(Verdict.DIRECTION if all(toward) else Verdict.NOT_REPRODUCED, text, note)


def gated(outcome: Outcome, *, unfinished: int) -> Outcome:
    """The outcome, less its `reproduced` where it rests on one seed or on unfinished requests."""
    doubts = []
    if outcome.seeds < 2:
        doubts.append("one seed cannot reproduce")
    if unfinished:
        doubts.append(f"{unfinished} requests unfinished")
    if not doubts:
        return outcome
    lowered = outcome.verdict is Verdict.REPRODUCED
    verdict = Verdict.DIRECTION if lowered else outcome.verdict
    return replace(outcome, verdict=verdict, note="; ".join(filter(None, (outcome.note, *doubts))))


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """A claim of several parts holds as far as its weakest part does."""
    order = list(Verdict)
    return Outcome(
        max((outcome.verdict for outcome in outcomes), key=order.index),
        "; ".join(outcome.ours for outcome in outcomes if outcome.ours),
        "; ".join(dict.fromkeys(outcome.note for outcome in outcomes if outcome.note)),
        min(outcome.seeds for outcome in outcomes),
        "; ".join(dict.fromkeys(outcome.basis for outcome in outcomes if outcome.basis)),
    )
