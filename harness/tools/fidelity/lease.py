"""Fifteen minutes of a GPU: `python -m harness.tools.fidelity.lease MODEL --out FOLDER`.

One process, without Ray, measures one model step by step, the most valuable step first, and says
of each how it was simulated: a raw sweep, fidelity runs with every repetition kept, scenarios of
`lease.yaml`, and vLLM by its own scheduler. Runs share an engine wherever they ask for the same
settings. A run is added to FOLDER/MODEL.tar before the next one begins, the figures of a step to
FOLDER/MODEL.json before the next step does; later processes add to the files of earlier ones. No
step begins after `--seconds`, and one that fails is a line. With `--rehearse` everything is small,
for a CPU.
"""

import argparse
import gc
import io
import json
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isnan
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from rich.console import Console

from harness.config.hydra_words import word
from harness.config.scratch import write_whole
from harness.config.yaml_files import read_yaml
from harness.costs.model_facts import model_facts
from harness.engines.engine import Engine
from harness.engines.recorder import TIMES, Recorder
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.runs.cells import Cell
from harness.runs.composed_cells import Matrix
from harness.runs.composing import composed
from harness.runs.figures import application_figures, inference_s
from harness.runs.latencies import request_figures
from harness.runs.provenance import machine
from harness.runs.table import print_table
from harness.tools.calibrate import raw
from harness.tools.calibrate.model import engine, facts_of
from harness.tools.calibrate.sweep import CalibrationSweep, measure
from harness.tools.fidelity.real_engine import (
    POLICIES,
    MeasuredSetting,
    costs_of,
    figures,
    kv_of,
    limits_of,
    served,
    settings_of,
    simulated,
)
from harness.tools.fidelity.speed import speed_of
from harness.tools.fidelity.stock import StockVllm
from harness.workloads.workload import services_of

