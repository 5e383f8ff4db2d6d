"""How far simulated times are from those of real vLLM: `python -m harness.fidelity.real_engine`.

Workloads that the profile never saw, from half of what the engine can serve to more than that,
under the order of arrival, the shortest predicted answer first, and an order that preempts.
Repetitions of all settings are interleaved; each figure is a mean over them, of seconds divided by
how much slower than usual the machine was (`drift`). What is said of it: `agreement`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.build import build
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.recorder import Recorder
from harness.engines.simulator.host_memory import NO_HOST_MEMORY
from harness.engines.simulator.loop import Simulator
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.fidelity.agreement import (
    AIMS,
    bias_text,
    compare,
    counts_text,
    pooled_bias,
    word_for,
)
from harness.fidelity.drift import Probed, probed, steady
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import CostModel, System
from harness.paths import ROOT
from harness.predictors.oracle import Oracle
from harness.runs import published
from harness.runs.metrics import request_figures
from harness.runs.provenance import machine
from harness.workloads.synthetic import Synthetic
from harness.yaml_files import read_policy

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

    @property
    def place(self) -> dict[str, str]:
        """Where a row of figures belongs."""
        return {"model": self.model, "policy": self.policy, "load": self.load}

    def workload_factory(self) -> Synthetic:
        """Its workload."""
        node = yaml.safe_load((ROOT / "scenarios/workload/synthetic.yaml").read_text("utf-8"))
        del node["_target_"]
        return Synthetic(
            **node
            | {
                "model": self.model,
                "requests": self.requests,
                "rate_per_s": self.rate_per_s,
                "burstiness": self.burstiness,
            }
        )


def system(policy: str, costs: CostModel, setting: Setting, seed: int) -> System:
    """One group under the policy of a file; policies that need predictions get true lengths."""
    node = read_policy(ROOT / f"scenarios/policy/{policy}.yaml")
    if "max_num_seqs" in node:
        node["max_num_seqs"] = 12  # fewer than run at once here, so that requests are preempted
    workload = setting.workload_factory().build(seed)
    placement = FixedPlacement(data_parallel=1, tensor_parallel=1, costs=costs)
    predictor = Oracle().of(workload, seed)
    offered = {"costs": costs, "seed": seed, "host_memory": NO_HOST_MEMORY}
    scheduling = build(node, offered=offered)
    return System(policy, scheduling, RoundRobin(), placement, predictor=predictor)


def figures(requests: Any) -> dict[str, float]:
    """What is compared."""
    horizon_s = float(requests["finished_s"].max())
    found = request_figures(requests, horizon_s=horizon_s) | {"makespan_s": horizon_s}
    return {name: found[name] for name in AIMS}


def simulated(setting: Setting, costs: ProfileCosts, engine: Vllm, seed: int) -> dict[str, float]:
    """The run on the simulator."""
    clockwork = Simulator(
        cluster=engine.cluster,
        costs=costs,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        loads_first=True,
    )
    recorder = Recorder()
    workload = setting.workload_factory().build(seed)
    clockwork.run(workload, system(setting.policy, costs, setting, seed), recorder)
    return figures(recorder.requests)


def measured(
    setting: Setting, costs: ProfileCosts, engine: Vllm, *, most_lag: float
) -> dict[str, float]:
    """The run on vLLM. ValueError where its client was too late for it to count."""
    recorder = Recorder()
    workload = setting.workload_factory().build(SEED)
    engine.run(workload, system(setting.policy, costs, setting, SEED), recorder)
    found, frame = figures(recorder.requests), recorder.requests
    lag_s = float(frame["lag_s"].mean())
    if lag_s > most_lag * found["jct_s_mean"]:
        raise ValueError(f"{setting}: requests came {lag_s * 1e3:.1f} ms late on average")
    return found


def settings_of(
    model: str, requests: int, policies: Sequence[str], costs: ProfileCosts, engine: Vllm
) -> Iterator[Setting]:
    """Every policy and load of a model; rates are shares of the simulated offline throughput."""
    offline = Setting(model, "vllm", "offline", requests, None, 1.0)
    capacity = requests / simulated(offline, costs, engine, SEED)["makespan_s"]
    for policy in policies:
        for load, (share, burstiness) in LOADS.items():
            rate = None if share is None else share * capacity
            yield Setting(model, policy, load, requests, rate, burstiness)


def run(
    models: dict[str, int],
    policies: Sequence[str],
    *,
    repeats: int,
    profile: str,
    gpu: str,
    most_lag: float,
) -> list[Any]:
    """All rows, with so many requests for each model. Repetitions of settings are interleaved."""
    costs = ProfileCosts(gpu=gpu, profile_dir=profile, memory_share=0.9, parts=PARTS)
    rows = []
    for model, requests in models.items():
        engine = engine_for(costs, model)
        settings = list(settings_of(model, requests, policies, costs, engine))
        runs: dict[Setting, list[Probed]] = {setting: [] for setting in settings}
        measured(settings[0], costs, engine, most_lag=most_lag)
        for repetition in range(repeats):
            for setting in settings:
                once = partial(measured, setting, costs, engine, most_lag=most_lag)
                runs[setting].append(probed(once))
            print(f"{model}: repetition {repetition + 1} of {repeats}", flush=True)
        for setting, those in steady(runs).items():
            rows += compare(setting.place, those, simulated(setting, costs, engine, SEED))
        for group in engine.loaded.values():
            group.stop()
    return rows


def engine_for(costs: ProfileCosts, model: str) -> Vllm:
    """An engine with as many KV blocks as the profile counted."""
    node = yaml.safe_load((ROOT / "scenarios/engine/vllm.yaml").read_text("utf-8"))
    del node["_target_"]
    is_cpu = not has_gpus()
    return Vllm(
        cluster=Cluster((GpuId(0),), (), 0),
        seed=0,
        **node
        | {
            "kv_blocks": costs.kv_blocks(ServiceId(model), 1),
            "block_tokens": costs.block_tokens(ServiceId(model)),
            "eager": is_cpu,
            "keep_loaded": True,
            "loads_first": True,
        },
    )


def print_rows(rows: list[Any]) -> None:
    """The table."""
    table = Table(title="simulated against measured on vLLM, mean over repetitions")
    for name in ("model", "policy", "load", "figure"):
        table.add_column(name)
    for name in ("measured", "simulated", "error", "noise", ""):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(row[name] for name in ("model", "policy", "load", "figure")),
            f"{row['measured']:.4g}",
            f"{row['simulated']:.4g}",
            f"{row['error']:+.1%}",
            f"{row['noise']:.1%}",
            word_for(row),
        )
    Console(width=None if Console().is_terminal else 120).print(table)
    print(counts_text(rows))
    for name in AIMS:
        if any(row["figure"] == name for row in rows):
            print(f"{name}, over all settings: off by {bias_text(pooled_bias(rows, name))}")
        else:
            print(f"{name}: no run has the requests that this percentile needs")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.fidelity.real_engine", description=__doc__
    )
    parser.add_argument(
        "--models", nargs="+", default=["tiny:100", "small:80", "m100:30"], help="name:requests"
    )
    parser.add_argument(
        "--policies", nargs="+", default=POLICIES, help="files below scenarios/policy"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", default="cpu_vllm", help="folder under harness/profiles")
    parser.add_argument("--gpu", default="CPU", help="the GPU of that profile")
    parser.add_argument(
        "--most-lag",
        type=float,
        default=INVALID_LAG,
        help="how late requests may come on average, of the mean completion time",
    )
    parser.add_argument("--out", type=Path, help="a file, instead of fidelity_vllm/GPU.json")
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
        rows = run(
            models,
            options.policies,
            repeats=options.repeats,
            profile=options.profile,
            gpu=options.gpu,
            most_lag=options.most_lag,
        )
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
