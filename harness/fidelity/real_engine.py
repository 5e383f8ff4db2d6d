"""How far simulated times are from those of real vLLM: `python -m harness.fidelity.real_engine`.

Workloads that the profile never saw, from half of what the engine can serve to more than that,
under the order of arrival, the shortest predicted answer first, and an order that preempts.
Repetitions of all settings are interleaved; each figure is a mean over them, of seconds divided by
how much slower than usual the machine was. Both, and what is said of it: `agreement`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.config.build import build
from harness.config.engine_limits import LIMITS
from harness.config.paths import ROOT
from harness.config.yaml_files import read_policy, read_yaml
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.host_memory import NO_HOST_MEMORY
from harness.engines.simulator.loop import Simulator
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.fidelity.agreement import (
    AIMS,
    Probed,
    bias_text,
    compare,
    counts_text,
    pooled_bias,
    probed,
    steady,
    word_for,
)
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import CostModel, System
from harness.predictors.oracle import Oracle
from harness.runs import published
from harness.runs.metrics import request_figures
from harness.runs.provenance import machine

# Arrivals as a share of what the engine can serve, and the coefficient of variation of the gaps.
LOADS = {
    "offline": (None, 1.0),
    "Poisson 0.5": (0.5, 1.0),
    "Poisson 0.8": (0.8, 1.0),
    "Poisson 0.9": (0.9, 1.0),
    "Poisson 1.1": (1.1, 1.0),
    "bursty 0.8": (0.8, 3.0),
}
POLICIES = ("vllm", "srtf")
SEED = 0  # of the workloads: repetitions differ in nothing
INVALID_LAG = 0.01  # of the mean completion time


@dataclass(frozen=True, slots=True)
class Setting:
    """One model, policy and load."""

    model: str
    policy: str
    load: str
    requests: int
    rate_per_s: float | None
    burstiness: float


def served(engine: Engine, setting: Setting, costs: CostModel) -> pd.DataFrame:
    """The requests, served by one group; policies that need predictions get true lengths."""
    limits = {limit: getattr(engine, limit) for limit in LIMITS}
    node = read_policy(ROOT / f"scenarios/policy/{setting.policy}.yaml", limits)
    if "max_num_seqs" in node:
        node["max_num_seqs"] = 12  # fewer than run at once here, so that requests are preempted
    names = ("model", "requests", "rate_per_s", "burstiness")
    own = {name: getattr(setting, name) for name in names}
    recipe = read_yaml(ROOT / "scenarios/workload/synthetic.yaml")
    del recipe["defaults"]  # for Hydra: no other process of arrivals
    workload = build(recipe | own).build(SEED)
    placement = FixedPlacement(data_parallel=1, tensor_parallel=1, costs=costs)
    predictor = Oracle().of(workload, SEED)
    policy = build(node, offered={"costs": costs, "seed": SEED, "host_memory": NO_HOST_MEMORY})
    recorder = Recorder()
    system = System(setting.policy, policy, RoundRobin(), placement, predictor=predictor)
    engine.run(workload, system, recorder)
    return recorder.requests


def figures(requests: pd.DataFrame) -> dict[str, float]:
    """What is compared."""
    horizon_s = float(requests["finished_s"].max())
    found = request_figures(requests, horizon_s=horizon_s) | {"makespan_s": horizon_s}
    return {name: found[name] for name in AIMS}


def simulated(setting: Setting, costs: ProfileCosts, engine: Vllm) -> dict[str, float]:
    """The run on the simulator."""
    clockwork = Simulator(
        cluster=engine.cluster,
        costs=costs,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        loads_first=True,
    )
    return figures(served(clockwork, setting, costs))


def measured(
    setting: Setting, costs: ProfileCosts, engine: Vllm, *, most_lag: float
) -> dict[str, float]:
    """The run on vLLM. ValueError where its client was too late for it to count."""
    requests = served(engine, setting, costs)
    found, lag_s = figures(requests), float(requests["lag_s"].mean())
    if lag_s > most_lag * found["jct_s_mean"]:
        raise ValueError(f"{setting}: requests came {lag_s * 1e3:.1f} ms late on average")
    return found


def settings_of(
    model: str, requests: int, policies: Sequence[str], costs: ProfileCosts, engine: Vllm
) -> Iterator[Setting]:
    """Every policy and load of a model; rates are shares of the simulated offline throughput."""
    offline = Setting(model, "vllm", "offline", requests, None, 1.0)
    capacity = requests / simulated(offline, costs, engine)["makespan_s"]
    for policy in policies:
        for load, (share, burstiness) in LOADS.items():
            rate = None if share is None else share * capacity
            yield Setting(model, policy, load, requests, rate, burstiness)


def run(models: dict[str, int], options: argparse.Namespace) -> list[Any]:
    """All rows, with so many requests for each model. Repetitions of settings are interleaved."""
    costs = ProfileCosts(
        gpu=options.gpu, profile_dir=options.profile, memory_share=0.9, parts=PARTS
    )
    rows = []
    for model, requests in models.items():
        engine = engine_for(costs, model)
        settings = list(settings_of(model, requests, options.policies, costs, engine))
        runs: dict[Setting, list[Probed]] = {setting: [] for setting in settings}
        measured(settings[0], costs, engine, most_lag=options.most_lag)
        for repetition in range(options.repeats):
            for setting in settings:
                once = partial(measured, setting, costs, engine, most_lag=options.most_lag)
                runs[setting].append(probed(once))
            print(f"{model}: repetition {repetition + 1} of {options.repeats}", flush=True)
        for setting, those in steady(runs).items():
            place = {name: getattr(setting, name) for name in ("model", "policy", "load")}
            rows += compare(place, those, simulated(setting, costs, engine))
        for group in engine.loaded.values():
            group.stop()
    return rows


def engine_for(costs: ProfileCosts, model: str) -> Vllm:
    """An engine with as many KV blocks as the profile counted."""
    node = read_yaml(ROOT / "scenarios/engine/vllm.yaml") | {
        "kv_blocks": costs.kv_blocks(ServiceId(model), 1),
        "block_tokens": costs.block_tokens(ServiceId(model)),
        "eager": not has_gpus(),
        "keep_loaded": True,
        "loads_first": True,
    }
    engine: Vllm = build(node, offered={"cluster": Cluster((GpuId(0),), (), 0), "seed": 0})
    return engine


def print_rows(rows: list[Any]) -> None:
    """The table."""
    table = Table("model", "policy", "load", "figure")
    table.title = "simulated against measured on vLLM, mean over repetitions"
    for name in ("measured", "simulated", "error", "noise", ""):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(row[name] for name in ("model", "policy", "load", "figure")),
            *(f"{row[name]:.4g}" for name in ("measured", "simulated")),
            *(f"{row['error']:+.1%}", f"{row['noise']:.1%}", word_for(row)),
        )
    Console(width=None if Console().is_terminal else 120).print(table)
    print(counts_text(rows))
    for name in AIMS:
        if any(row["figure"] == name for row in rows):
            print(f"{name}, over all settings: off by {bias_text(pooled_bias(rows, name))}")
        else:
            print(f"{name}: no run has the requests that this percentile needs")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add, models = parser.add_argument, ["tiny:100", "small:80", "m100:30"]
    add("--models", nargs="+", default=models, help="name:requests")
    add("--policies", nargs="+", default=POLICIES, help="files below scenarios/policy")
    add("--repeats", type=int, default=5)
    add("--profile", default="cpu_vllm", help="folder under harness/profiles")
    add("--gpu", default="CPU", help="the GPU of that profile")
    said = "how late requests may come on average, of the mean completion time"
    add("--most-lag", type=float, default=INVALID_LAG, help=said)
    add("--out", type=Path, help="a file, instead of fidelity_vllm/GPU.json")
    published.add_publish(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Compare what the command line names; returns the exit status."""
    options = _options(arguments)
    if options.repeats < 2:
        print(f"--repeats={options.repeats}: noise needs at least 2", file=sys.stderr)
        return 2
    try:
        models = {name: int(count) for name, _, count in (m.partition(":") for m in options.models)}
        rows = run(models, options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print_rows(rows)
    folder = published.place("fidelity_vllm", publish=options.publish)
    content = {"engine": engine_name(), "machine": machine(), "rows": rows}
    path = options.out or folder / f"{options.gpu.lower()}.json"
    published.write(path, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
