"""What a claim is about: a quantity of a system beside a baseline, over settings and seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.runs.stats import Estimate, Floats, geometric_mean_of, mean_of

Setting = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Quantity:
    """How the figures of one seed are compared, and the result that says they are alike.

    `over` averages over seeds: ratios by their logarithms, plain figures as they are.
    """

    compare: Callable[[Floats, Floats], Floats]
    alike: float
    over: Callable[[Floats], Estimate]


def _reduction_of(values: Floats) -> Estimate:
    """A share saved is one less a ratio, and is averaged as that ratio."""
    kept = geometric_mean_of(1.0 - values)
    low, high = (None if end is None else 1.0 - end for end in (kept.high, kept.low))
    return Estimate(1.0 - kept.value, low, high, kept.count)


QUANTITIES: Mapping[str, Quantity] = {
    "value": Quantity(lambda system, baseline: system, np.nan, mean_of),
    "difference": Quantity(lambda system, baseline: system - baseline, 0.0, mean_of),
    "speedup": Quantity(lambda system, baseline: baseline / system, 1.0, geometric_mean_of),
    "gain": Quantity(lambda system, baseline: system / baseline, 1.0, geometric_mean_of),
    "reduction": Quantity(lambda system, baseline: 1 - system / baseline, 0.0, _reduction_of),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity [seeds, places] along one setting, ascending."""

    name: str
    along: Floats
    values: Floats

    def correlations(self) -> Floats:
        """Spearman's rank correlation with the setting, of each seed."""
        return np.array([spearman(self.along, seed) for seed in self.values])

    def change(self) -> float:
        """From one end to the other, as a share of the figure at the first."""
        first, last = self.values[:, 0].mean(), self.values[:, -1].mean()
        return float((last - first) / abs(first)) if first else float(np.sign(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One quantity over settings. `system` and `baseline` are float64 [seeds, settings].

    On average it is the mean of what each setting gives or, with `of_averages`, what the averages
    of the figures give: of seconds the longest count most.
    """

    label: str
    quantity: str
    settings: Sequence[Setting]
    system: Floats
    baseline: Floats
    of_averages: bool = False

    @property
    def seeds(self) -> int:
        """Seeds behind every setting."""
        return len(self.system)

    @property
    def comparable(self) -> bool:
        """Whether its figures can be compared: ratios are of positive figures."""
        both = np.stack([self.system, self.baseline])
        plain = self.quantity in ("value", "difference")
        return bool(np.isfinite(both).all() and (plain or (both > 0).all()))

    @property
    def alike(self) -> float:
        """The value that says system and baseline are alike; NaN where there is none."""
        return QUANTITIES[self.quantity].alike

    def per_setting(self) -> list[Estimate]:
        """The quantity at each setting, over seeds."""
        over = QUANTITIES[self.quantity].over
        return [over(column) for column in self.compared().T]

    def mean(self) -> Estimate:
        """Average over settings within each seed, then over seeds."""
        quantity = QUANTITIES[self.quantity]
        if self.of_averages:
            return quantity.over(quantity.compare(self.system.mean(1), self.baseline.mean(1)))
        return quantity.over(self.compared().mean(axis=1))

    def curves(self, against: str) -> list["Curve"]:
        """The quantity along one numeric setting: on average, or for each of the other settings."""
        if self.of_averages:
            return [self._average_curve(against)]
        rest = [
            ", ".join(f"{short(key)} {value}" for key, value in setting.items() if key != against)
            for setting in self.settings
        ]
        compared, curves = self.compared(), []
        for name in dict.fromkeys(rest):
            index = np.array([at for at, other in enumerate(rest) if other == name])
            along = np.array([self.settings[at][against] for at in index], dtype=np.float64)
            index, along = index[np.argsort(along)], np.sort(along)
            whole = ", ".join(filter(None, (self.label, name)))
            curves.append(Curve(whole, along, compared[:, index]))
        return curves

    def _average_curve(self, against: str) -> "Curve":
        """What the averages over the other settings give."""
        places = np.array([setting[against] for setting in self.settings], dtype=np.float64)
        along = np.unique(places)
        system, baseline = (
            np.stack([figures[:, places == place].mean(1) for place in along], axis=1)
            for figures in (self.system, self.baseline)
        )
        return Curve(self.label, along, QUANTITIES[self.quantity].compare(system, baseline))

    def compared(self) -> Floats:
        """The quantity [seeds, settings]."""
        return QUANTITIES[self.quantity].compare(self.system, self.baseline)


def short(column: str) -> str:
    """The last word of a dotted column name."""
    return column.rpartition(".")[2]


def spearman(left: Floats, right: Floats) -> float:
    """Rank correlation, ties at their mean rank; 0 where one side does not vary."""
    ranks: list[NDArray[np.float64]] = [
        (x[:, None] > x).sum(1) + (x[:, None] == x).sum(1) / 2 for x in (left, right)
    ]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
