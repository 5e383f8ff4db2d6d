"""How far simulated times are from those of real vLLM: `python -m harness.fidelity.real_engine`.

Workloads that the profile never saw, from half of what the engine can serve to more than that,
under the order of arrival, the shortest predicted answer first, and an order that preempts.
Repetitions of all settings are interleaved, and every one is stored as it was measured. On a CPU,
whose speed drifts where others share it, designed batches before, between and after the repetitions
say how fast it was in those minutes, and each is held against what is simulated at that speed
(`speed`); on a GPU, against the profile as it is. What is said of a figure: `agreement`.
`--again FILE` simulates stored settings with the profile of today, and measures nothing.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
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
from harness.fidelity.agreement import (
    AIMS,
    bias_text,
    compare,
    counts_text,
    late_text,
    pooled_bias,
    row_of,
    word_for,
)
from harness.fidelity.speed import AtSpeed, Speed
from harness.interface.entities import Cluster, GpuId
from harness.interface.policies import CostModel, System
from harness.predictors.oracle import Oracle
from harness.runs import published
from harness.runs.metrics import request_figures
from harness.runs.provenance import machine
from harness.workloads.workload import Workload

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
LAG = "lag_s_mean"


@dataclass(frozen=True, slots=True)
class Setting:
    """One model, policy and load."""

    model: str
    policy: str
    load: str
    requests: int
    rate_per_s: float | None
    burstiness: float


def workload_of(setting: Setting) -> Workload:
    """Its requests."""
    names = ("model", "requests", "rate_per_s", "burstiness")
    own = {name: getattr(setting, name) for name in names}
    recipe = read_yaml(ROOT / "scenarios/workload/synthetic.yaml")
    del recipe["defaults"]  # for Hydra: no other process of arrivals
    workload: Workload = build(recipe | own).build(SEED)
    return workload


def system_of(engine: Engine, policy: str, costs: CostModel) -> System:
    """One group under a policy of scenarios/policy."""
    limits = {limit: getattr(engine, limit) for limit in LIMITS}
    node = read_policy(ROOT / f"scenarios/policy/{policy}.yaml", limits)
    if "max_num_seqs" in node:
        node["max_num_seqs"] = 12  # fewer than run at once here, so that requests are preempted
    placement = FixedPlacement(data_parallel=1, tensor_parallel=1, costs=costs)
    built = build(node, offered={"costs": costs, "seed": SEED, "host_memory": NO_HOST_MEMORY})
    return System(policy, built, RoundRobin(), placement)


def served(engine: Engine, setting: Setting, costs: CostModel) -> pd.DataFrame:
    """The requests, served by one group; policies that need predictions get true lengths."""
    workload, recorder = workload_of(setting), Recorder()
    predictor = Oracle().of(workload, SEED)
    system = replace(system_of(engine, setting.policy, costs), predictor=predictor)
    engine.run(workload, system, recorder)
    return recorder.requests


def figures(requests: pd.DataFrame) -> dict[str, float]:
    """What is compared, and how late requests were taken in where that was measured."""
    horizon_s = float(requests["finished_s"].max())
    found = request_figures(requests, horizon_s=horizon_s) | {"makespan_s": horizon_s}
    lag = {LAG: float(requests["lag_s"].mean())} if "lag_s" in requests else {}
    return {name: found[name] for name in AIMS} | lag


def simulated(setting: Setting, costs: ProfileCosts, limits: Mapping[str, int]) -> dict[str, float]:
    """The run on the simulator, of an engine with these limits."""
    clockwork = Simulator(
        cluster=Cluster((GpuId(0),), (), 0),
        costs=costs,
        max_num_seqs=limits["max_num_seqs"],
        max_num_batched_tokens=limits["max_num_batched_tokens"],
        loads_first=True,
    )
    return figures(served(clockwork, setting, costs))


def settings_of(
    model: str,
    requests: int,
    policies: Sequence[str],
    costs: ProfileCosts,
    limits: Mapping[str, int],
) -> Iterator[Setting]:
    """Every policy and load of a model; rates are shares of the simulated offline throughput."""
    offline = Setting(model, "vllm", "offline", requests, None, 1.0)
    capacity = requests / simulated(offline, costs, limits)["makespan_s"]
    for policy in policies:
        for load, (share, burstiness) in LOADS.items():
            rate = None if share is None else share * capacity
            yield Setting(model, policy, load, requests, rate, burstiness)


def costs_of(
    options: argparse.Namespace, resolved: Mapping[str, Any] | None = None
) -> ProfileCosts:
    """Of the profile and GPU that a command line names, with the KV of an engine, if given."""
    kv_bytes, block_tokens = None, None
    if resolved is not None:
        block_tokens = resolved["block_tokens"]
        kv_bytes = resolved["kv_blocks"] * block_tokens * resolved["kv_bytes_per_token"]
    return ProfileCosts(
        gpu=options.gpu,
        profile_dir=options.profile,
        memory_share=0.9,
        parts=PARTS,
        kv_bytes=kv_bytes,
        block_tokens=block_tokens,
        engine="vllm-sync",
    )


def measured(models: Mapping[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """Every repetition of all settings, with so many requests for each model."""
    from harness.engines.vllm.processor import engine_name
    from harness.fidelity.measuring import Measuring

    costs = costs_of(options)
    content: dict[str, Any] = {"engine": engine_name(), "machine": machine()}
    content |= {"settings": [], "speeds": {}, "resolved": {}}
    for model, requests in models.items():
        measuring = Measuring(model, costs)
        settings = list(settings_of(model, requests, options.policies, costs, measuring.limits))
        runs: dict[Setting, list[dict[str, float]]] = {setting: [] for setting in settings}
        measuring.run(settings[0])
        speeds = [measuring.speed()]
        for repetition in range(options.repeats):
            for setting in settings:
                runs[setting].append(figures(measuring.run(setting)))
            speeds.append(measuring.speed())
            print(f"{model}: repetition {repetition + 1} of {options.repeats}", flush=True)
        content["settings"] += [asdict(it) | {"runs": those} for it, those in runs.items()]
        content["speeds"][model] = speeds
        content["resolved"] |= measuring.resolved
        measuring.stop()
    return content


def compared(content: Mapping[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all settings: every figure simulated at the speed of the repetition.

    `as_profiled` is what is simulated by the profile as it is. The engine has the limits and the KV
    that vLLM resolved.
    """
    rows = []
    for entry in content["settings"]:
        setting = Setting(**{name: entry[name] for name in Setting.__slots__})
        resolved = content["resolved"][setting.model]
        costs = costs_of(options, resolved)
        limits = {name: resolved[name] for name in LIMITS}
        plain = simulated(setting, costs, limits)
        guesses = [
            simulated(setting, AtSpeed(costs, {setting.model: speed}), limits) if speed else plain
            for speed in speeds_between(content["speeds"].get(setting.model, ()))
        ]
        place = {name: entry[name] for name in ("model", "policy", "load")}
        found = (
            compare(place, entry["runs"], guesses) if guesses else _of_means(place, entry, plain)
        )
        rows += [row | {"as_profiled": plain[row["figure"]]} for row in found]
    return rows


