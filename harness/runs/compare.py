"""Two selections of runs against each other: effect sizes, paired by seed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.config.names import unknown_name
from harness.runs.figures import View
from harness.runs.record import read_run, read_summaries
from harness.runs.stats import Estimate, paired_ratio
from harness.runs.trace_intervals import BLOCK, KEY, Served, contrast

SEED = "config.seed"
CHOSEN = "config.chosen."
SAME = "same requests"
MOST_SAID = 4
"""Differences that a sentence names."""
MOST_LETTERS = 40
"""Of a value that it names."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Runs of one scenario: those of a folder with these values, or one run by its name."""

    folder: Path
    run: str | None
    where: Mapping[str, str]

    def rows(self) -> pd.DataFrame:
        """As `read_summaries` has them; of runs of one configuration the newest.

        Raises ValueError for a key that no run has, and where no run is left.
        """
        rows = read_summaries(self.folder)
        if self.run is not None:
            rows = rows[rows.index == self.run]
        for key, value in self.where.items():
            if not rows.empty:
                rows = rows[rows[_column(rows, key)].map(lambda it, wanted=value: _is(it, wanted))]
        if rows.empty:
            raise ValueError(f"there are no runs of {self}")
        configuration = [name for name in rows if str(name).startswith("config.")]
        newest_last = rows.sort_values("started", kind="stable")
        older = newest_last.duplicated(configuration, keep="last")
        return rows.loc[[run for run in rows.index if not older[run]]]

    def __str__(self) -> str:
        """As it is given on a command line."""
        place = str(self.folder if self.run is None else self.folder / self.run)
        values = ",".join(f"{key}={value}" for key, value in self.where.items())
        return f"{place}:{values}" if values else place


def selection(text: str, results: Path) -> Selection:
    """What `PLACE` or `PLACE:KEY=VALUE,...` selects.

    A place is the folder of a scenario or of a run, or its name below `results`. Raises ValueError,
    in one sentence, for a place that is not there and for what is no `KEY=VALUE`.
    """
    # A path may have colons itself: the longest that is a folder is the place.
    ends = [it.start() for it in re.finditer(":|$", text)]
    names = [text[:end] for end in reversed(ends) if end]
    found = [(path, name) for name in names for path in (Path(name), results / name)]
    place, name = next(((path, name) for path, name in found if path.is_dir()), (None, ""))
    values = text[len(name) + 1 :]
    if place is None:
        name = text.partition(":")[0]
        known = {path.name: None for path in results.glob("[!.]*") if scenario_runs(path)}
        raise ValueError(f"{unknown_name('folder of runs', name, known)} (below {results})")
    where = {}
    for word in filter(None, re.split(r",(?=[\w./]+=)", values)):
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise ValueError(f"{text}: {word} is no KEY=VALUE")
        where[key] = value
    if (place / "config.yaml").is_file():
        return Selection(place.resolve().parent, place.resolve().name, where)
    return Selection(place, None, where)


def scenario_runs(folder: Path) -> list[Path]:
    """Folders of runs in the folder of a scenario, whole or not."""
    return [
        path
        for path in sorted(folder.glob("[!.]*"))
        if any((path / name).is_file() for name in ("config.yaml", "manifest.json"))
    ]


def _column(rows: pd.DataFrame, key: str) -> str:
    for column in (f"{CHOSEN}{key}", f"config.{key}"):
        if column in rows:
            return column
    known = [name.removeprefix(CHOSEN).removeprefix("config.") for name in map(str, rows)]
    raise ValueError(unknown_name("key of these runs", key, dict.fromkeys(known)))


def _is(value: object, wanted: str) -> bool:
    """Whether a value reads as wanted; numbers whatever their digits."""
    try:
        return str(value) == wanted or float(str(value)) == float(wanted)
    except ValueError:
        return False


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


def key_of(column: str) -> str:
    """A column's name as a command line has it."""
    return column.removeprefix(CHOSEN).removeprefix("config.")


def compared(one: pd.DataFrame, other: pd.DataFrame, figures: Sequence[str]) -> pd.DataFrame:
    """A row per common setting and figure: means of both, their ratio by seed, and the seeds.

    Settings are what the runs of either differ in; that in which the two differ is what is
    compared. Columns are the settings' keys, `figure`, `A`, `B`, `A / B` (an `Estimate`; None where
    a value is not positive), `seeds` and `SAME`, whether both served the same requests, None where
    either replays no trace. Of the same requests an interval is over blocks of the trace, of others
    there is none. Raises ValueError where there is no pair, or several runs for one place.
    """
    both = pd.concat([one, other])
    said = [name for name in axes(both) if not _is_the_difference(one, other, name)]
    places = [*said, SEED]
    sides = [_by_place(rows, places) for rows in (one, other)]
    common = sides[0].index.intersection(sides[1].index, sort=False)
    if common.empty:
        keys = ", ".join(map(key_of, places))
        raise ValueError(f"the two have no runs in common: none has the same {keys}")
    left, right = (side.loc[common] for side in sides)
    lines = []
    settings = [tuple(place)[:-1] for place in common]
    for setting in dict.fromkeys(settings):
        here = np.array([other == setting for other in settings])
        named = dict(zip(map(key_of, said), setting, strict=True))
        pair = left[here].iloc[0], right[here].iloc[0]
        requests = _of_traces(*pair)
        same = None if requests is None else _are_same(pair, requests)
        for figure in figures:
            a, b = (pd.to_numeric(side[figure])[here].to_numpy(float) for side in (left, right))
            positive = bool(((a > 0) & (b > 0)).all())
            ratio = paired_ratio(a, b) if positive else None
            if ratio is not None and requests is not None:
                found = _over_blocks(pair, figure) if same else None
                ratio = found or Estimate(ratio.value, None, None, 1)
            shown = {"figure": figure, "A": a.mean(), "B": b.mean(), "A / B": ratio}
            lines.append({**named, **shown, "seeds": len(a), SAME: same})
    return pd.DataFrame(lines)


