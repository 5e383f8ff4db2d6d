"""The steps of a lease: each measures, stores every run, and returns figures beside simulated ones.

Runs of one process share an engine wherever they ask for the same settings.
"""

import gc
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch

from harness.config.engine_limits import LIMITS
from harness.config.hydra_words import word
from harness.config.yaml_files import read_yaml
from harness.costs.model import ProfileCosts
from harness.costs.model_facts import ModelFacts
from harness.engines.engine import Engine
from harness.engines.recorder import TIMES, Recorder
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import has_gpus
from harness.interface.entities import Service, ServiceId
from harness.predictors.oracle import Oracle
from harness.runs.cells import Cell
from harness.runs.composed_cells import Matrix
from harness.runs.composing import composed
from harness.runs.figures import application_figures, inference_s
from harness.runs.latencies import request_figures
from harness.tools.calibrate import raw
from harness.tools.calibrate.model import facts_of
from harness.tools.calibrate.sweep import CalibrationSweep, measure
from harness.tools.fidelity.lease_store import FigureRow, LeaseStore
from harness.tools.fidelity.settings import (
    POLICIES,
    SEED,
    MeasuredSetting,
    costs_of,
    figures,
    settings_of,
    simulated,
    system_of,
    workload_of,
)
from harness.tools.fidelity.speed import speed_of
from harness.tools.fidelity.stock import StockVllm

