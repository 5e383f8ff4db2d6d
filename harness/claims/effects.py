"""Effects: what a claim function returns, and the helpers that compute one from cells.

Cells are a tidy data frame with one row per run: a column per axis of the scenario (`seed` and, for
instance, `system`, `requests`), the figures of the run's summary, and `folder`. A selector is a
mapping from axes to values, or a list of selectors whose figures are added. A figure is a column,
or a function of a run folder for what no summary holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.costs.model_facts import unknown_name
from harness.runs.stats import geometric_mean_of

Cells = pd.DataFrame
Selector = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Figure = str | Callable[[Path], float]

SEED = "seed"
ALL = "all"
"""Name of the only column of samples that are not told apart by setting."""
PROBE = "probe"
"""Folder of a cell that has not run; every figure of it is 1."""


class ClaimError(ValueError):
    """A claim asks for an axis, a value or a figure that its cells do not have."""


class Kind(StrEnum):
    """What an effect is, which decides its interval and its rule (`harness.claims.verdicts`)."""

    RATIO = "ratio"
    """Samples are ratios; no effect is 1; intervals are of logarithms."""
    REDUCTION = "reduction"
    """Samples are ratios, the effect is 1 minus their mean; no effect is 0."""
    RANGE = "range"
    """Ratios at several settings, claimed to span a range."""
    ABSOLUTE = "absolute"
    """A value in its own unit."""
    AT_MOST = "at most"
    """A value with an upper bound; of several settings the largest."""
    AT_LEAST = "at least"
    """A value with a lower bound; of several settings the smallest."""
    EQUAL = "equal"
    """A ratio that is claimed not to differ; of several settings the farthest."""
    TREND = "trend"
    """Change from the first setting to the last, positive where it is as claimed."""
    FACT = "fact"
    """Whether something is so, by seed."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Samples of an effect: one row per seed, one column per setting (`ALL` where averaged)."""

    kind: Kind
    samples: pd.DataFrame


def select(cells: Cells, at: Mapping[str, Any]) -> Cells:
    """The cells with these values on their axes. Raises ClaimError where there are none."""
    for axis, value in at.items():
        if axis not in cells:
            raise ClaimError(unknown_name("axis", axis, dict.fromkeys(map(str, cells.columns))))
        there, cells = cells[axis], cells[cells[axis].isin([value])]
        if cells.empty:
            known = ", ".join(map(str, there.unique()[:12]))
            raise ClaimError(f"no cell has {axis}={value}; there are {known}")
    return cells


def figures(
    cells: Cells, figure: Figure, at: Selector, settings: Sequence[str] = ()
) -> pd.DataFrame:
    """A figure of the selected cells: rows are seeds, columns the settings.

    Seeds without a cell at every setting are left out. A selector that fixes one of the settings
    has the same value at all of them. Raises ClaimError for what the cells do not have.
    """
    if not isinstance(at, Mapping):
        first, *others = (figures(cells, figure, one, settings) for one in at)
        for other in others:
            first, other = _aligned(first, other)
            first = first + other
        return first
    chosen = select(cells, at)
    free = [axis for axis in settings if axis not in at]
    keys = [SEED, *free]
    if unknown := [axis for axis in keys if axis not in chosen]:
        known = dict.fromkeys(map(str, cells.columns))
        raise ClaimError(unknown_name("axis", unknown[0], known))
    if chosen.duplicated(keys).any():
        several = chosen[chosen.duplicated(keys, keep=False)]
        raise ClaimError(
            f"{len(several)} cells have the same {', '.join(keys)} at {dict(at)}; name more axes"
        )
    values = _values(chosen, figure)
    if not free:
        return pd.DataFrame({ALL: values}, index=pd.Index(chosen[SEED], name=SEED))
    index = pd.MultiIndex.from_frame(chosen[keys])
    return pd.DataFrame(pd.Series(values, index=index).unstack(free)).dropna()


def _values(cells: Cells, figure: Figure) -> list[float]:
    if not isinstance(figure, str):
        return [
            1.0 if folder == PROBE else float(_of_folder(figure, folder))
            for folder in cells["folder"]
        ]
    if figure not in cells:
        known = dict.fromkeys(map(str, cells.columns))
        raise ClaimError(unknown_name("figure", figure, known))
    return [float(value) for value in cells[figure]]


@cache
def _of_folder(figure: Callable[[Path], float], folder: str) -> float:
    """A figure of a run folder, which never changes; several claims ask for the same one."""
    return figure(Path(folder))


