"""Maps of claims as the report explores them: cells of a space once, as columns, then each claim.

From results/conditions: PAPER.json and PAPER/SPACE.csv. Words, scales and ranges are those of the
paper's space; a map of a space that was changed since is left out.
"""

import sys
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd

from harness.claims.paper import Claim, load_paper
from harness.claims.texts import printed
from harness.conditions.cells import STATE
from harness.conditions.outcomes import Outcome
from harness.conditions.space import Point, Space, read_spaces
from harness.conditions.texts import name_of
from harness.conditions.trials import CAPACITY, HIGH, LOW, OUTCOME, SEEDS, SHARE, VALUE, WHY
from harness.report.pages import read_json
from harness.report.render import Frames

SENTENCES = ("condition", "state", "reversed", "no_effect", "change")
EFFECT = (VALUE, LOW, HIGH, SHARE)


def maps_part(results: Path) -> Frames | None:
    """What can come out, and the papers that have maps; None where none has."""
    paths = sorted((results / "conditions").glob("*.json"))
    every = [it for path in paths if (it := paper_maps(path))["claims"]]
    return {"outcomes": [one.value for one in Outcome], "papers": every} if every else None


def paper_maps(path: Path) -> Frames:
    """The maps of a paper: its spaces by name, and the claims that have one."""
    paper, spaces, kept = load_paper(path.stem), read_spaces(path.stem), dict[str, Frames]()
    claims = []
    for name, one in read_json(path).items():
        space, claim = spaces.get(one["space"]), paper.claims.get(name)
        cells = path.with_suffix("") / f"{one['space']}.csv"
        why = _lack(name, space, claim, one, cells)
        if why or space is None or claim is None:
            print(f"left out: the map of {name}: {why}", file=sys.stderr)
            continue
        table = pd.read_csv(cells)
        kept.setdefault(space.name, _space(space, table))
        claims.append(_claim(claim, space, one, table))
    return {"paper": paper.name, "title": paper.title, "spaces": kept, "claims": claims}


def _lack(
    name: str, space: Space | None, claim: Claim | None, one: Mapping[str, Any], cells: Path
) -> str:
    """Why a map cannot be shown; empty where it can."""
    if space is None or claim is None or one["digest"] != space.digest:
        return "its space or its claim has been changed since"
    if not cells.is_file() or f"{name} {OUTCOME}" not in pd.read_csv(cells, nrows=0):
        return f"{cells.name} has not its cells"
    return ""


def _space(space: Space, table: pd.DataFrame) -> Frames:
    """Axes with their ranges, and a column for each; sentences of impossible cells by number."""
    axes = [
        [it.name, name_of(it.name, space), it.words, it.is_log, it.low, it.high]
        for it in space.dimensions
    ]
    axes += [[it, name_of(it, space), words, False, 0, 1] for it, words in STATE.items()]
    names = [str(it[0]) for it in axes if table[str(it[0])].nunique() > 1]
    whys = table[WHY].dropna().astype(str)
    return {
        "axes": [it for it in axes if it[0] in names],
        "dimensions": len(space.dimensions),
        "columns": {name: digits(table[name]) for name in (*names, CAPACITY, SEEDS)},
        "why": {str(number): why for number, why in whys.items()},
    }


def _claim(claim: Claim, space: Space, one: Mapping[str, Any], table: pd.DataFrame) -> Frames:
    places = {it.value: number for number, it in enumerate(Outcome)}
    return {
        "id": claim.id,
        "says": claim.words,
        "unit": claim.unit,
        "printed": printed(claim.paper, claim.printed, claim.unit).short,
        "space": space.name,
        "comes": one["counts"][Outcome.COMES_OUT] / max(1, sum(one["counts"].values())),
        "sentences": [one[key] for key in SENTENCES if one[key]],
        "from": one["from"],
        "start": [one["at_start"][key] for key in (OUTCOME, *EFFECT)],
        "basis": one.get("basis", ""),
        "influence": [*one["influence"]],
        "boxes": [it["box"]["limits"] for it in one["boxes"]],
        "points": one.get("points") or [*_points(space)],
        "outcome": [places[it] for it in table[f"{claim.id} {OUTCOME}"]],
        **{key: digits(table[f"{claim.id} {key}"]) for key in EFFECT},
    }


def _points(space: Space) -> Iterator[Point]:
    """A paper's own points where they follow from its space: loads of rates do not."""
    if space.rates:
        return
    one = {it.name: it.reference[0] for it in space.dimensions}
    longest = max(space.dimensions, key=lambda it: len(it.reference))
    yield from ({**one, longest.name: value} for value in longest.reference)


def digits(column: pd.Series) -> list[float | int | None]:
    """Four digits, whole numbers without a point, None for what is no number."""
    rounded = (float(f"{it:.4g}") for it in column)
    return [None if not isfinite(it) else int(it) if it == int(it) else it for it in rounded]
