"""One cell of a scenario: objects in, what was computed out.

Computing writes nothing, so that it may be done on another machine. What this module imports is in
the key of every run; writing and showing results is elsewhere.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd

from harness.config import inputs
from harness.costs.model import ProfileCosts
from harness.costs.model_names import model_of
from harness.costs.uncertainty import intervals
from harness.engines.engine import Engine, needs_of
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.policies import Capability, LengthPredictor, ReadsPriorities, System
from harness.planning.solo import solo_seconds
from harness.runs.applications import (
    application_figures,
    backend_figures,
    figures_by_kind,
)
from harness.runs.fairness import fairness_figures, tenant_service
from harness.runs.metrics import (
    GAP,
    class_figures,
    decision_figures,
    gap_figures,
    gpu_figures,
    inference_s,
    kv_utilization,
    objective_figures,
    of_use,
    offline_figures,
    request_figures,
    scheduling_figures,
)
from harness.runs.objectives import met_objectives
from harness.runs.provenance import provenance
from harness.runs.run_key import RunKey
from harness.runs.trace_intervals import KEY, Served, trace_intervals
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
    drawn: tuple[tuple[Engine, System], ...] = ()
    predictor_factory: PredictorFactory | None = None
    varied: str = ""


@dataclass(frozen=True, slots=True)
class Computed:
    """What a cell gave: all that its folder will hold but the configuration."""

    provenance: Mapping[str, object]
    requests: pd.DataFrame
    gpu: pd.DataFrame
    iterations: pd.DataFrame | None
    apps: pd.DataFrame | None
    units: pd.DataFrame | None
    backends: pd.DataFrame | None
    speed: pd.DataFrame | None
    engines: Mapping[str, object]
    summary: Mapping[str, object]


def compute(cell: Cell) -> Computed:
    """Serve the cell's workload. Writes nothing.

    Raises ValueError where what the run is named by is not what this process has, or not all that
    was read.
    """
    cell.named.refuse_changes()
    cell.engine.warm_up()
    before = len(inputs.READ)
    computed = _served(cell)
    cell.named.refuse_unnamed(before)
    cell.named.refuse_changes()
    return computed


def _served(cell: Cell) -> Computed:
    started_s = time.time()
    workload = cell.workload_factory.build(cell.seed)
    logs = cell.keep_iterations or len(workload) <= LOGGED_REQUESTS
    recorder = Recorder(keep_iterations=logs, briefly=not cell.keep_iterations)
    _run(cell, cell.engine, cell.system, workload, recorder)
    met, gpu = _met(cell, recorder), recorder.gpu_frame()
    figures: dict[str, object] = {**_summary(cell, cell.system, recorder, met, gpu)}
    figures["by"] = _by_class(cell, recorder, met)
    if isinstance(cell.workload_factory, MayReplay) and cell.workload_factory.is_replay:
        figures[KEY] = _intervals(cell, recorder, met, figures)
    figures["decisions"] = decision_figures(recorder.decision_s)
    figures["counts"] = dict(recorder.counts)
    log = recorder.iteration_frame()
    figures["outside_profile_share"] = _outside(cell, recorder, log, gpu)
    iterations = log if cell.keep_iterations else None
    figures["kv_utilization"] = kv_utilization(iterations, _kv_tokens(cell.costs, recorder))
    if cell.drawn:
        figures["uncertainty"] = intervals([_drawn(cell, *pair, workload) for pair in cell.drawn])
    return Computed(
        provenance=provenance(
            code=cell.named.code,
            started_s=started_s,
            costs=_costs_of(cell.costs, recorder),
            datasets=workload.datasets,
            notes=_notes(cell, workload, recorder),
            engine=cell.engine.about,
        ),
        requests=recorder.requests if met is None else recorder.requests.assign(met=met),
        gpu=gpu,
        iterations=iterations,
        apps=recorder.apps,
        units=recorder.units,
        backends=recorder.backends,
        speed=recorder.speed,
        engines=recorder.engines,
        summary=figures,
    )


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


def _intervals(
    cell: Cell,
    recorder: Recorder,
    met: "pd.Series[bool] | None",
    figures: Mapping[str, object],
) -> dict[str, float | dict[str, float]]:
    """Intervals of the figures of counted requests, from blocks of the trace."""
    counted = ~(recorder.requests["arrival_s"] < _begin_s(cell, recorder))
    rows = recorder.requests[counted]
    if met is not None:
        rows = rows.assign(met=met[counted])
    numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
    begin_s, horizon_s = _begin_s(cell, recorder), _horizon_s(recorder)
    return trace_intervals(Served.of(rows, begin_s=begin_s, horizon_s=horizon_s), numbers)


def _by_class(
    cell: Cell, recorder: Recorder, met: "pd.Series[bool] | None"
) -> dict[str, dict[str, dict[str, float]]]:
    """Figures of requests and applications by service, tenant and kind."""
    begin_s, horizon_s = _begin_s(cell, recorder), _horizon_s(recorder)
    counted = ~(recorder.requests["arrival_s"] < begin_s)
    found = class_figures(
        recorder.requests[counted],
        None if met is None else met[counted],
        begin_s=begin_s,
        horizon_s=horizon_s,
    )
    more = {
        "tenant": tenant_service(recorder.requests),
        "kind": figures_by_kind(recorder.apps, horizon_s=horizon_s),
    }
    for column, by_name in more.items():
        for name, figures in by_name.items():
            found.setdefault(column, {}).setdefault(name, {}).update(figures)
    return found


def _outside(cell: Cell, recorder: Recorder, log: pd.DataFrame | None, gpu: pd.DataFrame) -> float:
    """Share of the busy GPU seconds beyond what the profile measured; NaN of measured seconds."""
    if cell.engine.about.startswith("measured"):
        return np.nan
    lasts_s = gpu["end_s"].to_numpy() - gpu["start_s"].to_numpy()
    return outside_share(
        log,
        recorder.groups().values(),
        cell.costs.measured_ranges,
        busy_gpu_s=float(lasts_s[of_use(gpu, GpuUse.BUSY)].sum()),
    )


def _kv_tokens(costs: ProfileCosts, recorder: Recorder) -> dict[str, float]:
    """What each group that has computed has room for; NaN where services share its memory."""
    found = {}
    for name, group in recorder.groups().items():
        service, *others = group.services
        room = costs.kv_blocks(service, group.tensor_parallel) * costs.block_tokens(service)
        found[name] = np.nan if others else float(room)
    return found


def _run(
    cell: Cell, engine: Engine, system: System, workload: Workload, recorder: Recorder
) -> None:
    """Serve; where objectives go by what requests take alone, add the column `solo_s`."""
    engine.run(workload, _predicted(cell, system, workload), recorder)
    if _slo(cell).get("scale") is not None:
        rows = recorder.requests["request"].to_numpy()
        recorder.requests["solo_s"] = solo_seconds(
            cell.costs,
            [service.id for service in workload.services],
            workload.service[rows],
            workload.prompt_tokens[rows],
            workload.output_tokens[rows],
        )


def _predicted(cell: Cell, system: System, workload: Workload) -> System:
    """The system with the cell's predictor, a new object for each run."""
    if cell.predictor_factory is None:
        return system
    return replace(system, predictor=cell.predictor_factory.of(workload, cell.seed))