STEPS: Mapping[str, Any] = read_yaml(Path(__file__).with_name("lease.yaml"))
"""Steps that are cells of a scenario, by name."""

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One model on one GPU: what serves it, what is believed of it, what is kept of it.

    `requests` and `repeats` are of fidelity and stock runs; a sweep has as many repetitions as
    `sweep_s` allows, and runs of `most_requests` at most.
    """

    facts: ModelFacts
    engine: Vllm
    costs: ProfileCosts
    store: LeaseStore
    requests: int
    repeats: int
    sweep_s: float
    most_requests: int
    rehearses: bool
    began_s: float = field(default_factory=time.monotonic)

    @property
    def spent_s(self) -> float:
        """Seconds since the lease began."""
        return time.monotonic() - self.began_s

    def say(self, text: str) -> None:
        """Print a line, behind the seconds since the lease began."""
        print(f"{self.spent_s:6.1f} s  {text}", flush=True)

    @property
    def service(self) -> Service:
        """The model as a service."""
        name = ServiceId(self.facts.name)
        return Service(name, self.facts.kv_bytes_per_token, self.facts.max_context_tokens)

    def keep(self, step: str, run: str, recorder: Recorder) -> None:
        """Store one run and say what it took."""
        requests = recorder.requests
        tables = {"requests": requests}
        if recorder.times:
            tables["times"] = pd.DataFrame(recorder.times, columns=list(TIMES))
        if recorder.apps is not None:
            tables["apps"] = recorder.apps
        self.store.add(step, run, **tables)
        self.store.engines[step] = recorder.engines
        jct_s = float((requests["finished_s"] - requests["arrival_s"]).mean())
        lag_ms = float(requests["lag_s"].mean()) * 1e3
        last_s = float(requests["finished_s"].max())
        told = f"JCT {jct_s:.4f} s, until {last_s:.2f} s, lag {lag_ms:.2f} ms"
        self.say(f"{step} {run}: {len(requests)} requests, {told}")

    def unload(self) -> None:
        """Free the memory of all engines: on a GPU another one wants nearly all of it."""
        for group in self.engine.loaded.values():
            group.stop()
        self.engine.loaded.clear()
        gc.collect()
        if has_gpus():
            torch.cuda.empty_cache()


def sweep(lease: Lease) -> list[FigureRow]:
    """The designed batches, every repetition; the engine stays loaded.

    What is simulated is what the profile has for the same batches: measured seconds over those.
    """
    swept = CalibrationSweep(lease.engine, lease.service)
    lease.say(f"sweep: {swept.group.kv_blocks} blocks of {swept.group.block_tokens} tokens")
    rows = measure(swept, lease.repeats, lease.most_requests, most_s=lease.sweep_s)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "raw.parquet"
        raw.write(path, rows, facts_of(swept, lease.costs.gpu, None))
        lease.store.add_file(f"sweep/{lease.facts.name}.parquet", path.read_bytes())
    each = rows.groupby("repetition")
    speeds = [speed_of(part, lease.costs, lease.facts.name) for _, part in each]
    return [
        FigureRow(kind, "over_profiled", [getattr(speed, kind) for speed in speeds], [1.0])
        for kind in ("prefill", "decode")
    ]


def recorded(engine: Engine, setting: MeasuredSetting, costs: ProfileCosts) -> Recorder:
    """A run of a setting, as `settings.served`, with the times of all iterations."""
    workload, recorder = workload_of(setting), Recorder(keep_times=True)
    predictor = Oracle().of(workload, SEED)
    system = replace(system_of(engine, setting.policy, costs), predictor=predictor)
    engine.run(workload, system, recorder)
    return recorder


def fidelity(lease: Lease) -> list[FigureRow]:
    """Every load under the policies of the fidelity runs, repetitions interleaved."""

    def once(setting: MeasuredSetting, repetition: int) -> Recorder:
        recorder = recorded(lease.engine, setting, lease.costs)
        lease.keep("fidelity", f"{setting.policy} {setting.load} {repetition}", recorder)
        return recorder

    return _compared(lease, _settings(lease, POLICIES), once)


def stock(lease: Lease) -> list[FigureRow]:
    """The loads of `fidelity` on vLLM as it comes, which on a GPU schedules ahead, or does not."""
    lease.unload()
    rows: list[FigureRow] = []
    for asynchronous in (True, False) if has_gpus() else (False,):
        engine = StockVllm.like(lease.engine, asynchronous=asynchronous)
        name = "asynchronous" if asynchronous else "synchronous"

        def once(
            setting: MeasuredSetting, repetition: int, engine: Engine = engine, name: str = name
        ) -> Recorder:
            recorder = recorded(engine, setting, lease.costs)
            lease.keep("stock", f"{name} {setting.load} {repetition}", recorder)
            return recorder

        found = _compared(lease, _settings(lease, ("vllm",)), once)
        rows += [replace(row, setting=row.setting.replace("vllm", name)) for row in found]
        lease.unload()
    return rows


def _settings(lease: Lease, policies: Sequence[str]) -> list[MeasuredSetting]:
    name, limits = lease.facts.name, {it: getattr(lease.engine, it) for it in LIMITS}
    return list(settings_of(name, lease.requests, policies, lease.costs, limits))


def _compared(
    lease: Lease,
    settings: Sequence[MeasuredSetting],
    once: Callable[[MeasuredSetting, int], Recorder],
) -> list[FigureRow]:
    """Figures of all settings, measured `repeats` times, and simulated; the first run warms up.

    Simulated engines have the limits and the KV that vLLM resolved.
    """
    resolved = engine_of(once(settings[0], -1))
    runs: dict[MeasuredSetting, list[Figures]] = {setting: [] for setting in settings}
    for repetition in range(lease.repeats):
        for setting in settings:
            runs[setting].append(figures(once(setting, repetition).requests))
    costs = costs_of(Namespace(gpu=lease.costs.gpu, profile=lease.costs.profile_dir), resolved)
    rows = []
    for setting, those in runs.items():
        twin = simulated(setting, costs, {it: resolved[it] for it in LIMITS})
        name = f"{setting.policy} {setting.load}"
        rows += [FigureRow(name, it, [run[it] for run in those], [twin[it]]) for it in twin]
    return [row for row in rows if row.is_known]


def engine_of(recorder: Recorder) -> Mapping[str, Any]:
    """How vLLM has resolved the configuration of the one engine of a measured run."""
    ((resolved,),) = (group.values() for group in recorder.engines.values())
    return resolved


def scenario(lease: Lease, step: str) -> list[FigureRow]:
    """Cells of a scenario on vLLM, and the same cells simulated with the KV that vLLM had."""
    about = STEPS[step]
    if "kv_tokens" in about:
        lease.unload()
    found: dict[str, tuple[list[Figures], list[Figures]]] = {}
    kv: Mapping[str, object] = {}
    for cell in cells_of(words_of(lease, about) + measured_words(lease, about)):
        recorder = _measured(lease, cell)
        policy = str(cell.setting["policy"])
        lease.keep(step, f"{policy} {cell.seed}", recorder)
        found.setdefault(policy, ([], []))[0].append(figures_of(recorder))
        kv = kv_of(recorder)
    for cell in cells_of(words_of(lease, about) + simulated_words(kv)):
        cell.engine.warm_up()
        recorder = _served(cell, cell.engine, Recorder())
        found[str(cell.setting["policy"])][1].append(figures_of(recorder))
    if "kv_tokens" in about:
        lease.unload()
    rows = [
        FigureRow(policy, it, *([run[it] for run in side] for side in sides))
        for policy, sides in found.items()
        for it in about["figures"]
    ]
    return [row for row in rows if row.is_known]


def words_of(lease: Lease, about: Mapping[str, Any]) -> list[str]:
    """The command line of the cells of a step, on one GPU; policies believe the profile."""
    given: dict[str, object] = {
        about["model"]: lease.facts.name,
        "hardware.gpu": lease.costs.gpu,
        "hardware.profile": lease.costs.profile_dir,
        "hardware.gpu_count": 1,
        "hardware.nvlink_island": 1,
        "hardware.kv_bytes": None,
        "hardware.block_tokens": None,
    }
    if "kv_tokens" in about:
        given["hardware.kv_bytes"] = about["kv_tokens"] * lease.facts.kv_bytes_per_token
        del given["hardware.block_tokens"]
    words = [word(key, value) for key, value in given.items()]
    words += [f"+scenario={about['scenario']}", "tracking=none", *about["words"]]
    return words + (about["rehearsal"] if lease.rehearses else [])


def measured_words(lease: Lease, about: Mapping[str, Any]) -> list[str]:
    """What cells on vLLM say beside: the engine of the other steps, or one with less KV."""
    given: dict[str, object] = {"engine.eager": lease.engine.eager, "engine.speed_sweep": False}
    if "kv_tokens" not in about:
        names = ("kv_blocks", "block_tokens")
        given |= {f"engine.{name}": getattr(lease.engine, name) for name in names}
    return ["matrix.engine=[vllm_small_kv]", *(word(*item) for item in given.items())]


def simulated_words(kv: Mapping[str, object]) -> list[str]:
    """What simulated cells say beside: KV as vLLM had it."""
    return ["matrix.engine=[simulator]", *(word(*item) for item in kv.items())]


def kv_of(recorder: Recorder) -> dict[str, object]:
    """The KV of the one engine of a measured run, as keys of a configuration."""
    about = engine_of(recorder)
    kv_bytes = about["kv_blocks"] * about["block_tokens"] * about["kv_bytes_per_token"]
    return {"hardware.kv_bytes": kv_bytes, "hardware.block_tokens": about["block_tokens"]}


def cells_of(words: Sequence[str]) -> list[Cell]:
    """The cells of a command line."""
    with composed(*words) as composer:
        matrix = Matrix(composer)
        return [cell for place in matrix.places if (cell := matrix.cell_at(place))]


def _measured(lease: Lease, cell: Cell) -> Recorder:
    """A cell on vLLM, on an engine that is loaded where its settings are the same."""
    assert isinstance(cell.engine, Vllm)
    engine = replace(cell.engine, keep_loaded=True, loaded=lease.engine.loaded)
    return _served(cell, engine, Recorder(keep_times=True))


def _served(cell: Cell, engine: Engine, recorder: Recorder) -> Recorder:
    workload, system = cell.workload_factory.build(cell.seed), cell.system
    if cell.predictor_factory is not None:
        system = replace(system, predictor=cell.predictor_factory.of(workload, cell.seed))
    engine.run(workload, system, recorder)
    return recorder


def figures_of(recorder: Recorder) -> Figures:
    """Figures of requests and applications."""
    horizon_s = inference_s(recorder.requests, recorder.cut_off_s)
    found = request_figures(recorder.requests, horizon_s=horizon_s)
    if recorder.apps is not None:
        found |= application_figures(recorder.apps, horizon_s=horizon_s)
    return found
