"""Cells of a space: a setting with all runs that its claims read, served here and not kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from harness.claims.effects import SEED, Cells
from harness.conditions.space import (
    APPLICATIONS,
    BURSTINESS,
    KV_SHARE,
    LOAD,
    PlainConfig,
    Point,
    Space,
    applied,
    prepared,
)
from harness.config.paths import ROOT
from harness.runs.basis import cost_basis
from harness.runs.building import cell_of, costs_of
from harness.runs.cell_lists import column_of
from harness.runs.cells import Run, compute
from harness.runs.composed_cells import Matrix
from harness.runs.composing import BAD_INPUT, composed, sentence
from harness.runs.config import RunConfig, configuration
from harness.runs.figures import figures_of
from harness.runs.run_key import run_id
from harness.runs.source_files import sources_behind

TRIED_BY = "harness.conditions.trials"
"""The module that tries settings."""
SEARCHED = "hydra.searchpath"
BACKLOG_SEED, MOST_CALLS = 1000, 0.9
"""Of a backlog: the seed of requests, and the share of an application's calls that is counted."""
WAITING, PREEMPTED, KV_USE = "waiting_share", "preempted_share", "kv_use"
STATE: Mapping[str, str] = {
    WAITING: "share of the baseline's JCT spent waiting",
    PREEMPTED: "share of the baseline's requests that are preempted",
    KV_USE: "share of the KV that the baseline's requests hold",
}
"""What the baseline of a claim went through."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the scenario's cells that a claim reads: its values on the axes, its configuration."""

    axes: Mapping[str, Any]
    plain: PlainConfig


class Ground:
    """Where a space is tried: the configurations that its settings start from."""

    def __init__(self, space: Space, sides: Sequence[Side]) -> None:
        self.space, self.sides = space, sides
        of = [one for one in sides if space.baseline.items() <= one.axes.items()]
        if not of:
            raise ValueError(f"{space.name}: no cell of {space.scenario} is {dict(space.baseline)}")
        self.baseline = of[0]
        self._capacities: dict[str, float] = {}

    @cached_property
    def reference(self) -> list[Point]:
        """The paper's own points: one for each value of a dimension that has several."""
        one = {it.name: it.reference[0] for it in self.space.dimensions}
        if self.space.rates:
            capacity_per_s = self.capacity_per_s(one)
            return [{**one, LOAD: rate / capacity_per_s} for rate in self.space.rates]
        several = [it for it in self.space.dimensions if len(it.reference) > 1][:1]
        return [{**one, it.name: value} for it in several for value in it.reference] or [one]

    @cached_property
    def basis(self) -> str:
        """What the seconds of these cells rest on: profile and error, as of the baseline."""
        run = compute(cell_of(self.configuration(self.baseline, self.reference[0], 0)))
        costs = run.provenance["costs"]
        assert isinstance(costs, Mapping)
        row = {f"costs.{name}": costs[name] for name in ("profile", "fit_error")}
        row |= {f"costs.source.{name}": source for name, source in costs["source"].items()}
        said = cost_basis(pd.DataFrame([row])).replace(f"{ROOT}/", "")
        return f"simulated on {said}"

    def stamp(self, modules: Sequence[str], printed: Mapping[str, Any]) -> str:
        """What results follow from: the space, the runs' own names, these modules, what is claimed.

        Not where Hydra finds a policy's file, whose content is in the runs' names.
        """
        first, content = self.reference[0], {**self.space.content}
        content["words"] = [it for it in self.space.words if not it.startswith(SEARCHED)]
        runs = [cell_of(self.configuration(it, first, 0)).folder.name for it in self.sides]
        sources = sources_behind([TRIED_BY, *modules])
        return run_id({"space": content, "runs": runs, "printed": {**printed}}, sources.code)

    def capacity_per_s(self, setting: Point, seed: int = 0) -> float:
        """What the baseline serves of a backlog a second in this setting; NaN without a load.

        Requests, of one seed for all; applications of each seed, since a few large ones decide.
        """
        if not any(one.name == LOAD for one in self.space.dimensions):
            return np.nan
        if APPLICATIONS not in self.baseline.plain["workload"]:
            seed = BACKLOG_SEED
        own = {k: v for k, v in setting.items() if k not in (LOAD, BURSTINESS, "requests")}
        key = repr((sorted(own.items()), seed))
        if key not in self._capacities:
            plain = applied(self.baseline.plain, self.space, setting, rate_per_s=None)
            rows = compute(cell_of(configuration(plain | {"seed": seed}))).requests
            self._capacities[key] = answered_per_s(rows, plain["workload"].get(APPLICATIONS))
        return self._capacities[key]

    def configuration(self, side: Side, setting: Point, seed: int) -> RunConfig:
        """Of one side in a setting. Raises ValueError for what cannot be."""
        rate_per_s = setting.get(LOAD, np.nan) * self.capacity_per_s(setting, seed)
        plain = applied(side.plain, self.space, setting, rate_per_s=rate_per_s)
        return configuration(plain | {"seed": seed})

    def serve(self, setting: Point, seeds: Sequence[int]) -> "TriedRuns":
        """The runs of a setting. Raises ValueError where the setting is impossible."""
        rows, states = [], []
        for seed in seeds:
            for side in self.sides:
                run = compute(cell_of(self.configuration(side, setting, seed)))
                rows.append({**figures_of(run), **side.axes, SEED: seed, "folder": run})
                if side is self.baseline:
                    states.append(state_of(run))
        means = pd.DataFrame(states).mean().to_dict()
        return TriedRuns(pd.DataFrame(rows), {str(k): float(v) for k, v in means.items()})


