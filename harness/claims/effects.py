"""Effects: what a claim function returns, and the helpers that compute one from cells.

Cells are a tidy data frame with one row per run: a column per axis of the scenario (`seed` and, for
instance, `system`, `requests`), the figures of the run's summary, and `folder`. A selector is a
mapping from axes to values, or a list of selectors whose figures are added. A figure is a column,
or a function of the run in the folder for what no summary holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from harness.config.names import unknown_name
from harness.runs.cells import Run
from harness.runs.record import read_run
from harness.runs.stats import geometric_mean_of

Cells = pd.DataFrame
Selector = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Measure = str | Callable[[Run], float]

SEED = "seed"
ALL = "all"
"""Name of the only column of samples that are not told apart by setting."""
PROBE = "probe"
"""Folder of a cell that has not run; every figure of it is 1."""


class ClaimError(ValueError):
    """A claim asks for an axis, a value or a figure that its cells do not have."""


class NoCellError(ClaimError):
    """No cell has a value that a claim asks for."""


class EffectKind(StrEnum):
    """What an effect is, which decides its interval and its rule (`harness.claims.verdicts`)."""

    RATIO = "ratio"  # samples are ratios; no effect is 1
    REDUCTION = "reduction"  # samples are ratios, the effect is 1 minus their mean; no effect is 0
    DIFFERENCE = "difference"  # samples are differences of shares; no effect is 0
    RANGE = "range"  # ratios at several settings, claimed to span a range
    ABSOLUTE = "absolute"  # a value in its own unit
    AT_MOST = "at most"  # a value with an upper bound, at every setting
    AT_LEAST = "at least"  # a value with a lower bound, at every setting
    EQUAL = "equal"  # a ratio that is claimed not to differ, at every setting
    TREND = "trend"  # change of a logarithm from first to last, positive where it is as claimed
    FACT = "fact"  # whether something is so, by seed


RATIOS = (EffectKind.RATIO, EffectKind.REDUCTION, EffectKind.RANGE, EffectKind.EQUAL)
"""Effects whose samples are ratios."""
SMALL_SHARE = 0.05
"""Shares below it are compared by their difference, no longer by their ratio."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Samples of an effect: one row per seed, one column per setting (`ALL` where averaged).

    `printed` replaces the claim's printed number where the effect has another unit, NaN where the
    paper prints none. Raises ClaimError for no seed, and for a ratio that has no logarithm.
    """

    kind: EffectKind
    samples: pd.DataFrame
    printed: float | None = None

    def __post_init__(self) -> None:
        if self.samples.empty:
            raise ClaimError("no seed has its figures at every setting")
        values = self.samples.to_numpy(float)
        if self.kind in RATIOS and not (np.isfinite(values) & (values > 0)).all():
            raise ClaimError("a ratio of figures that are not positive")


def name_of(setting: object) -> str:
    """A column of samples in words."""
    return ", ".join(map(str, setting)) if isinstance(setting, tuple) else str(setting)


def select(cells: Cells, at: Mapping[str, Any]) -> Cells:
    """The cells with these values on their axes. Raises NoCellError where there are none."""
    for axis, value in at.items():
        if axis not in cells:
            raise ClaimError(unknown_name("axis", axis, dict.fromkeys(map(str, cells.columns))))
        there, cells = cells[axis], cells[cells[axis].isin([value])]
        if cells.empty:
            known = ", ".join(map(str, there.unique()[:12]))
            raise NoCellError(f"no cell has {axis}={value}; there are {known}")
    return cells


def figures(
    cells: Cells, figure: Measure, at: Selector, settings: Sequence[str] = ()
) -> pd.DataFrame:
    """A figure of the selected cells: rows are seeds, columns the settings.

    Seeds without the figure at every setting are left out. A selector that fixes one of the
    settings has the same figure at all of its values. Raises ClaimError for what the cells do not
    have.
    """
    if not isinstance(at, Mapping):
        total, *others = (figures(cells, figure, one, settings) for one in at)
        for other in others:
            total = total.add(other).dropna(axis=1, how="all").dropna()
        return total
    chosen = select(cells, at)
    keys = [SEED, *settings]
    if unknown := [axis for axis in keys if axis not in chosen]:
        raise ClaimError(unknown_name("axis", unknown[0], dict.fromkeys(map(str, cells.columns))))
    free = [axis for axis in keys if axis not in at]
    if count := int(chosen.duplicated(free, keep=False).sum()):
        raise ClaimError(
            f"{count} cells have the same {', '.join(free)} at {dict(at)}; name more axes"
        )
    values = chosen[keys].assign(**{ALL: _values(chosen, figure)})
    for axis in settings:
        if axis in at:
            values = values.drop(columns=axis).merge(cells[[axis]].drop_duplicates(), how="cross")
    values = values.set_index(keys)
    return (values[ALL].unstack(list(settings)) if settings else values).dropna()


def _values(cells: Cells, figure: Measure) -> list[float]:
    if not isinstance(figure, str):
        return [value_of(figure, it) for it in cells["folder"]]
    if figure not in cells:
        raise ClaimError(unknown_name("figure", figure, dict.fromkeys(map(str, cells.columns))))
    return cells[figure].astype(float).tolist()


def value_of(figure: Callable[[Run], float], place: Run | str) -> float:
    """A figure of a run, or of the run in a folder; 1 of a `PROBE`."""
    if isinstance(place, Run):
        return float(figure(place))
    return 1.0 if place == PROBE else _of_folder(figure, place)


@cache
def _of_folder(figure: Callable[[Run], float], folder: str) -> float:
    """Folders never change, and several claims ask for the same figure."""
    return float(figure(run_in(folder)))


@lru_cache(maxsize=8192)
def run_in(folder: str) -> Run:
    """The run of a folder, of which several figures are asked for one after the other."""
    return read_run(Path(folder))


def _sides(
    cells: Cells, figure: Measure, of: Selector, over: Selector, settings: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Figures of `of` and of `over` at the seeds and settings that both have."""
    above, below = (figures(cells, figure, at, settings) for at in (of, over))
    return above.align(below, join="inner")


