"""What comes out of an inquiry for winners: the winner of each cell, counts, boxes, sentences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf, log10

import pandas as pd

from harness.conditions.boxes import AT_END, Box, Checked
from harness.conditions.maps import Map
from harness.conditions.outcomes import Outcome
from harness.conditions.texts import box_text
from harness.conditions.trials import OUTCOME, VALUE
from harness.conditions.winners import GAIN, OfWinners, claim_id
from harness.runs.figures import header_of, is_more_better, unit_of

NO_POLICY, REFUSED = "no policy", "impossible"
WINNER, AHEAD, TIED = "winner", "gain", "tied"
"""Columns of cells, behind the figure: the winner, its gain over the rival that leaves least, and,
where no policy wins, those that lead together."""
AND = "+"
"""Between policies that lead together."""
LEAST_TOLD = 0.05
"""Share of settings from which a box is looked for, and policies that lead together are named."""


def won_cells(question: OfWinners, tried: pd.DataFrame) -> pd.DataFrame:
    """The dimensions of each cell with its winner by figure; `tried` has rows of `Tried`.

    Policies lead together where none wins, each is less than `GAIN` behind the best, and all
    others are behind it beyond noise.
    """
    table = tried[[one.name for one in question.space.dimensions]].copy()
    for figure in question.figures:
        ids = {policy: claim_id(policy, figure) for policy in question.policies}
        words = pd.DataFrame({it: tried[f"{name} {OUTCOME}"] for it, name in ids.items()})
        gains = pd.DataFrame({it: tried[f"{name} {VALUE}"] for it, name in ids.items()})
        gains -= 1.0 if is_more_better(figure) else 0.0
        is_won, is_near = words == Outcome.COMES_OUT, gains > -GAIN
        is_told = (is_near | (words == Outcome.REVERSED)).all(axis=1) & (is_near.sum(axis=1) > 1)
        winner = is_won.idxmax(axis=1).where(is_won.any(axis=1), NO_POLICY)
        is_refused = (words == Outcome.IMPOSSIBLE).all(axis=1)
        tied = [AND.join(row.index[row]) for _, row in is_near.iterrows()]
        table[f"{figure} {WINNER}"] = winner.mask(is_refused, REFUSED)
        table[f"{figure} {AHEAD}"] = gains.where(is_won).max(axis=1)
        table[f"{figure} {TIED}"] = pd.Series(tied, tried.index).where(
            is_told & (winner == NO_POLICY), ""
        )
    return table


@dataclass(frozen=True)
class Wins:
    """The winners of a figure in the cells of `won_cells`."""

    question: OfWinners
    won: pd.DataFrame
    figure: str

    @property
    def winners(self) -> "pd.Series[str]":
        """The winner of each cell, that there is none, or that the cell is impossible."""
        return self.won[f"{self.figure} {WINNER}"]

    @property
    def tied(self) -> "pd.Series[str]":
        """The policies that lead together in each cell, empty where there are none."""
        return self.won[f"{self.figure} {TIED}"].fillna("")

    @property
    def settings(self) -> int:
        """Cells that are possible."""
        return int((self.winners != REFUSED).sum())

    @property
    def counts(self) -> dict[str, int]:
        """How many cells each policy wins, the most first, then in how many none does."""
        found = {it: int((self.winners == it).sum()) for it in (*self.question.policies, NO_POLICY)}
        without = found.pop(NO_POLICY)
        return {**dict(sorted(found.items(), key=lambda it: -it[1])), NO_POLICY: without}

    @property
    def ties(self) -> dict[str, int]:
        """Policies that lead together, the most frequent first, where they often do."""
        found = self.tied[self.tied != ""].value_counts()
        return {str(it): int(n) for it, n in found.items() if n >= LEAST_TOLD * self.settings}

    @cached_property
    def boxes(self) -> Mapping[str, Checked]:
        """In which settings each policy wins, some lead together or none wins, where that is told.

        By the names of `counts` and `ties`.
        """
        found = {}
        for name, count in {**self.counts, **self.ties}.items():
            if count >= LEAST_TOLD * self.settings:
                is_so = (self.winners == name) | (self.tied == name)
                words = is_so.map({True: Outcome.COMES_OUT, False: Outcome.NO_EFFECT})
                words = words.mask(self.winners == REFUSED, Outcome.IMPOSSIBLE)
                table = self.won.assign(**{f"{name} {OUTCOME}": words})
                if boxes := Map(self.question.space, name, table).box:
                    found[name] = boxes[0]
        return found

    @property
    def title(self) -> str:
        """The figure in words, without its unit."""
        return header_of(self.figure).removesuffix(f" {unit_of(self.figure)}")

    @property
    def sentence(self) -> str:
        """`mean JCT: a wins in 34% of 256 settings (when load >= 1.2; ...), b in 3%; no ...`."""
        of = f" of {self.settings} settings"
        winners = [name for name, count in self.counts.items() if count and name != NO_POLICY]
        first, *others = winners or [NO_POLICY]
        said = [f"{self.title}: {first} wins in {self._text(first, of)}"]
        said += [f"{name} in {self._text(name)}" for name in others]
        if 0 < len(winners) < len(self.question.policies):
            said.append("the others in none")
        parts = [", ".join(said)]
        parts += [f"no policy in {self._text(NO_POLICY)}"] if winners else []
        parts += [
            f"{names_of(it)} lead together in {self._text(it, ' of all')}" for it in self.ties
        ]
        return "; ".join(parts) + "."

    def share(self, count: int) -> str:
        """Of the possible settings, as text."""
        least = 0.5 / 100
        is_some = 0 < count < least * self.settings
        return "less than 1%" if is_some else f"{count / max(self.settings, 1):.0%}"

    def _text(self, name: str, of: str = "") -> str:
        count = {**self.counts, **self.ties}[name]
        where = self._where(name) if count >= LEAST_TOLD * self.settings else ""
        return f"{self.share(count)}{of}{where}"

    def _where(self, name: str) -> str:
        """By the box that is told; of a winner without one by the least box around its settings."""
        if name in self.boxes:
            one = self.boxes[name]
            right = f"right in {one.density:.0%} of such settings, covers {one.coverage:.0%}"
            return f" (when {box_text(one.box, self.question.space)}; {right} of these)"
        if name not in self.question.policies or not (around := self.around(name)).limits:
            return ""
        inside = around.holds({it: self.won[it].to_numpy(float) for it in around.limits})
        limits = box_text(around, self.question.space)
        return f" (all of them at {limits}: {self.counts[name]} of {inside.sum()} there)"

    def around(self, name: str) -> Box:
        """The least box around the settings that a policy wins, to two digits outwards.

        Without ends beyond which less than `AT_END` of all settings lie.
        """
        limits = {}
        for one in self.question.space.dimensions:
            places = self.won[one.name]
            own = places[self.winners == name]
            low, high = outwards(own.min(), floor), outwards(own.max(), ceil)
            ends = (
                low if (places < low).mean() >= AT_END else -inf,
                high if (places > high).mean() >= AT_END else inf,
            )
            if ends != (-inf, inf):
                limits[one.name] = ends
        return Box(limits)


def outwards(value: float, whole: Callable[[float], int]) -> float:
    """Two digits of a positive number, by `floor` or `ceil`."""
    step = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{whole(round(value / step, 6)) * step:.2g}")


def names_of(tied: str) -> str:
    """`a, b and c` of policies that lead together."""
    *names, last = tied.split(AND)
    return f"{', '.join(names)} and {last}"