STEPS: Mapping[str, Any] = read_yaml(Path(__file__).with_name("lease.yaml"))
"""Steps that are cells of a scenario, by name."""
KV_BLOCKS = 400  # on a CPU; a GPU has what vLLM finds
REHEARSED = {"requests": 3, "repeats": 1, "sweep_s": 1.0, "most_requests": 2}

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure of one setting: every repetition or seed of it, measured and simulated."""

    setting: str
    figure: str
    measured: Sequence[float]
    simulated: Sequence[float]

    @property
    def is_known(self) -> bool:
        """Whether no value is NaN, as a percentile of few requests is."""
        return not any(map(isnan, (*self.measured, *self.simulated)))


class Lease:
    """One model on one GPU: what serves it, what is believed of it, what is kept of it.

    `engines` says how those of each step were configured.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        """ValueError for what a command line cannot ask for, OSError for its folder."""
        for name in (*REHEARSED, "seconds"):
            if not (value := getattr(options, name)) > 0:
                raise ValueError(f"--{name.replace('_', '-')}={value} must be above 0")
        (self.service,) = services_of([model_facts(options.model)])
        self.costs, model = costs_of(options), self.service.id
        self.costs.require(model)
        self.costs.table(model, 1)
        self.engine = engine(None if has_gpus() else KV_BLOCKS)
        changed = REHEARSED if options.rehearse else {}
        self.options = argparse.Namespace(**vars(options) | changed)
        self.began_s = time.monotonic()
        options.out.mkdir(parents=True, exist_ok=True)
        self._tar, self._summary = (options.out / f"{options.model}.{it}" for it in ("tar", "json"))
        self.engines: dict[str, Mapping[str, Any]] = {}
        about = {"model": model, "gpu": options.gpu, "profile": options.profile}
        about |= {"engine": engine_name(), "machine": machine()}
        steps = {}
        if self._summary.is_file():
            steps = json.loads(self._summary.read_text(encoding="utf-8"))["steps"]
        self._content: dict[str, Any] = {**about, "steps": steps}

    @property
    def spent_s(self) -> float:
        """Seconds since the lease began."""
        return time.monotonic() - self.began_s

    def say(self, text: str) -> None:
        """Print a line, behind the seconds since the lease began."""
        print(f"{self.spent_s:6.1f} s  {text}", flush=True)

    def keep(self, step: str, run: str, recorder: Recorder) -> None:
        """Store one run, its tables as STEP/RUN.TABLE.parquet, and say what it took."""
        requests = recorder.requests
        tables = {"requests": requests, "apps": recorder.apps}
        if recorder.times:
            tables["times"] = pd.DataFrame(recorder.times, columns=list(TIMES))
        for name, table in tables.items():
            if table is not None:
                self.add_file(f"{step}/{run}.{name}.parquet", table.to_parquet(index=False))
        self.engines[step] = recorder.engines
        jct_s = float((requests["finished_s"] - requests["arrival_s"]).mean())
        lag_ms = float(requests["lag_s"].mean()) * 1e3
        last_s = float(requests["finished_s"].max())
        told = f"JCT {jct_s:.4f} s, until {last_s:.2f} s, lag {lag_ms:.2f} ms"
        self.say(f"{step} {run}: {len(requests)} requests, {told}")

    def add_file(self, name: str, data: bytes) -> None:
        """Add a file to the tar."""
        member = tarfile.TarInfo(name.replace(" ", "_"))
        member.size = len(data)
        with tarfile.open(self._tar, "a") as archive:
            archive.addfile(member, io.BytesIO(data))

    def end(self, step: str, seconds: float, rows: Sequence[FigureRow], failed: str = "") -> None:
        """A step has ended: its rows, or the sentence that says why it `failed`."""
        told: dict[str, Any] = {"seconds": round(seconds, 1), "rows": [asdict(row) for row in rows]}
        told |= {"engines": self.engines.get(step, {})}
        self._content["steps"][step] = told | ({"failed": failed} if failed else {})
        write_whole(self._summary, json.dumps(self._content, indent=1) + "\n")

    def unload(self) -> None:
        """Free the memory of all engines: on a GPU another one wants nearly all of it."""
        for group in self.engine.loaded.values():
            group.stop()
        self.engine.loaded.clear()
        gc.collect()
        if has_gpus():
            torch.cuda.empty_cache()


def sweep(lease: Lease) -> list[FigureRow]:
    """The designed batches, as many repetitions as there is time for; the engine stays loaded.

    What is simulated is what the profile has for the same batches: measured seconds over those.
    """
    asked, name = lease.options, lease.service.id
    swept = CalibrationSweep(lease.engine, lease.service)
    lease.say(f"sweep: {swept.group.kv_blocks} blocks of {swept.group.block_tokens} tokens")
    rows = measure(swept, asked.repeats, asked.most_requests, most_s=asked.sweep_s)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "raw.parquet"
        raw.write(path, rows, facts_of(swept, lease.costs.gpu, None))
        lease.add_file(f"sweep/{name}.parquet", path.read_bytes())
    speeds = [speed_of(part, lease.costs, name) for _, part in rows.groupby("repetition")]
    return [
        FigureRow(kind, "over_profiled", [getattr(speed, kind) for speed in speeds], [1.0])
        for kind in ("prefill", "decode")
    ]


def fidelity(lease: Lease) -> list[FigureRow]:
    """Every load under the policies of the fidelity runs."""
    return _beside_simulated(lease, "fidelity", lease.engine, {name: name for name in POLICIES})


def stock(lease: Lease) -> list[FigureRow]:
    """The loads of `fidelity` on vLLM as it comes, which on a GPU schedules ahead, or does not."""
    rows: list[FigureRow] = []
    for asynchronous in (True, False) if has_gpus() else (False,):
        lease.unload()
        own = StockVllm.like(lease.engine, asynchronous=asynchronous)
        name = "asynchronous" if asynchronous else "synchronous"
        rows += _beside_simulated(lease, "stock", own, {"vllm": name})
    lease.unload()
    return rows