def also_differ(one: pd.DataFrame, other: pd.DataFrame, asked: Sequence[str]) -> str | None:
    """A sentence where runs differ in more than what is compared.

    `asked` are the keys that the selections name; without any the first difference, a choice of a
    file before single keys, is what is compared.
    """
    names = [name for name in axes(pd.concat([one, other])) if _is_the_difference(one, other, name)]
    names.sort(key=lambda name: not name.startswith(CHOSEN))
    wanted = set(asked) or {key_of(name) for name in names[:1]}
    also = [
        f"{key_of(name)} ({_short(one[name].iloc[0])}, {_short(other[name].iloc[0])})"
        for name in names
        if key_of(name) not in wanted
    ]
    more = f" and {len(also) - MOST_SAID} more" if len(also) > MOST_SAID else ""
    return f"A and B differ also in {', '.join(also[:MOST_SAID])}{more}" if also else None


def _short(value: object) -> str:
    """A value as a sentence has it: of a path its end."""
    text = _text(value)
    return text if len(text) <= MOST_LETTERS else f"...{text[-MOST_LETTERS:]}"


def _are_same(
    runs: tuple[pd.Series, pd.Series], requests: tuple[pd.DataFrame, pd.DataFrame]
) -> bool:
    """Whether requests are the same: numbers, lengths and arrivals.

    Lengths of answers are compared where both are finished. In a closed loop, and of the turns of a
    session, arrivals depend on answers: those of runs of one workload need not be the same.
    """
    one, other = requests
    if one["request"].tolist() != other["request"].tolist():
        return False
    ended = (one["finished_s"].notna() & other["finished_s"].notna()).to_numpy()
    columns = {"prompt_tokens": np.full(len(one), True), "output_tokens": ended}
    workload = [it.filter(regex=r"^config\.workload\.").map(_text) for it in runs]
    if not workload[0].equals(workload[1].reindex(workload[0].index)):
        columns["arrival_s"] = ~one["app"].duplicated().to_numpy()
    return all(
        np.allclose(one[name].to_numpy(float)[at], other[name].to_numpy(float)[at], equal_nan=True)
        for name, at in columns.items()
    )


def _of_traces(one: pd.Series, other: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The requests of two runs by number; None unless both replay a trace."""
    # Of a trace seeds draw nothing.
    if not all(pd.notna(run.get(f"{KEY}.{BLOCK}", np.nan)) for run in (one, other)):
        return None
    read = (pd.read_parquet(Path(str(run["folder"])) / "requests.parquet") for run in (one, other))
    a, b = (table.sort_values("request") for table in read)
    return a, b


def _over_blocks(
    runs: tuple[pd.Series, pd.Series],
    figure: str,
) -> Estimate | None:
    """The ratio of two runs of the same requests with an interval over blocks of their trace."""
    above, below = map(served_of, runs)
    return contrast(above, below, figure).ratio


def served_of(run: "pd.Series[Any]") -> Served:
    """The counted requests of a run, a row of `read_summaries`."""
    return View(read_run(Path(str(run["folder"])))).served()


def _is_the_difference(one: pd.DataFrame, other: pd.DataFrame, name: str) -> bool:
    """Whether each side has one value of a column, and not the same."""
    return all(
        rows.reindex(columns=[name])[name].nunique(dropna=False) == 1 for rows in (one, other)
    )


def _by_place(rows: pd.DataFrame, places: Sequence[str]) -> pd.DataFrame:
    """Rows under their values at the places, as text. ValueError where two are at the same."""
    texts = rows.reindex(columns=list(places)).map(_text)
    index = pd.MultiIndex.from_frame(texts)
    if index.has_duplicates:
        twice = rows.index[index.duplicated(keep=False)]
        raise ValueError(
            f"{twice[0]} and {twice[1]} are of the same setting and seed: name one of them"
        )
    return rows.set_axis(index)


def _text(value: object) -> str:
    """A value as text, whole numbers without the digits that a table gave them."""
    is_whole = isinstance(value, float | np.floating) and np.isfinite(value) and value == int(value)
    return str(int(value)) if is_whole else str(value)  # type: ignore[call-overload]
