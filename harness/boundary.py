"""Both sides of a limit on real vLLM: `python -m harness conditions PAPER [CLAIM ...] --real`.

`systems/<paper>/boundary.yaml` names claims that have a map, and for each the settings along one
dimension, with a model that this machine serves. Every setting is served on real vLLM and on the
simulator; a load is a share of what the same engine serves of a backlog. Prints, and writes as
conditions/<paper>/<claim>.measured.json: what the map says of the setting, what comes out of the
claim on the simulator with this model, and what is measured.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field
from rich.console import Console

from harness.conditions.cells import Ground, ground_of
from harness.conditions.maps import Map
from harness.conditions.outcomes import Found, Outcome
from harness.conditions.space import read_spaces, space_of
from harness.conditions.trials import OfPaper, tried
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.schema import Schema, fits
from harness.config.yaml_files import read_yaml
from harness.runs import published
from harness.runs.building import cell_of
from harness.runs.config import configuration
from harness.runs.provenance import machine
from harness.runs.table import print_table

MEASURED, SIMULATED = "measured", "simulated"


class Boundary(Schema):
    """What is served of a claim: its space with some of its content changed, and settings in it.

    `measured` are words for the real engine; `at` are values of the dimension `along`, others are
    as `setting` has them.
    """

    space: str
    change: dict[str, Any] = Field(default_factory=dict)
    measured: tuple[str, ...]
    along: str
    at: tuple[float, ...]
    setting: dict[str, float]
    seeds: int


@dataclass(frozen=True, slots=True)
class OnBothEngines:
    """A setting: whether it is inside the map's box, and what comes out on each engine."""

    value: float
    inside: bool
    found: Mapping[str, Found]

    @property
    def is_as_told(self) -> bool:
        """Whether the claim comes out, measured, inside the box alone."""
        return (self.found[MEASURED].outcome is Outcome.COMES_OUT) == self.inside


def read_boundaries(paper: str) -> dict[str, Boundary]:
    """By claim. Raises ValueError for a paper that states none, and for what a file may not say."""
    path = ROOT / "systems" / paper / "boundary.yaml"
    if not path.is_file():
        raise ValueError(f"{paper} has no boundary.yaml: no settings are stated for real engines")
    return {name: fits(it, Boundary, f"{path}: {name}") for name, it in read_yaml(path).items()}


def grounds_of(paper: str, asked: Boundary) -> dict[str, Ground]:
    """Where the settings are served: on the simulator, and on the real engine."""
    content = {**read_spaces(paper)[asked.space].content, **asked.change}
    real = {**content, "words": [*content.get("words", []), *asked.measured]}
    sides = {SIMULATED: content, MEASURED: real}
    return {name: ground_of(space_of(asked.space, it)) for name, it in sides.items()}


def sides_of(
    paper: str, claim: str, asked: Boundary, grounds: Mapping[str, Ground]
) -> Iterator[OnBothEngines]:
    """Each setting as it is done. Raises ValueError for one that an engine refuses."""
    space = read_spaces(paper)[asked.space]
    cells = published.place("conditions", publish=True) / paper / f"{space.name}.csv"
    boxes = Map(space, claim, pd.read_csv(cells)).box
    changed = grounds[SIMULATED].space
    claims = {claim: OfPaper(paper, space.name, changed.content).claims[claim]}
    for value in asked.at:
        setting = {**asked.setting, asked.along: value}
        point = {name: np.array([it], np.float64) for name, it in setting.items()}
        inside = any(one.box.holds(point)[0] for one in boxes)
        served = {name: tried(it, claims, setting, asked.seeds) for name, it in grounds.items()}
        if whys := [one.why for one in served.values() if one.why]:
            raise ValueError(whys[0])
        yield OnBothEngines(value, inside, {name: one.found[claim] for name, one in served.items()})


def row_of(side: OnBothEngines) -> dict[str, object]:
    """One flat row, as it is stored."""
    row: dict[str, object] = {"at": side.value, "inside": side.inside}
    for name, one in side.found.items():
        ends = {"value": one.value, "low": one.low, "high": one.high}
        row |= {f"{name} {key}": float(f"{end:.4g}") for key, end in ends.items()}
        row[f"{name} outcome"] = one.outcome.value
    return row | {"as told": side.is_as_told}


def serve(paper: str, claim: str, asked: Boundary, *, publish: bool) -> None:
    """Serve the settings of a claim, print and write them. Raises ValueError as `sides_of`."""
    # A backlog loads the engine and runs what it compiles at first, which is no capacity.
    grounds_of(paper, asked)[MEASURED].capacity_per_s({**asked.setting, asked.along: asked.at[0]})
    rows, grounds = [], grounds_of(paper, asked)
    for side in sides_of(paper, claim, asked, grounds):
        rows.append(row_of(side))
        print(json.dumps(rows[-1]), flush=True)
    print_table(pd.DataFrame(rows), Console())
    engine = cell_of(configuration(grounds[MEASURED].baseline.plain)).engine.about
    content = {
        **{"claim": claim, "space": asked.space, "along": asked.along, "setting": asked.setting},
        **{"seeds": asked.seeds, "engine": engine, "machine": machine()},
        **{"basis": grounds[SIMULATED].basis, "rows": rows},
    }
    folder = published.place("conditions", publish=publish) / paper
    path = folder / f"{claim.replace('.', '-')}.measured.json"
    published.write(path, json.dumps(content, indent=1) + "\n")


def serve_boundaries(paper: str, claims: Sequence[str], *, publish: bool) -> None:
    """Serve the settings of these claims, or of all that a paper states.

    Raises ValueError for a claim of which none are stated, and as `sides_of`.
    """
    boundaries = read_boundaries(paper)
    for name in claims or boundaries:
        if name not in boundaries:
            raise ValueError(unknown_name("claim of boundary.yaml", name, boundaries))
        serve(paper, name, boundaries[name], publish=publish)
