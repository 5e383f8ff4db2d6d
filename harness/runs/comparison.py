"""Runs against each other: rows paired by setting and seed, figures with intervals, one table.

Sides are what is compared: policies, systems, engines, or two selections of runs. Of runs that
replay a trace intervals are over blocks of its requests, of others over seeds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from harness.runs.figures import FIGURES, LESS, MORE, View, header_of
from harness.runs.limits import unlike_limits
from harness.runs.record import read_run
from harness.runs.stats import Estimate, Floats, mean_of, paired_ratio
from harness.runs.trace_intervals import BLOCK, KEY, Contrast, Served, contrast

SEED = "config.seed"
CHOSEN = "config.chosen."
BETTER = {MORE: 1.0, LESS: -1.0, "": np.nan}
"""Sign of a difference for the better, by which of two values is the better one."""
MOST_SAID = 4
"""Differences that a sentence names."""
MOST_LETTERS = 40
"""Of a value that it names."""


def key_of(column: str) -> str:
    """A column's name as a command line has it."""
    return column.removeprefix(CHOSEN).removeprefix("config.")


def axes(rows: pd.DataFrame) -> list[str]:
    """Columns of the configuration in which runs differ, the seed left out.

    What a choice of a group's file brings along is not named beside the choice.
    """
    found = [name for name in map(str, rows) if name.startswith("config.") and name != SEED]
    varying = [name for name in found if rows[name].nunique(dropna=False) > 1]
    chosen = [name for name in varying if name.startswith(CHOSEN)]
    return [name for name in varying if not any(_follows(rows, name, by) for by in chosen)]


def _follows(rows: pd.DataFrame, name: str, by: str) -> bool:
    group = by.removeprefix(CHOSEN).replace("/", ".")
    if not name.startswith(f"config.{group}."):
        return False
    return bool(rows.groupby(by, dropna=False)[name].nunique(dropna=False).max() <= 1)


def of_sides(rows: pd.DataFrame, by: str) -> list[str]:
    """The `axes` in which sides alone differ: each has one value, choices of a file first."""
    found = [it for it in axes(rows) if rows.groupby(by)[it].nunique(dropna=False).eq(1).all()]
    return sorted(found, key=lambda name: not name.startswith(CHOSEN))


class _Side:
    """The runs of one side at a setting, by seed."""

    def __init__(self, rows: pd.DataFrame) -> None:
        twice = rows.index[rows[SEED].duplicated(keep=False)]
        if len(twice):
            raise ValueError(
                f"{twice[0]} and {twice[1]} are of the same setting and seed: name one of them"
            )
        self.rows = rows.set_index(SEED)

    def values(self, figure: str) -> Floats:
        return pd.to_numeric(self.rows[figure], errors="coerce").to_numpy(float)

    @cached_property
    def view(self) -> View | None:
        """Of a trace, of which seeds draw nothing, the first run; None where none is replayed."""
        first = self.rows.iloc[0]
        is_replay = pd.notna(first.get(f"{KEY}.{BLOCK}", np.nan))
        return View(read_run(Path(str(first["folder"])))) if is_replay else None

    @cached_property
    def served(self) -> Served | None:
        return None if self.view is None else self.view.served()

    def interval(self, figure: str) -> tuple[float, float]:
        """Of the mean over seeds, or as the run of a trace has it; NaN where there is none."""
        if self.view is None:
            return _ends(mean_of(self.values(figure)))
        low, high = (f"{KEY}.{figure}.{end}" for end in ("low", "high"))
        first = self.rows.iloc[0]
        return float(first.get(low, np.nan)), float(first.get(high, np.nan))

    def serves_as(self, other: "_Side") -> bool | None:
        """Whether both served the same requests; None where either replays no trace.

        Lengths of answers are compared where both are finished. In a closed loop, and of the turns
        of a session, arrivals depend on answers: those of runs of one workload need not be equal.
        """
        if self.view is None or other.view is None:
            return None
        one, two = (it.requests.sort_values("request") for it in (self.view, other.view))
        if one["request"].tolist() != two["request"].tolist():
            return False
        ended = one["finished_s"].notna().to_numpy() & two["finished_s"].notna().to_numpy()
        columns = {"prompt_tokens": np.full(len(one), True), "output_tokens": ended}
        if self.view.run.config["workload"] != other.view.run.config["workload"]:
            columns["arrival_s"] = ~one["app"].duplicated().to_numpy()
        sides = ((one[name].to_numpy(float), two[name].to_numpy(float), name) for name in columns)
        return all(
            np.allclose(a[columns[it]], b[columns[it]], equal_nan=True) for a, b, it in sides
        )