def answered_per_s(rows: pd.DataFrame, applications: int | None) -> float:
    """Requests a second of a backlog; of so many applications these, by their calls but the last.

    An application's calls come one after the other, so that few run at the end of a backlog.
    """
    ends_s = rows["finished_s"].dropna().sort_values() - rows["started_s"].min()
    if applications is None:
        return float(len(ends_s) / ends_s.iloc[-1])
    most = int(MOST_CALLS * len(ends_s))
    return float(applications * most / len(ends_s) / ends_s.iloc[most - 1])


@dataclass(frozen=True, slots=True)
class TriedRuns:
    """The runs of a setting as claims read them, and what its baseline went through."""

    cells: Cells
    state: Mapping[str, float]


def state_of(run: Run) -> dict[str, float]:
    """What a run went through."""
    rows = run.requests
    jct_s = (rows["finished_s"] - rows["arrival_s"]).mean()
    kv_use = (
        figures_of(run, ["kv_utilization"])["kv_utilization"]
        if run.iterations is not None
        else np.nan
    )
    return {
        WAITING: float(rows["waiting_s"].mean() / jct_s),
        PREEMPTED: float((rows["preemptions"] > 0).mean()),
        KV_USE: kv_use,
    }


def ground_of(space: Space) -> Ground:
    """The ground of a space. Raises ValueError for a scenario that has not what it asks for."""
    words = (f"+scenario={space.scenario}", "tracking=none", *space.words)
    sides: list[Side] = []
    try:
        with composed(*words) as composer:
            matrix = Matrix(composer, where={SEED: 0, **space.where})
            for place in matrix.places:
                config = None if place.varied else matrix.config_at(place)
                if config is not None:
                    axes = {column_of(axis): value for axis, value in place.setting.items()}
                    sides.append(Side(axes, _prepared(config, space)))
    except BAD_INPUT as error:
        raise ValueError(sentence(error, words)) from error
    return Ground(space, sides)


def _prepared(config: RunConfig, space: Space) -> PlainConfig:
    kv_bytes = 0
    if any(one.name == KV_SHARE for one in space.dimensions):
        first, *_ = cell_of(config).workload_factory.build(config.seed).services
        degree = config.system["placement"].get("tensor_parallel", 1)
        kv_bytes = costs_of(config).kv_bytes([first.id], degree)
    return prepared(config.model_dump(), space, kv_bytes=kv_bytes)
