"""Lists of a scenario's cells: which runs its matrix and its variations have, and where each lies.

`results/<scenario>/cells_<variant>.json` is written by a command that runs a scenario as its file
has it, once all cells have ended. A run with another seed or size that was tried by hand lies in
the same folder and is in no list.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.scratch import write_whole
from harness.runs.config import HOW
from harness.runs.matrix import Place
from harness.runs.record import Row, read_rows

_KEPT = ["engine"]
"""Columns of `read_summaries` that stay as they are where an axis has the same name."""


@dataclass(frozen=True, slots=True)
class ScenarioCells:
    """A scenario's runs: of its matrix, and of each variation, named `key=value`.

    Rows are those of `read_summaries`, with a column per axis; `axes` names these columns.
    `missing` counts the listed runs that are not there.
    """

    axes: tuple[str, ...]
    reference: pd.DataFrame
    variations: dict[str, pd.DataFrame]
    missing: int = 0


def as_it_stands(given: Collection[str]) -> bool:
    """Whether a command that gives these keys runs the cells that a scenario's file has."""
    return {key.partition(".")[0] for key in given} <= {*HOW, "cluster", "scenario", "variant"}


def write_cells(folder: Path, variant: str, places: Mapping[str, Place], *, varied: bool) -> None:
    """Write the list of the runs at these places. Raises OSError.

    `varied` says whether variations were run; else those of the earlier list are kept where its
    reference has the same runs.
    """
    path = _path(folder, variant)
    own = {run: dict(it.setting) for run, it in places.items() if not it.varied}
    variations: dict[str, dict[str, Any]] = {}
    for run, place in places.items():
        if key := place.varied:
            setting = {axis: value for axis, value in place.setting.items() if axis != key}
            variations.setdefault(f"{key}={_text(place.setting[key])}", {})[run] = setting
    if not varied:
        try:
            earlier = _read(path)
        except ValueError:
            earlier = {}
        if earlier and earlier["reference"].keys() == own.keys():
            variations = earlier["variations"]
    axes = dict.fromkeys(axis for setting in own.values() for axis in setting)
    content = {"axes": [*axes], "reference": own, "variations": variations}
    write_whole(path, json.dumps(content, indent=0) + "\n")


def read_cells(folder: Path, variant: str) -> ScenarioCells:
    """The listed runs in a scenario's folder; empty frames where there is no list, or no run.

    The column of an axis has the last component of its key, as in `workload.requests`; the items of
    a list are joined by +. An axis takes the place of a figure with its name (`requests`). Raises
    ValueError for a damaged list and for two axes of one name.
    """
    listed = _read(_path(folder, variant))
    if not listed:
        return ScenarioCells((), pd.DataFrame(), {})
    reference, variations = listed["reference"], listed["variations"]
    names = _names(listed["axes"])
    runs = {run for part in _parts(listed) for run in part}
    rows = read_rows(folder, only=runs)
    return ScenarioCells(
        tuple(names.values()),
        _frame(rows, reference, names),
        {key: _frame(rows, part, names) for key, part in variations.items()},
        missing=len(runs - rows.keys()),
    )


def _path(folder: Path, variant: str) -> Path:
    return folder / f"cells_{variant}.json"


def _read(path: Path) -> dict[str, Any]:
    """What a list holds; empty where there is none. Raises ValueError for anything else."""
    if not path.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no list of cells, remove it: {error}") from None
    return found


def _parts(listed: Mapping[str, Any]) -> list[Mapping[str, Mapping[str, object]]]:
    """The runs of the reference and of each variation, with their values on the axes."""
    return [listed["reference"], *listed["variations"].values()]


def _names(axes: Sequence[str]) -> dict[str, str]:
    """The column of each axis. Raises ValueError where two have one."""
    names = {axis: column_of(axis) for axis in axes}
    for one, other in combinations(axes, 2):
        if names[one] == names[other]:
            raise ValueError(f"the axes {one} and {other} would both be the column {names[one]}")
    return names


def column_of(axis: str) -> str:
    """The column of an axis: the last component of its key."""
    return re.split(r"[./]", axis)[-1]


def _frame(
    rows: Mapping[str, Row], listed: Mapping[str, Mapping[str, object]], names: Mapping[str, str]
) -> pd.DataFrame:
    """The rows of these runs and their values on the axes."""
    there = {run: setting for run, setting in listed.items() if run in rows}
    frame = pd.DataFrame.from_dict({run: rows[run] for run in there}, orient="index")
    if frame.empty:
        return frame
    settings = pd.DataFrame.from_dict(there, orient="index").rename(columns=names)
    settings = settings.drop(columns=_KEPT, errors="ignore")
    return pd.concat([frame.drop(columns=settings, errors="ignore"), settings.map(_plain)], axis=1)


def _plain(value: object) -> object:
    """A value in a column: the items of a list as one text."""
    return "+".join(map(str, value)) if isinstance(value, list) else value


def _text(value: object) -> str:
    """A value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
