"""One cell of a scenario: objects in, what was computed out.

Computing writes nothing, so that it may be done on another machine. What this module imports is in
the key of every run; figures of what was computed, and writing it, are elsewhere.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.config import inputs
from harness.costs.model import ProfileCosts
from harness.costs.model_names import model_of
from harness.engines.engine import Engine, needs_of
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.policies import Capability, LengthPredictor, ReadsPriorities, System
from harness.planning.solo import solo_seconds
from harness.runs.provenance import provenance
from harness.runs.run_key import RunKey
from harness.runs.validity import LOGGED_REQUESTS, late_notes, outside_share
from harness.workloads.workload import Workload


class WorkloadFactory(Protocol):
    """Makes a workload."""

    @property
    def files(self) -> Mapping[str, str]:
        """What it reads, by name, with the sha256; known before it is built."""

    @property
    def models(self) -> Sequence[str]:
        """Names of the models it asks."""

    def build(self, seed: int) -> Workload:
        """Same seed, same workload."""


@runtime_checkable
class MayReplay(Protocol):
    """A recipe that knows whether all seeds have the same workload."""

    @property
    def is_replay(self) -> bool:
        """Whether they have."""


class PredictorFactory(Protocol):
    """Makes the length predictor of a workload."""

    def of(self, workload: Workload, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions."""


@runtime_checkable
class ReadsColumns(Protocol):
    """Tables on a disk, of which some columns can be read alone."""

    def columns(self, table: str, names: tuple[str, ...]) -> pd.DataFrame:
        """These columns of a table. Raises KeyError where there is none."""


@runtime_checkable
class HasPlannedTime(Protocol):
    """A policy that has planned the whole run."""

    planned_s: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything one run needs.

    `config` is what determines the result, resolved and plain, and `named` what does so beside it.
    `setting` is its place in the scenario: a value on every axis of the matrix, and of the key that
    is `varied` in it; that is empty in the matrix's own cells.
    """

    named: RunKey
    config: Mapping[str, object]
    setting: Mapping[str, object]
    folder: Path
    workload_factory: WorkloadFactory
    system: System
    engine: Engine
    costs: ProfileCosts
    gpus: int
    seed: int
    keep_iterations: bool
    keep_trace: bool = False
    predictor_factory: PredictorFactory | None = None
    varied: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a cell gave.

    `config` is that of its cell. `facts` are what figures need beside tables (`_facts`),
    `provenance` where it comes from and what its seconds rest on. `tables` are `requests` and `gpu`
    and, where there are any, `iterations`, `apps`, `units`, `backends` and `speed`. `engines` says
    how measured engines were configured. `figures` are its summary, where that has been computed.
    """

    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    provenance: Mapping[str, object]
    tables: Mapping[str, pd.DataFrame]
    engines: Mapping[str, object] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)

    def columns(self, table: str, *names: str) -> pd.DataFrame:
        """These columns of a table; where it is on a disk, no others are read."""
        if isinstance(self.tables, ReadsColumns):
            return self.tables.columns(table, names)
        return self.tables[table][[*names]]

    @property
    def requests(self) -> pd.DataFrame:
        """A row for each request: when it came, started, had its tokens and was answered."""
        return self.tables["requests"]

    @property
    def gpus(self) -> pd.DataFrame:
        """Intervals in which GPUs were busy or loading."""
        return self.tables["gpu"]

    @property
    def iterations(self) -> pd.DataFrame | None:
        """Batches, where the configuration asked for them (`record.iterations`)."""
        return self.tables.get("iterations")

    @property
    def units(self) -> pd.DataFrame | None:
        """Calls of applications, where a workload has applications."""
        return self.tables.get("units")


def compute(cell: Cell) -> Run:
    """Serve the cell's workload. Writes nothing.

    Raises ValueError where what the run is named by is not what this process has, or not all that
    was read.
    """
    cell.named.refuse_changes()
    cell.engine.warm_up()
    before = len(inputs.READ)
    run = _served(cell)
    cell.named.refuse_unnamed(before)
    cell.named.refuse_changes()
    return run


def _served(cell: Cell) -> Run:
    started_s = time.time()
    workload = cell.workload_factory.build(cell.seed)
    logs = cell.keep_iterations or len(workload) <= LOGGED_REQUESTS
    recorder = Recorder(keep_iterations=logs, briefly=not cell.keep_iterations)
    cell.engine.run(workload, _predicted(cell, workload), recorder)
    if _has_solo_objective(cell):
        recorder.requests["solo_s"] = _solo_s(cell, workload, recorder.requests)
    log, gpu = recorder.iteration_frame(), recorder.gpu_frame()
    tables = {
        "requests": recorder.requests,
        "gpu": gpu,
        "iterations": log if cell.keep_iterations else None,
        "apps": recorder.apps,
        "units": recorder.units,
        "backends": recorder.backends,
        "speed": recorder.speed,
    }
    return Run(
        config=cell.config,
        facts=_facts(cell, recorder, _outside(cell, recorder, log, gpu)),
        provenance=provenance(
            code=cell.named.code,
            started_s=started_s,
            costs=_costs_of(cell.costs, recorder),
            datasets=workload.datasets,
            notes=_notes(cell, workload, recorder),
            engine=cell.engine.about,
        ),
        tables={name: table for name, table in tables.items() if table is not None},
        engines=recorder.engines,
    )