def _beside_simulated(
    lease: Lease, step: str, on: Engine, policies: Mapping[str, str]
) -> list[FigureRow]:
    """Figures of every load under policies, each with the name that its runs have in this step.

    Repetitions are interleaved; the first run warms up. Simulated engines have the limits and the
    KV that vLLM resolved.
    """
    asked, model = lease.options, lease.service.id
    settings = [*settings_of(model, asked.requests, [*policies], lease.costs, limits_of(on))]

    def once(setting: MeasuredSetting, repetition: int) -> Recorder:
        recorder = served(on, setting, lease.costs, keep_times=True)
        lease.keep(step, f"{policies[setting.policy]} {setting.load} {repetition}", recorder)
        return recorder

    resolved = engine_of(once(settings[0], -1))
    runs: dict[MeasuredSetting, list[Figures]] = {setting: [] for setting in settings}
    for repetition in range(asked.repeats):
        for setting in settings:
            runs[setting].append(figures(once(setting, repetition).requests))
    rows = []
    for setting, those in runs.items():
        twin = simulated(setting, costs_of(asked, resolved), resolved)
        name = f"{policies[setting.policy]} {setting.load}"
        rows += [FigureRow(name, it, [run[it] for run in those], [twin[it]]) for it in twin]
    return rows


def engine_of(recorder: Recorder) -> Mapping[str, Any]:
    """How vLLM has resolved the configuration of the one engine of a measured run."""
    ((resolved,),) = (group.values() for group in recorder.engines.values())
    return resolved


def scenario(lease: Lease, step: str) -> list[FigureRow]:
    """Cells of a scenario on vLLM, and the same cells simulated with the KV that vLLM had."""
    about = STEPS[step]
    real: dict[str, object] = {"engine.eager": lease.engine.eager, "engine.speed_sweep": False}
    if has_own_engine := "kv_tokens" in about:
        lease.unload()
    else:
        names = ("kv_blocks", "block_tokens")
        real |= {f"engine.{name}": getattr(lease.engine, name) for name in names}
    found: dict[str, tuple[list[Figures], list[Figures]]] = {}
    kv: dict[str, object] = {}
    for cell in cells_of(lease, about, "vllm_small_kv", real):
        assert isinstance(cell.engine, Vllm)
        # One that is loaded, where its settings are the same.
        on = replace(cell.engine, keep_loaded=True, loaded=lease.engine.loaded)
        recorder = _served(cell, on, Recorder(keep_times=True))
        policy = str(cell.setting["policy"])
        lease.keep(step, f"{policy} {cell.seed}", recorder)
        found.setdefault(policy, ([], []))[0].append(figures_of(recorder))
        kv = kv_of(engine_of(recorder))
    for cell in cells_of(lease, about, "simulator", {f"hardware.{it}": kv[it] for it in kv}):
        cell.engine.warm_up()
        recorder = _served(cell, cell.engine, Recorder())
        found[str(cell.setting["policy"])][1].append(figures_of(recorder))
    if has_own_engine:
        lease.unload()
    return [
        FigureRow(policy, it, *([run[it] for run in side] for side in sides))
        for policy, sides in found.items()
        for it in about["figures"]
    ]


def cells_of(
    lease: Lease, about: Mapping[str, Any], on: str, more: dict[str, object]
) -> list[Cell]:
    """The cells of a step in an engine, on one GPU; policies believe the profile.

    `more` are further keys of the configuration.
    """
    given: dict[str, object] = {
        about["model"]: lease.service.id,
        "hardware.gpu": lease.costs.gpu,
        "hardware.profile": lease.costs.profile_dir,
        "hardware.gpu_count": 1,
        "hardware.nvlink_island": 1,
    }
    if "kv_tokens" in about:
        given["hardware.kv_bytes"] = about["kv_tokens"] * lease.service.kv_bytes_per_token
    else:
        given |= {"hardware.kv_bytes": None, "hardware.block_tokens": None}
    words = [word(key, value) for key, value in (given | more).items()]
    words += [f"+scenario={about['scenario']}", "tracking=none", f"matrix.engine=[{on}]"]
    words += [*about["words"], *(about["rehearsal"] if lease.options.rehearse else ())]
    with composed(*words) as composer:
        matrix = Matrix(composer)
        return [cell for place in matrix.places if (cell := matrix.cell_at(place))]