def ratio(
    cells: Cells, figure: Measure, *, of: Selector, over: Selector, average_over: Sequence[str] = ()
) -> Effect:
    """The figure of `of` over that of `over`, by seed.

    Over several settings: the average figure of the one over the average figure of the other.
    """
    above, below = _sides(cells, figure, of, over, average_over)
    return Effect(EffectKind.RATIO, (above.mean(axis=1) / below.mean(axis=1)).to_frame(ALL))


def reduction(
    cells: Cells, figure: Measure, *, of: Selector, over: Selector, average_over: Sequence[str] = ()
) -> Effect:
    """What `of` saves of the figure of `over`: 1 minus their `ratio`."""
    found = ratio(cells, figure, of=of, over=over, average_over=average_over)
    return replace(found, kind=EffectKind.REDUCTION)


def share_ratio(
    of: Effect,
    over: Effect,
    *,
    paper: tuple[float, float] | None = None,
    by_setting: bool = False,
) -> Effect:
    """The mean share of `of` over that of `over`, by seed; both are values over settings.

    With `by_setting` the ratio at every setting, for a claim such as "up to 1.8x". Where one of the
    shares is below 5% on average over seeds, or 0 with one, the effect is the difference of the
    shares, to be compared with that of the printed pair `paper`.
    """
    frames = (one.samples for one in (of, over))
    sides = [it if by_setting else it.mean(axis=1).to_frame(ALL) for it in frames]
    above, below = sides[0].align(sides[1], join="inner")
    if all((it.mean() >= SMALL_SHARE).all() and (it > 0).all(axis=None) for it in (above, below)):
        return Effect(EffectKind.RANGE if by_setting else EffectKind.RATIO, above / below)
    printed = float("nan") if paper is None else paper[0] - paper[1]
    return Effect(EffectKind.DIFFERENCE, above - below, printed)


