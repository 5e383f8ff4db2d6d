"""A map of a claim: in which settings of a space it comes out, and what decides that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance

from harness.claims.verdicts import NEAR
from harness.conditions.boxes import Checked, Columns, told_boxes
from harness.conditions.cells import STATE
from harness.conditions.outcomes import LEAST_SHARE, MOST_SHARE, Outcome
from harness.conditions.space import LOAD, Space
from harness.conditions.trials import OUTCOME, SHARE

HELD_OUT = 3
"""Every so many-th cell is used for nothing but checks."""
REPEATS = 30
"""Of a permutation."""
BOX_AGREES, REGRESSION_AGREES = 0.85, 0.9
"""Of the held-out cells: below, the page says that there is no simple condition."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Influence:
    """How much worse the held-out cells are told without a dimension: the fall of R2."""

    dimension: str
    mean: float
    deviation: float

    @property
    def is_seen(self) -> bool:
        """Whether it is more than chance."""
        return self.mean > 2 * self.deviation


class Map:
    """The cells of a space, as one claim comes out in them; a `table` has rows of `Tried`."""

    def __init__(self, space: Space, claim: str, table: pd.DataFrame) -> None:
        self.space, self.claim = space, claim
        words = table[f"{claim} {OUTCOME}"].astype(str)
        self.counts = {one: int((words == one).sum()) for one in Outcome}
        possible = (words != Outcome.IMPOSSIBLE).to_numpy()
        self.table = table[possible]
        self.words = words[possible].to_numpy(object)
        self.held = (np.arange(len(table)) % HELD_OUT == HELD_OUT - 1)[possible]

    @property
    def names(self) -> list[str]:
        """The dimensions."""
        return [one.name for one in self.space.dimensions]

    @cached_property
    def comes(self) -> Mask:
        """In which cells the claim comes out."""
        return np.asarray(self.words == Outcome.COMES_OUT, np.bool_)

    @cached_property
    def sizes(self) -> Floats:
        """The share of the claimed effect, within what searches tell apart."""
        shares = self.table[f"{self.claim} {SHARE}"].to_numpy(np.float64)
        whole = np.where(np.isnan(shares), self.comes.astype(float), shares)
        return np.clip(whole, LEAST_SHARE, MOST_SHARE)

    def boxes(self, *outcomes: Outcome, columns: Sequence[str] = ()) -> list[Checked]:
        """Boxes in which these outcomes are what comes out, told by the cells held out."""
        is_so = np.isin(self.words, [it.value for it in outcomes])
        fit, held = (self._columns(columns or self.names, it) for it in (~self.held, self.held))
        return told_boxes(fit, is_so[~self.held], held, is_so[self.held])

    def _columns(self, names: Sequence[str], chosen: Mask) -> Columns:
        return {name: self.table[name].to_numpy(np.float64)[chosen] for name in names}

    @cached_property
    def box(self) -> list[Checked]:
        """Where it comes out."""
        return self.boxes(Outcome.COMES_OUT)

    @cached_property
    def state_box(self) -> list[Checked]:
        """Where it helps at all, by what the baseline went through and what is not the load."""
        known = [name for name in STATE if self.table[name].notna().all()]
        columns = [*known, *(name for name in self.names if name != LOAD)]
        return self.boxes(Outcome.COMES_OUT, Outcome.IN_PART, columns=columns)

    @cached_property
    def regression(self) -> HistGradientBoostingRegressor:
        """The share of the claimed effect by setting, fitted to the cells not held out."""
        model = HistGradientBoostingRegressor(
            max_iter=200, learning_rate=0.05, min_samples_leaf=10, random_state=0
        )
        return model.fit(self._points(self.table)[~self.held], self.sizes[~self.held])

    def expected(self, settings: pd.DataFrame) -> Floats:
        """The share of the claimed effect that the regression expects."""
        return np.asarray(self.regression.predict(self._points(settings)), np.float64)

    def _points(self, table: pd.DataFrame) -> Floats:
        columns = [
            np.log(table[one.name].to_numpy(float)) if one.is_log else table[one.name]
            for one in self.space.dimensions
        ]
        return np.column_stack(columns).astype(np.float64)

    @cached_property
    def agrees(self) -> tuple[float, float]:
        """In how many held-out cells the boxes, and the regression, say what comes out."""
        held, comes = self._columns(self.names, self.held), self.comes[self.held]
        inside = np.zeros(len(comes), np.bool_)
        for one in self.box:
            inside |= one.box.holds(held)
        told = self.expected(self.table[self.held]) >= NEAR[0]
        return float((inside == comes).mean()), float((told == comes).mean())

    @property
    def is_simple(self) -> bool:
        """Whether boxes and regression tell the held-out cells well enough.

        Where few cells come out, limits that nothing meets agree with most of them as well; so the
        first box must also be right more often than not.
        """
        box, regression = self.agrees
        agrees = box >= BOX_AGREES and regression >= REGRESSION_AGREES
        return bool(self.box) and agrees and self.box[0].is_right

    @cached_property
    def influences(self) -> list[Influence]:
        """What decides, the strongest first."""
        held = self._points(self.table)[self.held]
        found = permutation_importance(
            self.regression, held, self.sizes[self.held], n_repeats=REPEATS, random_state=0
        )
        rows = zip(self.names, found.importances_mean, found.importances_std, strict=True)
        influences = [Influence(name, float(mean), float(std)) for name, mean, std in rows]
        return sorted(influences, key=lambda it: -it.mean)

    @property
    def most(self) -> Mapping[str, float]:
        """The cell of the largest share of the claimed effect."""
        return {str(k): v for k, v in self.table.iloc[int(self.sizes.argmax())].items()}