def _drawn(cell: Cell, engine: Engine, system: System, workload: Workload) -> dict[str, float]:
    """Figures of the same cell with other costs."""
    recorder = Recorder()
    _run(cell, engine, system, workload, recorder)
    return _summary(cell, system, recorder, _met(cell, recorder), recorder.gpu_frame())


def _met(cell: Cell, recorder: Recorder) -> "pd.Series[bool] | None":
    """Which requests met the objectives of the configuration and their deadlines."""
    slo, requests = _slo(cell), recorder.requests
    solo_s = requests["solo_s"].to_numpy(np.float64) if "solo_s" in requests else None
    return met_objectives(requests, slo, horizon_s=_horizon_s(recorder), solo_s=solo_s)


def _slo(cell: Cell) -> Mapping[str, float | None]:
    """The objectives of the configuration."""
    given = cell.config.get("slo")
    return given if isinstance(given, Mapping) else {}


def _horizon_s(recorder: Recorder) -> float:
    """When the run ended."""
    return inference_s(recorder.requests, recorder.cut_off_s)


def _gap_figures(cell: Cell, recorder: Recorder) -> dict[str, float]:
    """Of all gaps between tokens; NaN where some requests are not counted."""
    figures = gap_figures(recorder.gaps, longest_s=float(recorder.requests[GAP].max()))
    return dict.fromkeys(figures, np.nan) if cell.config.get("warm_up_s") else figures


def _begin_s(cell: Cell, recorder: Recorder) -> float:
    """When the first request that is counted may come. Raises ValueError where none does."""
    arrival_s = recorder.requests["arrival_s"]
    warm_up_s = cell.config.get("warm_up_s", 0.0)
    begin_s = float(arrival_s.min()) + float(str(warm_up_s))
    if not ((arrival_s >= begin_s) & (arrival_s < np.inf)).any():
        raise ValueError(f"warm_up_s={warm_up_s} leaves no request to count")
    return begin_s


def _summary(
    cell: Cell,
    system: System,
    recorder: Recorder,
    met: "pd.Series[bool] | None",
    gpu: pd.DataFrame,
) -> dict[str, float]:
    begin_s, horizon_s = _begin_s(cell, recorder), _horizon_s(recorder)
    counted = ~(recorder.requests["arrival_s"] < begin_s)
    loads_s = [cell.costs.load_s(*it) for it in recorder.deployed()] or [np.nan]
    planned_s = (
        system.placement.planned_s if isinstance(system.placement, HasPlannedTime) else np.nan
    )
    return {
        **offline_figures(recorder.requests, recorder.decision_s, recorder.cut_off_s),
        **gpu_figures(gpu, gpus=cell.gpus, horizon_s=horizon_s),
        **request_figures(recorder.requests[counted], begin_s=begin_s, horizon_s=horizon_s),
        **_gap_figures(cell, recorder),
        **objective_figures(None if met is None else met[counted], span_s=horizon_s - begin_s),
        **application_figures(recorder.apps, horizon_s=horizon_s),
        **backend_figures(recorder.backends, recorder.apps),
        **fairness_figures(recorder.requests, horizon_s=horizon_s),
        **scheduling_figures(
            recorder.decision_s.get("schedule", ()),
            iterations=recorder.timed_iterations,
            groups=len(recorder.groups()),
            horizon_s=horizon_s,
        ),
        "planned_inference_s": planned_s,
        "planned_error": abs(planned_s / horizon_s - 1.0),
        "load_s_min": min(loads_s),
        "load_s_max": max(loads_s),
    }


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
