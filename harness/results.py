"""What was run: `python -m harness results verify | list | index | compare A B`.

A and B are PLACE or PLACE:KEY=VALUE,...: the folder of a scenario or of a run, or its name below
the results, and which of its runs, as in `ensembling:system=max_heuristic,seed=0`. Of
several runs of one configuration the newest is compared.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from harness.config.names import unknown_name
from harness.runs.comparison import (
    CHOSEN,
    SEED,
    axes,
    compared,
    differences,
    key_of,
    of_sides,
    text_of,
    texts,
)
from harness.runs.figures import FIGURES
from harness.runs.record import NOTES, damage_of, read_summaries
from harness.runs.table import basis, print_table
from harness.runs.trace_intervals import BLOCK, KEY


def scenarios(results: Path, names: Sequence[str]) -> Iterator[Path]:
    """Folders of scenarios, those named or all that have runs. ValueError for one that is not."""
    if not results.is_dir():
        raise ValueError(f"--results {results} is no folder")
    known = {path.name: path for path in sorted(results.glob("[!.]*")) if scenario_runs(path)}
    for name in names or known:
        if name not in known:
            raise ValueError(f"{unknown_name('scenario with runs', name, known)} (below {results})")
        yield known[name]


def verify(results: Path, names: Sequence[str]) -> int:
    """Hold every run against its manifest; 1 where one is damaged."""
    whole = damaged = 0
    for scenario in scenarios(results, names):
        for folder in scenario_runs(scenario):
            if damage := damage_of(folder):
                print(f"{scenario.name}/{folder.name} {damage}")
                damaged += 1
            else:
                whole += 1
    print(f"{whole} runs are as they were written, {damaged} are not")
    return 1 if damaged else 0


def listed(results: Path, names: Sequence[str]) -> None:
    """Print a line per run."""
    lines = []
    lost: list[str] = []
    for scenario in scenarios(results, names):
        rows = read_summaries(scenario, lost=lost)
        names = [*axes(rows), *([SEED] if SEED in rows else [])]
        for run, row in rows.iterrows():
            said = " ".join(f"{key_of(name)}={row[name]}" for name in names)
            date = str(row["started"])[:19]
            lines.append((scenario.name, run, said, row["engine"], row["code"], date))
    names = ["scenario", "run", "setting", "engine", "code", "date"]
    print_table(pd.DataFrame(lines, columns=names).set_index(names), Console())
    _say_lost(lost)


def _say_lost(lost: Sequence[str]) -> None:
    for said in lost:
        print(f"left out: {said}", file=sys.stderr)


def index(results: Path, names: Sequence[str]) -> None:
    """Write one table of all runs; columns of one type: numbers, else texts."""
    lost: list[str] = []
    parts = [
        read_summaries(scenario, lost=lost)
        .rename_axis("run")
        .reset_index()
        .assign(scenario=scenario.name)
        for scenario in scenarios(results, names)
    ]
    if not parts:
        raise ValueError(f"there are no runs below {results}")
    rows = pd.concat(parts, ignore_index=True)
    for name in rows.select_dtypes(exclude="number"):
        rows[name] = [None if it is None or it != it else str(it) for it in rows[name]]
    path = results / "index.parquet"
    rows.set_index(["scenario", "run"]).to_parquet(path)
    print(f"wrote {path}: {len(rows)} runs of {len(parts)} scenarios")
    _say_lost(lost)


def scenario_runs(folder: Path) -> list[Path]:
    """Folders of runs in the folder of a scenario, whole or not."""
    return [
        path
        for path in sorted(folder.glob("[!.]*"))
        if any((path / name).is_file() for name in ("config.yaml", "manifest.json"))
    ]


def selection(text: str, results: Path) -> tuple[pd.DataFrame, list[str]]:
    """What `PLACE` or `PLACE:KEY=VALUE,...` selects, as `read_summaries` has it, and its keys.

    A place is the folder of a scenario or of a run, or its name below `results`. Of runs of one
    configuration the newest is taken. Raises ValueError, in one sentence, for a place or a key that
    is not there, for what is no `KEY=VALUE`, and where no run is left.
    """
    # A path may have colons itself: the longest that is a folder is the place.
    names = [text[: it.start()] for it in re.finditer(":|$", text) if it.start()]
    places = ((path, name) for name in names[::-1] for path in (Path(name), results / name))
    place, name = next(((path, name) for path, name in places if path.is_dir()), (None, ""))
    if place is None:
        known = {path.name: None for path in results.glob("[!.]*") if scenario_runs(path)}
        said = unknown_name("folder of runs", text.partition(":")[0], known)
        raise ValueError(f"{said} (below {results})")
    is_run = (place / "config.yaml").is_file()
    folder = place.resolve().parent if is_run else place
    lost: list[str] = []
    rows = read_summaries(folder, only={place.resolve().name} if is_run else None, lost=lost)
    _say_lost(lost)
    if rows.empty:
        raise ValueError(f"there are no runs of {text} that can be read")
    keys = []
    for word in filter(None, re.split(r",(?=[\w./]+=)", text[len(name) + 1 :])):
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise ValueError(f"{text}: {word} is no KEY=VALUE")
        keys.append(key)
        rows = rows[[_is(it, value) for it in rows[_column(rows, key)]]]
    if rows.empty:
        raise ValueError(f"there are no runs of {text}")
    configuration = [name for name in map(str, rows) if name.startswith("config.")]
    newest_last = rows.sort_values("started", kind="stable")
    newest = newest_last.drop_duplicates(configuration, keep="last").index
    return rows[rows.index.isin(newest)], keys


def _column(rows: pd.DataFrame, key: str) -> str:
    for column in (f"{CHOSEN}{key}", f"config.{key}"):
        if column in rows:
            return column
    known = dict.fromkeys(map(key_of, map(str, rows)))
    raise ValueError(unknown_name("key of these runs", key, known))


def _is(value: object, wanted: str) -> bool:
    """Whether a value reads as wanted; numbers whatever their digits."""
    try:
        return str(value) == wanted or float(str(value)) == float(wanted)
    except ValueError:
        return False


def compare(results: Path, a: str, b: str, asked: Sequence[str] = ()) -> None:
    """Print the figures of one selection over those of another; `asked` or those with a header."""
    (one, keys), (other, more) = (selection(text, results) for text in (a, b))
    both = pd.concat([one.assign(side="A"), other.assign(side="B")])
    numbers = both.select_dtypes("number").groupby(both["side"]).count().min()
    known = [str(it) for it in numbers.index if numbers[it] and not it.startswith("config.")]
    headed = [name for name, figure in FIGURES.items() if figure.header and name in known]
    figures = asked or headed
    if absent := [name for name in figures if name not in known]:
        raise ValueError(unknown_name("figure of both", absent[0], dict.fromkeys(known)))
    apart = of_sides(both, "side")
    at = [name for name in axes(both) if name not in apart]
    both[at] = both[at].map(text_of)
    found = compared(both, figures, by="side", reference="B", at=at)
    lines = found[found["side"] == "A"].rename(columns={"value": "A", "base": "B"})
    for line in differences(both, "side", keys + more):
        print(line)
    if is_other := lines["same"].eq(False).any():
        print("A and B served other requests: A / B is of two loads, not of one trace")
    lines["A / B"] = texts(lines, "ratio")
    lines[["A", "B"]] = lines[["A", "B"]].map("{:,.4g}".format)
    lines = lines.set_index([*map(key_of, at), "figure"])
    print_table(lines[["A", "B", "A / B", "seeds"]], Console())
    print(_about_ratios(both, is_one=not is_other))
    if "costs.profile" in both:
        print(basis(both.drop(columns=NOTES)))
    for side, text, rows in (("A", a, one), ("B", b, other)):
        newest = str(rows["started"].max())[:19]
        print(f"{side}: {text}, {len(rows)} runs, the newest of {newest}")


def _about_ratios(rows: pd.DataFrame, *, is_one: bool) -> str:
    """What the intervals are of; `is_one`: where A is of a trace, B served the same requests."""
    block = rows.get(f"{KEY}.{BLOCK}", pd.Series(dtype=float)).max()
    if not is_one:
        said = "of runs that served other requests, without an interval"
    elif np.isnan(block):
        said = "geometric mean over seeds of the ratio, with its 95% interval"
    elif not block:
        said = "of one trace, which is too short for an interval"
    else:
        said = f"of one trace, with the 95% interval over blocks of {block:,.0f} requests"
    return f"A / B: {said}; + better, - worse beyond noise"
