"""One cell of a scenario: objects in, what was computed out, and from that a run folder.

Computing writes nothing, so that it may be done on another machine; folders are written by the
process that a person has started.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd

from harness.costs.model import ProfileCosts
from harness.costs.uncertainty import intervals
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.interface.policies import LengthPredictor, System
from harness.runs.metrics import gpu_figures, offline_figures, request_figures
from harness.runs.named_by import NamedBy
from harness.runs.provenance import git_state, provenance
from harness.runs.record import is_finished, write_run
from harness.workloads.workload import Workload


class WorkloadFactory(Protocol):
    """Makes a workload."""

    @property
    def files(self) -> Mapping[str, str]:
        """What it reads from outside the project, with the sha256; known before it is built."""

    @property
    def models(self) -> Sequence[str]:
        """Names of the models it asks."""

    def build(self, seed: int) -> Workload:
        """Same seed, same workload."""


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

    named: NamedBy
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
    summary: Mapping[str, object]


def run_cell(cell: Cell) -> None:
    """Serve the cell's workload and write its folder; a finished one is kept."""
    if not is_finished(cell.folder):
        keep(cell, compute(cell))


def compute(cell: Cell) -> Computed:
    """Serve the cell's workload. Writes nothing.

    Raises ValueError where what the run is named by is not what this process has.
    """
    cell.named.refuse_changes()
    cell.engine.warm_up()
    started_s = time.time()
    workload = cell.workload_factory.build(cell.seed)
    recorder = Recorder(keep_iterations=cell.keep_iterations)
    system = cell.system
    if cell.predictor_factory is not None:
        system = replace(system, predictor=cell.predictor_factory.of(workload, cell.seed))
    cell.engine.run(workload, system, recorder)
    figures: dict[str, object] = {**_summary(cell, cell.system, workload, recorder)}
    if cell.drawn:
        figures["uncertainty"] = intervals([_drawn(cell, *pair, workload) for pair in cell.drawn])
    cell.named.refuse_changes()
    return Computed(
        provenance=provenance(
            started_s=started_s,
            costs=_costs_of(cell.costs, recorder),
            datasets=workload.datasets,
            engine=cell.engine.about,
        ),
        requests=recorder.requests,
        gpu=recorder.gpu_frame(),
        iterations=recorder.iteration_frame(),
        summary=figures,
    )


def keep(cell: Cell, computed: Computed) -> None:
    """Write the cell's folder. Raises `RecordError` where the disk refuses.

    A node of a cluster has the program's files alone: what the run rests on and the commit are
    known here.
    """
    here = {"rests_on": cell.named.rests_on(), "git": git_state()}
    write_run(
        cell.folder,
        config=cell.config,
        provenance={**computed.provenance, **here},
        requests=computed.requests,
        gpu=computed.gpu,
        iterations=computed.iterations,
        summary=computed.summary,
    )


def _drawn(cell: Cell, engine: Engine, system: System, workload: Workload) -> dict[str, float]:
    """Figures of the same cell with other costs."""
    recorder = Recorder()
    engine.run(workload, system, recorder)
    return _summary(cell, system, workload, recorder)


def _summary(
    cell: Cell, system: System, workload: Workload, recorder: Recorder
) -> dict[str, float]:
    offline = offline_figures(recorder.requests, recorder.decision_s, recorder.cut_off_s)
    horizon_s = offline["inference_s"]
    loads_s = [cell.costs.load_s(service.id, 1) for service in workload.services]
    planned_s = (
        system.placement.planned_s if isinstance(system.placement, HasPlannedTime) else np.nan
    )
    return {
        **offline,
        **gpu_figures(recorder.gpu_frame(), gpus=cell.gpus, horizon_s=horizon_s),
        **request_figures(recorder.requests, horizon_s=horizon_s),
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
        "fit_error": float(np.median(errors)) if errors else np.nan,
        "source": {f"{name} tp{degree}": costs.label(name, degree) for name, degree in ran},
    }