def _facts(cell: Cell, recorder: Recorder, outside_share: float) -> dict[str, Any]:
    """What figures need beside tables; NaN for numbers that are not known.

    `cut_off_s` is when the run was ended with requests unfinished, None where all were answered;
    `gpus` are those of the machine, `groups` those that have computed; `gaps` counts the gaps
    between tokens by class of length. `decisions` has wall-clock seconds by kind of decision; an
    order that is compiled is asked for less often than batches are. `loads_s` are the seconds of
    each service's load, `kv_tokens` what each group has room for.
    """
    replays = isinstance(cell.workload_factory, MayReplay) and cell.workload_factory.is_replay
    placement = cell.system.placement
    return {
        "cut_off_s": recorder.cut_off_s,
        "gpus": cell.gpus,
        "groups": len(recorder.groups()),
        "is_replay": replays,
        "planned_s": placement.planned_s if isinstance(placement, HasPlannedTime) else np.nan,
        "loads_s": [cell.costs.load_s(*it) for it in sorted(recorder.deployed())],
        "decisions": {
            what: {
                "count": float(len(seconds)),
                "s_mean": float(np.mean(seconds)),
                "s_p99": float(np.quantile(seconds, 0.99)),
                "s_sum": float(np.sum(seconds)),
            }
            for what, seconds in recorder.decision_s.items()
            if seconds
        },
        "timed_iterations": recorder.timed_iterations,
        "counts": dict(recorder.counts),
        "gaps": {int(it): int(recorder.gaps[it]) for it in np.flatnonzero(recorder.gaps)},
        "kv_tokens": _kv_tokens(cell.costs, recorder),
        "outside_profile_share": outside_share,
    }


def _notes(cell: Cell, workload: Workload, recorder: Recorder) -> list[str]:
    """What was assumed or left out."""
    of_workload = (*_not_cached(cell, workload), *_no_priorities(cell, workload))
    of_run = (*_shares_not_measured(cell, recorder), *late_notes(recorder.requests))
    return [*workload.notes, *of_workload, *of_run]


def _not_cached(cell: Cell, workload: Workload) -> list[str]:
    """A sentence where prompts begin alike and nothing of them is used again."""
    caches = bool(getattr(cell.engine, "prefix_caching", False))
    if workload.apps is not None and workload.apps.host_cache is not None:
        caches |= workload.apps.host_cache.grows
    if caches or not (workload.prefix_tokens > 0).any():
        return []
    return ["prompts begin alike, and no KV was used again (engine.prefix_caching)"]


def _no_priorities(cell: Cell, workload: Workload) -> list[str]:
    """A sentence where a policy orders by priorities and requests have none."""
    if not isinstance(cell.system.scheduling, ReadsPriorities) or len(workload.priority):
        return []
    return ["a policy goes by priorities, and requests have none: all are alike to it"]


def _shares_not_measured(cell: Cell, recorder: Recorder) -> list[str]:
    """A sentence where batches run on shares of the SMs of which nothing was measured."""
    if Capability.GPU_SHARE not in needs_of(cell.system):
        return []
    found = {name for name, degree in recorder.deployed() if not cell.costs.sm_shares(name, degree)}
    if not found:
        return []
    models = ", ".join(sorted({model_of(name) for name in found}))
    return [
        f"no measured shares of the SMs of {models}: there an iteration on a share takes 1 / share"
        " as long"
    ]


def _outside(cell: Cell, recorder: Recorder, log: pd.DataFrame | None, gpu: pd.DataFrame) -> float:
    """Share of the busy GPU seconds beyond what the profile measured; NaN of measured seconds."""
    if cell.engine.about.startswith("measured"):
        return np.nan
    lasts_s = gpu["end_s"].to_numpy() - gpu["start_s"].to_numpy()
    return outside_share(
        log,
        recorder.groups().values(),
        cell.costs.measured_ranges,
        busy_gpu_s=float(lasts_s[gpu["use"].to_numpy(object) == GpuUse.BUSY.value].sum()),
    )


def _kv_tokens(costs: ProfileCosts, recorder: Recorder) -> dict[str, float]:
    """What each group that has computed has room for; NaN where services share its memory."""
    found = {}
    for name, group in recorder.groups().items():
        service, *others = group.services
        room = costs.kv_blocks(service, group.tensor_parallel) * costs.block_tokens(service)
        found[name] = np.nan if others else float(room)
    return found


def _predicted(cell: Cell, workload: Workload) -> System:
    """The system with the cell's predictor."""
    if cell.predictor_factory is None:
        return cell.system
    return replace(cell.system, predictor=cell.predictor_factory.of(workload, cell.seed))


def _has_solo_objective(cell: Cell) -> bool:
    """Whether objectives go by what requests take alone."""
    slo = cell.config.get("slo")
    return isinstance(slo, Mapping) and slo.get("scale") is not None


def _solo_s(cell: Cell, workload: Workload, requests: pd.DataFrame) -> "NDArray[np.float64]":
    """Seconds that each request takes alone."""
    rows = requests["request"].to_numpy()
    return solo_seconds(
        cell.costs,
        [service.id for service in workload.services],
        workload.service[rows],
        workload.prompt_tokens[rows],
        workload.output_tokens[rows],
    )


def _costs_of(costs: ProfileCosts, recorder: Recorder) -> dict[str, object]:
    """What the seconds rest on: profile, and of what has run whether measured, and the fit's error.

    What has run is a service at a tensor-parallel degree; either may be measured and another not.
    """
    ran = sorted(recorder.deployed())
    stated = [costs.error(name, degree).get("decode_median") for name, degree in ran]
    errors = [error for error in stated if error is not None]
    return {
        "profile": costs.profile_dir,
        "gpu": costs.gpu,
        "engine": costs.engine.name,
        "fit_error": float(np.median(errors)) if errors else np.nan,
        "source": {f"{name} tp{degree}": costs.label(name, degree) for name, degree in ran},
    }