def _served(cell: Cell, on: Engine, recorder: Recorder) -> Recorder:
    workload, system = cell.workload_factory.build(cell.seed), cell.system
    if cell.predictor_factory is not None:
        system = replace(system, predictor=cell.predictor_factory.of(workload, cell.seed))
    on.run(workload, system, recorder)
    return recorder


def figures_of(recorder: Recorder) -> Figures:
    """Figures of requests and applications."""
    horizon_s = inference_s(recorder.requests, recorder.cut_off_s)
    found = request_figures(recorder.requests, horizon_s=horizon_s)
    if recorder.apps is not None:
        found |= application_figures(recorder.apps, horizon_s=horizon_s)
    return found


BY_NAME: dict[str, Callable[[Lease], list[FigureRow]]] = {
    "sweep": sweep,
    "fidelity": fidelity,
    **{name: partial(scenario, step=name) for name in STEPS},
    "stock": stock,
}


def run(lease: Lease) -> dict[str, list[FigureRow]]:
    """The steps, one after the other; the rows of those that have not failed."""
    found: dict[str, list[FigureRow]] = {}
    for name in lease.options.steps:
        began_s = time.monotonic()
        if lease.spent_s > lease.options.seconds:
            lease.say(f"{name}: left out, {lease.options.seconds:g} s are over")
            continue
        failed, rows = "", list[FigureRow]()
        try:
            rows = found[name] = [row for row in BY_NAME[name](lease) if row.is_known]
        except Exception as error:  # of any kind: the next step may work
            failed = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            lease.say(f"{name}: failed: {failed}")
        lease.end(name, time.monotonic() - began_s, rows, failed)
    return found


def print_rows(found: Mapping[str, Sequence[FigureRow]]) -> None:
    """A line per figure, means over repetitions or seeds."""
    lines = []
    for step, rows in found.items():
        for row in rows:
            real, ours = fmean(row.measured), fmean(row.simulated)
            texts = (
                str(len(row.measured)),
                f"{real:.4g}",
                f"{ours:.4g}",
                f"{ours / real - 1:+.1%}",
            )
            lines.append((step, row.setting, row.figure, *texts))
    names = ["step", "setting", "figure", "runs", "measured", "simulated", "error"]
    table = pd.DataFrame(lines, columns=names).set_index(names[:3])
    print_table(table, Console(), "measured beside simulated, means")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.tools.fidelity.lease", description=__doc__.partition("\n")[0]
    )
    add = parser.add_argument
    add("model", help="a folder of scenarios/models")
    add("--out", type=Path, required=True, help="folder of MODEL.tar and MODEL.json")
    add("--profile", default="cpu_vllm", help="folder under harness/profiles, for simulated runs")
    add("--gpu", default="CPU", help="the GPU of that profile")
    add("--steps", nargs="+", choices=BY_NAME, default=list(BY_NAME), metavar="STEP")
    add("--seconds", type=float, default=300.0, help="no step begins later")
    add("--sweep-s", type=float, default=60.0, help="seconds of the sweep, about")
    add("--requests", type=int, default=60, help="of a run of fidelity and stock")
    add("--repeats", type=int, default=3, help="repetitions of sweep, fidelity and stock")
    add("--most-requests", type=int, default=128, help="requests of a run of the sweep")
    add("--rehearse", action="store_true", help="everything small, for a CPU")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure what the command line names; returns the exit status, 1 where a step has failed."""
    try:
        lease = Lease(_options(arguments))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    lease.say(engine_name())
    found = run(lease)
    lease.unload()
    print_rows(found)
    return 0 if len(found) == len(lease.options.steps) else 1


if __name__ == "__main__":
    sys.exit(main())