def over_settings(
    cells: Cells, figure: Measure, *, of: Selector, over: Selector, settings: Sequence[str]
) -> Effect:
    """The ratio at every setting, for a claim such as "1.1-2.4x"."""
    above, below = _sides(cells, figure, of, over, settings)
    return Effect(EffectKind.RANGE, above / below)


def joined(*parts: Effect) -> Effect:
    """One effect over the settings of several, at the seeds that all have."""
    frames = [
        part.samples.set_axis([f"{number}: {name_of(name)}" for name in part.samples], axis=1)
        for number, part in enumerate(parts)
    ]
    return Effect(parts[0].kind, pd.concat(frames, axis=1, join="inner"))


def absolute(
    cells: Cells, figure: Measure, at: Selector, *, average_over: Sequence[str] = ()
) -> Effect:
    """The figure itself, averaged over settings."""
    found = figures(cells, figure, at, average_over)
    return Effect(EffectKind.ABSOLUTE, found.mean(axis=1).to_frame(ALL))


def at_most(cells: Cells, figure: Measure, at: Selector, *, settings: Sequence[str] = ()) -> Effect:
    """The figure at every setting, of which the largest is claimed to stay below a bound."""
    return Effect(EffectKind.AT_MOST, figures(cells, figure, at, settings))


def at_least(
    cells: Cells, figure: Measure, at: Selector, *, settings: Sequence[str] = ()
) -> Effect:
    """The figure at every setting, of which the smallest is claimed to stay above a bound."""
    return Effect(EffectKind.AT_LEAST, figures(cells, figure, at, settings))


def equal(
    cells: Cells, figure: Measure, *, of: Selector, over: Selector, settings: Sequence[str] = ()
) -> Effect:
    """The ratio at every setting, claimed to be the paper's value ("makes no difference": 1)."""
    found = over_settings(cells, figure, of=of, over=over, settings=settings)
    return replace(found, kind=EffectKind.EQUAL)


def trend(
    cells: Cells,
    figure: Measure,
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
    ratios = over_settings(cells, figure, of=of, over=over, settings=[along, *average_over])
    logs = ratios.samples.map(np.log)
    values = logs.columns.get_level_values(along)
    if not is_numeric_dtype(values) or values.nunique() < 2:
        known = ", ".join(map(str, values.unique()))
        raise ClaimError(f"a trend along {along} needs two numbers; there are {known}")
    first, last = (logs.loc[:, values == end] for end in (values.min(), values.max()))
    change = last.mean(axis=1) - first.mean(axis=1)
    return Effect(EffectKind.TREND, (change if rising else -change).to_frame(ALL))


def share_of_seeds(
    cells: Cells,
    fact: Callable[..., bool],
    *figures_of: tuple[Measure, Selector],
    settings: Sequence[str] = (),
) -> Effect:
    """In which seeds `fact` holds at every setting; its arguments are these figures there."""
    parts = [figures(cells, figure, at, settings) for figure, at in figures_of]
    # A row per seed and setting, a column per argument.
    stacked = [part.stack(list(range(part.columns.nlevels))) for part in parts]
    table = pd.concat(stacked, axis=1).dropna()
    holds = pd.Series([fact(*row) for row in table.to_numpy()], table.index, dtype=bool)
    return Effect(EffectKind.FACT, holds.groupby(level=SEED).all().to_frame(ALL))


def curve(cells: Cells, figure: Measure, *, of: Selector, over: Selector, along: str) -> Cells:
    """The ratio against one axis: a row per value with `value`, `low` and `high`, for plots."""
    found = over_settings(cells, figure, of=of, over=over, settings=[along]).samples
    means = {value: geometric_mean_of(found[value].to_numpy(float)) for value in found}
    rows = {value: (one.value, *one.ends) for value, one in means.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])