def _of_means(
    place: Mapping[str, str], entry: Mapping[str, Any], guess: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Rows of a setting of which only means over repetitions were kept, and the noise."""
    return [
        row_of(place, name, found["measured"], guess[name], found["noise"])
        | {"aim": AIMS[name], "repetitions": entry["repetitions"]}
        for name, found in entry["means"].items()
        if not np.isnan(guess[name])
    ]


def speeds_between(swept: Sequence[Sequence[float] | None]) -> list[Speed | None]:
    """The speed of each repetition: the mean of those before and after it; None where none is."""
    return [
        Speed(*((one + other) / 2 for one, other in zip(before, after, strict=True)))
        if before and after
        else None
        for before, after in pairwise(swept)
    ]


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
    add("--again", type=Path, help="a stored file, simulated again; nothing is measured")
    add("--out", type=Path, help="a file, instead of fidelity_vllm/GPU.json")
    published.add_publish(parser)
    return parser.parse_args(arguments)


def _content(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, now or before, and the rows beside what is simulated."""
    if options.again:
        content: dict[str, Any] = json.loads(options.again.read_text(encoding="utf-8"))
    else:
        counts = (model.partition(":") for model in options.models)
        content = measured({name: int(count) for name, _, count in counts}, options)
    return content | {"rows": compared(content, options)}


def main(arguments: list[str] | None = None) -> int:
    """Compare what the command line names; returns the exit status."""
    options = _options(arguments)
    if options.repeats < 2:
        print(f"--repeats={options.repeats}: noise needs at least 2", file=sys.stderr)
        return 2
    try:
        content = _content(options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print_rows(content["rows"])
    if runs := [run for entry in content["settings"] for run in entry.get("runs", [])]:
        content["late"] = late_text([(run[LAG], run["ttft_s_mean"]) for run in runs])
        print(content["late"])
    folder = published.place("fidelity_vllm", publish=options.publish)
    path = options.out or folder / f"{options.gpu.lower()}.json"
    published.write(path, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