def _aligned(one: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both at the seeds and settings of both; a figure without settings counts at all of them."""
    if list(one.columns) == [ALL] != list(other.columns):
        one = pd.DataFrame({name: one[ALL] for name in other}, columns=other.columns)
    elif list(other.columns) == [ALL] != list(one.columns):
        other = pd.DataFrame({name: other[ALL] for name in one}, columns=one.columns)
    return one.align(other, join="inner")


def _ratios(
    cells: Cells, figure: Figure, of: Selector, over: Selector, settings: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Figures of `of` and of `over` at the seeds and settings that both have."""
    above, below = _aligned(
        figures(cells, figure, of, settings), figures(cells, figure, over, settings)
    )
    if above.empty:
        raise ClaimError("no seed has cells of both sides at every setting")
    return above, below


def ratio(
    cells: Cells, figure: Figure, *, of: Selector, over: Selector, average_over: Sequence[str] = ()
) -> Effect:
    """The figure of `of` over that of `over`, by seed.

    Over several settings: the average figure of the one over the average figure of the other.
    """
    above, below = _ratios(cells, figure, of, over, average_over)
    return Effect(Kind.RATIO, (above.mean(axis=1) / below.mean(axis=1)).to_frame(ALL))


def reduction(
    cells: Cells, figure: Figure, *, of: Selector, over: Selector, average_over: Sequence[str] = ()
) -> Effect:
    """What `of` saves of the figure of `over`: 1 minus their `ratio`."""
    found = ratio(cells, figure, of=of, over=over, average_over=average_over)
    return Effect(Kind.REDUCTION, found.samples)


def over_settings(
    cells: Cells, figure: Figure, *, of: Selector, over: Selector, settings: Sequence[str]
) -> Effect:
    """The ratio at every setting, for a claim such as "1.1-2.4x"."""
    above, below = _ratios(cells, figure, of, over, settings)
    return Effect(Kind.RANGE, above / below)


def joined(*parts: Effect) -> Effect:
    """One effect over the settings of several, at the seeds that all have."""
    frames = [
        part.samples.set_axis([f"{number}: {name}" for name in part.samples], axis=1)
        for number, part in enumerate(parts)
    ]
    return Effect(parts[0].kind, pd.concat(frames, axis=1, join="inner"))


def absolute(
    cells: Cells, figure: Figure, at: Selector, *, average_over: Sequence[str] = ()
) -> Effect:
    """The figure itself, averaged over settings."""
    found = figures(cells, figure, at, average_over)
    return Effect(Kind.ABSOLUTE, found.mean(axis=1).to_frame(ALL))


def at_most(cells: Cells, figure: Figure, at: Selector, *, settings: Sequence[str] = ()) -> Effect:
    """The figure at every setting, of which the largest is claimed to stay below a bound."""
    return Effect(Kind.AT_MOST, figures(cells, figure, at, settings))


def at_least(cells: Cells, figure: Figure, at: Selector, *, settings: Sequence[str] = ()) -> Effect:
    """The figure at every setting, of which the smallest is claimed to stay above a bound."""
    return Effect(Kind.AT_LEAST, figures(cells, figure, at, settings))


def equal(
    cells: Cells, figure: Figure, *, of: Selector, over: Selector, settings: Sequence[str] = ()
) -> Effect:
    """The ratio at every setting, claimed to be the paper's value ("makes no difference": 1)."""
    above, below = _ratios(cells, figure, of, over, settings)
    return Effect(Kind.EQUAL, above / below)


def trend(
    cells: Cells,
    figure: Figure,
    *,
    of: Selector,
    over: Selector,
    along: str,
    rising: bool,
    average_over: Sequence[str] = (),
) -> Effect:
    """The ratio at the last value of `along` against that at the first, as a logarithm.

    Positive where it rises, or falls, as claimed.
    """
    above, below = _ratios(cells, figure, of, over, [along, *average_over])
    by_value = np.log(above / below)
    values = by_value.columns.get_level_values(along) if average_over else by_value.columns
    first, last = by_value.loc[:, values == values.min()], by_value.loc[:, values == values.max()]
    change = last.mean(axis=1) - first.mean(axis=1)
    return Effect(Kind.TREND, (change if rising else -change).to_frame(ALL))


def share_of_seeds(
    cells: Cells,
    fact: Callable[..., bool],
    *figures_of: tuple[Figure, Selector],
    settings: Sequence[str] = (),
) -> Effect:
    """In which seeds `fact` holds at every setting; its arguments are these figures there."""
    tables = [figures(cells, figure, at, settings) for figure, at in figures_of]
    for table in tables:
        tables[0], _ = _aligned(tables[0], table)
    tables = [_aligned(table, tables[0])[0] for table in tables]
    arrays = [table.to_numpy(float) for table in tables]
    holds = [
        all(fact(*(array[row, column] for array in arrays)) for column in range(arrays[0].shape[1]))
        for row in range(len(tables[0]))
    ]
    return Effect(Kind.FACT, pd.DataFrame({ALL: holds}, index=tables[0].index))


def curve(cells: Cells, figure: Figure, *, of: Selector, over: Selector, along: str) -> Cells:
    """The ratio against one axis: a row per value with `value`, `low` and `high`, for plots."""
    above, below = _ratios(cells, figure, of, over, [along])
    rows = {}
    for value, ratios in (above / below).items():
        found = geometric_mean_of(ratios.to_numpy(float))
        rows[value] = (found.value, *found.ends)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])