def _ends(estimate: Estimate | None) -> tuple[float, float]:
    """The interval; NaN where there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return np.nan, np.nan
    return estimate.low, estimate.high


def _against(
    one: _Side, other: _Side, figure: str, same: bool
) -> tuple[Estimate | None, int | None]:
    """A ratio, and 1 where the one is larger beyond noise, -1 where it is smaller; None: not told.

    A trace is one sample: it has an interval over blocks, of the `same` requests alone. Of figures
    that have no ratio the one is larger where it is in every seed.
    """
    above, below = one.values(figure), other.values(figure)
    positive = bool(((above > 0) & (below > 0)).all())
    ratio = paired_ratio(above, below) if positive else None
    if one.served is not None and other.served is not None:
        found = contrast(one.served, other.served, figure) if same else Contrast(None, None)
        plain = None if ratio is None else Estimate(ratio.value, None, None, 1)
        return found.ratio or plain, found.sign
    if ratio is None or (above == below).all():
        return ratio, int((above > below).all()) - int((above < below).all())
    low, high = _ends(ratio)
    return ratio, None if np.isnan(low) else int(low > 1) - int(high < 1)


def compared(
    rows: pd.DataFrame, figures: Sequence[str], *, by: str, reference: str, at: Sequence[str] = ()
) -> pd.DataFrame:
    """A row per setting, figure and side: a mean, and how it compares with the other sides'.

    `rows` are those of `read_summaries`; column `by` names their side, columns `at` their setting.
    All sides of a setting are compared on the seeds that all of them have; a setting without the
    `reference` has no rows, nor has a figure without a value. Columns are the keys of `at` and
    `by`, `figure`, `seeds`, and

    value, low, high       the mean over seeds and its 95% interval
    base, ratio,           the reference's mean, and the geometric mean over seeds of the ratio to
    ratio_low, ratio_high  it: NaN where a value is not positive, its interval also where the two
                           served different requests of a trace
    sign                   1 where the side is better than the reference beyond noise, -1 where it
                           is worse, 0 where they are alike, NaN where that is not told
    best, to_best          the side of the best value, and the sign against that
    regret, rank           how much worse than the best, as a share; 1 and the number of sides that
                           are better beyond noise; NaN where the best value is not positive
    same                   whether the reference served the same requests; None of no trace

    Raises ValueError where nothing can be paired, and for several runs of one place.
    """
    found: list[dict[str, object]] = []
    for place, here in rows.groupby(list(at), sort=False, dropna=False) if at else [((), rows)]:
        sides = {str(name): _Side(part) for name, part in here.groupby(by, sort=False)}
        seeds = set.intersection(*(set(side.rows.index) for side in sides.values()))
        if reference not in sides or not seeds:
            continue
        for side in sides.values():
            side.rows = side.rows.loc[sorted(seeds)]
        setting = dict(zip(map(key_of, at), place, strict=True))
        for name, row in _rows(sides, reference, figures):
            found.append({**setting, key_of(by): name, **row})
    if not found:
        keys = ", ".join(map(key_of, (*at, SEED)))
        raise ValueError(f"the two have no runs in common: none has the same {keys}")
    return pd.DataFrame(found)


def _rows(
    sides: Mapping[str, _Side], reference: str, figures: Sequence[str]
) -> Iterator[tuple[str, dict[str, object]]]:
    """The sides of a setting with the rest of a row for each figure."""
    same = {name: side.serves_as(sides[reference]) for name, side in sides.items()}
    for figure in figures:
        means = {name: float(side.values(figure).mean()) for name, side in sides.items()}
        if not (known := [name for name in means if not np.isnan(means[name])]):
            continue
        pairs = {
            (one, other): _against(
                sides[one], sides[other], figure, bool(same[one] and same[other])
            )
            for one, other in product(sides, repeat=2)
        }
        up = BETTER[FIGURES[figure].better if figure in FIGURES else ""]
        # Not -0 where they are alike.
        signs = {two: up * (np.nan if it is None else it) + 0.0 for two, (_, it) in pairs.items()}
        best = max(known, key=lambda name: up * means[name])
        for name, side in sides.items():
            ratio, beaten = pairs[name, reference][0], sum(signs[it, name] == 1 for it in sides)
            ends = (*side.interval(figure), *_ends(ratio))
            regret = _regret(means[name], means[best], up)
            row = {"figure": figure, "seeds": len(side.rows), "value": means[name]}
            row |= {"base": means[reference], "ratio": np.nan if ratio is None else ratio.value}
            row |= dict(zip(("low", "high", "ratio_low", "ratio_high"), ends, strict=True))
            row |= {"sign": signs[name, reference], "best": best, "to_best": signs[name, best]}
            row |= {"regret": regret, "rank": np.nan if np.isnan(regret) else 1 + beaten}
            yield name, row | {"same": same[name]}


def _regret(value: float, best: float, up: float) -> float:
    """How much worse than the best, as a share; NaN where neither is better."""
    if not abs(up) * best > 0:
        return np.nan
    worse, better = (best, value) if up > 0 else (value, best)
    return worse / better - 1 if better else np.inf


def differences(rows: pd.DataFrame, by: str, asked: Collection[str] = ()) -> list[str]:
    """Sentences on limits in which runs differ, and on what else tells their sides apart.

    `asked` are the keys that are compared; without any the first difference, a choice of a file
    before single keys, is what is compared.
    """
    names = of_sides(rows, by)
    wanted = set(asked) or {key_of(name) for name in names[:1]}
    first = rows.groupby(by).first()
    also = [
        f"{key_of(name)} ({', '.join(map(_short, first[name]))})"
        for name in names
        if key_of(name) not in wanted
    ]
    more = f" and {len(also) - MOST_SAID} more" if len(also) > MOST_SAID else ""
    said = f"also unlike: {', '.join(also[:MOST_SAID])}{more}" if also else None
    return [*filter(None, (unlike_limits(rows), said))]


def _short(value: object) -> str:
    """A value as a sentence has it: of a path its end."""
    text = text_of(value)
    return text if len(text) <= MOST_LETTERS else f"...{text[-MOST_LETTERS:]}"


def text_of(value: object) -> str:
    """A value as text, whole numbers without the digits that a table gave them."""
    is_whole = isinstance(value, float | np.floating) and np.isfinite(value) and value == int(value)
    return str(int(value)) if is_whole else str(value)  # type: ignore[call-overload]


def texts(found: pd.DataFrame, what: str = "value") -> "pd.Series[str]":
    """Of each row of `compared` its `value` or `ratio`, with the interval in brackets.

    A + follows where the side is better than the reference beyond noise, a - where it is worse.
    """
    ends = ("ratio_low", "ratio_high") if what == "ratio" else ("low", "high")
    form = "{:.3f}" if what == "ratio" else "{:,.4g}"
    marks = {1.0: " +", -1.0: " -"}
    said = [
        "-"
        if np.isnan(value)
        else form.format(value)
        + ("" if np.isnan(low) else f" [{form.format(low)}, {form.format(high)}]")
        + marks.get(sign, "")
        for value, low, high, sign in found[[what, *ends, "sign"]].itertuples(index=False)
    ]
    return pd.Series(said, found.index)


def table_of(
    found: pd.DataFrame, down: Sequence[str], across: str, what: str = "value"
) -> pd.DataFrame:
    """`texts` of rows of `compared` as a table: columns `down` are its index, figures its headers.

    Rows and columns are in the order in which they first appear.
    """
    shown = found.assign(text=texts(found, what))
    table = shown.pivot_table("text", list(down), across, "first", fill_value="-", sort=False)
    return table.rename(columns=lambda name: header_of(str(name)))
