"""How far simulated times are from real vLLM: `python -m harness.tools.fidelity.real_engine`.

Workloads that the profile never saw, from half of what the engine can serve to more than that,
under the order of arrival and an order that preempts.
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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.config.build import build
from harness.config.engine_limits import LIMITS
from harness.config.paths import ROOT
from harness.config.yaml_files import read_policy, read_yaml
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.engine import Engine
from harness.engines.host_memory import NO_HOST_MEMORY
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import CostModel, System
from harness.predictors.oracle import Oracle
from harness.report.agreement import (
    AIMS,
    bias_text,
    compare,
    counts_text,
    late_text,
    pooled_bias,
    row_of,
    word_for,
)
from harness.runs import published
from harness.runs.latencies import request_figures
from harness.runs.provenance import machine
from harness.runs.table import print_table
from harness.tools.fidelity.speed import (
    BATCH,
    AtSpeed,
    speeds_between,
    speeds_of,
    speeds_text,
    totals_of,
)
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
PLACE = ("model", "policy", "load")


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """One model, policy and load."""

    model: str
    policy: str
    load: str
    requests: int
    rate_per_s: float | None
    burstiness: float

    @classmethod
    def stored(cls, entry: Mapping[str, Any]) -> "MeasuredSetting":
        """That of an entry of a stored file."""
        return cls(**{field.name: entry[field.name] for field in fields(cls)})


def workload_of(setting: MeasuredSetting) -> Workload:
    """Its requests."""
    names = ("model", "requests", "rate_per_s", "burstiness")
    own = {name: getattr(setting, name) for name in names}
    recipe = read_yaml(ROOT / "scenarios/workload/synthetic.yaml")
    del recipe["defaults"]  # for Hydra: no other process of arrivals
    workload: Workload = build(recipe | own).build(SEED)
    return workload


def limits_of(engine: Any) -> dict[str, int]:
    """Most requests at once, and most tokens of an iteration."""
    return {name: getattr(engine, name) for name in LIMITS}


def system_of(engine: Engine, policy: str, costs: CostModel, *, tensor_parallel: int = 1) -> System:
    """One group under a policy of scenarios/policy."""
    node = read_policy(ROOT / f"scenarios/policy/{policy}.yaml", limits_of(engine))
    if "max_num_seqs" in node:
        node["max_num_seqs"] = 12  # fewer than run at once here, so that requests are preempted
    placement = FixedPlacement(data_parallel=1, tensor_parallel=tensor_parallel, costs=costs)
    built = build(node, offered={"costs": costs, "seed": SEED, "host_memory": NO_HOST_MEMORY})
    return System(policy, built, RoundRobin(), placement)


def served(
    engine: Engine, setting: MeasuredSetting, costs: CostModel, *, keep_times: bool = False
) -> Recorder:
    """A run, served by one group; policies that need predictions get true lengths."""
    workload, recorder = workload_of(setting), Recorder(keep_times=keep_times)
    system = system_of(engine, setting.policy, costs)
    engine.run(workload, replace(system, predictor=Oracle().of(workload, SEED)), recorder)
    return recorder


def figures(requests: pd.DataFrame) -> dict[str, float]:
    """What is compared, and how late requests were taken in where that was measured."""
    horizon_s = float(requests["finished_s"].max())
    found = request_figures(requests, horizon_s=horizon_s) | {"makespan_s": horizon_s}
    lag = {LAG: float(requests["lag_s"].mean())} if "lag_s" in requests else {}
    return {name: found[name] for name in AIMS} | lag


def simulator(costs: ProfileCosts, limits: Mapping[str, int], *, gpus: int = 1) -> Simulator:
    """An engine with these limits, on GPUs that NVLink connects; loads come first."""
    ids = tuple(map(GpuId, range(gpus)))
    own: dict[str, Any] = {name: limits[name] for name in LIMITS}
    return Simulator(cluster=Cluster(ids, (frozenset(ids),)), costs=costs, loads_first=True, **own)


def simulated(
    setting: MeasuredSetting,
    costs: ProfileCosts,
    limits: Mapping[str, int],
    *,
    true: ProfileCosts | None = None,
) -> dict[str, float]:
    """The run on the simulator, of an engine with these limits.

    Policies believe the `costs`; iterations take the `true` ones, if these are given.
    """
    return figures(served(simulator(true or costs, limits), setting, costs).requests)


def settings_of(
    model: str,
    requests: int,
    policies: Sequence[str],
    costs: ProfileCosts,
    limits: Mapping[str, int],
) -> Iterator[MeasuredSetting]:
    """Every policy and load of a model; rates are shares of the simulated offline throughput."""
    offline = MeasuredSetting(model, "vllm", "offline", requests, None, 1.0)
    capacity = requests / simulated(offline, costs, limits)["makespan_s"]
    for policy in policies:
        for load, (share, burstiness) in LOADS.items():
            rate = None if share is None else share * capacity
            yield MeasuredSetting(model, policy, load, requests, rate, burstiness)


def kv_of(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The KV of an engine as vLLM resolved its configuration: bytes, and tokens of a block."""
    block_tokens = resolved["block_tokens"]
    kv_bytes = resolved["kv_blocks"] * block_tokens * resolved["kv_bytes_per_token"]
    return {"kv_bytes": kv_bytes, "block_tokens": block_tokens}


def costs_of(
    options: argparse.Namespace, resolved: Mapping[str, Any] | None = None
) -> ProfileCosts:
    """Of the profile and GPU that a command line names, with the KV of an engine, if given."""
    return ProfileCosts(
        gpu=options.gpu,
        profile_dir=options.profile,
        memory_share=0.9,
        parts=PARTS,
        engine="vllm-sync",
        **kv_of(resolved) if resolved else {},
    )


def measured(models: Mapping[ServiceId, int], options: argparse.Namespace) -> dict[str, Any]:
    """Every repetition of all settings on real vLLM, with so many requests for each model.

    The first run of a model loads it. `batches` of a sweep are in the columns of `BATCH`, `totals`
    are seconds.
    """
    # What measures needs vLLM; to simulate what is stored does not.
    from harness.engines.vllm.processor import engine_name
    from harness.tools.calibrate.model import engine as vllm

    costs = costs_of(options)
    content: dict[str, Any] = {"engine": engine_name(), "machine": machine()}
    content |= {"settings": [], "sweeps": {}, "resolved": {}}
    for model, requests in models.items():
        # As many KV blocks as the profile counted.
        blocks, block_tokens = costs.kv_blocks(model, 1), costs.block_tokens(model)
        engine = replace(vllm(blocks), block_tokens=block_tokens)
        settings = [*settings_of(model, requests, options.policies, costs, limits_of(engine))]
        runs: dict[MeasuredSetting, list[dict[str, float]]] = {setting: [] for setting in settings}
        served(engine, settings[0], costs)
        sweeps: dict[str, Any] = {"batches": [], "totals": []}
        _sweep(engine, settings[0], costs, sweeps)
        for repetition in range(options.repeats):
            for setting in settings:
                runs[setting].append(figures(served(engine, setting, costs).requests))
            _sweep(engine, settings[0], costs, sweeps)
            print(f"{model}: repetition {repetition + 1} of {options.repeats}", flush=True)
        content["settings"] += [asdict(it) | {"runs": those} for it, those in runs.items()]
        content["sweeps"][model] = sweeps
        content["resolved"] |= _unloaded(engine)
    return content


def _unloaded(engine: Any) -> dict[str, Any]:
    """Free the model of an engine; by its name, how vLLM had resolved its configuration."""
    (group,) = engine.loaded.values()
    resolved = {str(name): dict(it) for name, it in group.resolved.items()}
    group.stop()
    engine.loaded.clear()
    return resolved


def _sweep(
    engine: Any, setting: MeasuredSetting, costs: ProfileCosts, sweeps: dict[str, Any]
) -> None:
    """Compute designed batches and keep what they took; not on GPUs, which do not drift."""
    from harness.engines.vllm.processor import has_gpus
    from harness.engines.vllm.timed_batches import how_fast

    if has_gpus():
        return
    services = workload_of(setting).services
    rows = how_fast(engine, services, system_of(engine, "vllm", costs))
    rounds, totals = rows["round"].nunique(), totals_of(rows, costs, setting.model)
    sweeps["batches"] = rows.loc[rows["round"] == 0, BATCH].to_numpy().tolist()
    sweeps["totals"].append([seconds / rounds for seconds in totals])


def compared(content: Mapping[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all settings: every figure simulated at the speed of the repetition.

    `as_profiled` is what is simulated by the profile as it is. The engine has the limits and the KV
    that vLLM resolved.
    """
    rows = []
    for entry in content["settings"]:
        setting = MeasuredSetting.stored(entry)
        resolved = content["resolved"][setting.model]
        costs = costs_of(options, resolved)
        plain = simulated(setting, costs, resolved)
        speeds = speeds_of(content["sweeps"].get(setting.model), costs, setting.model)
        guesses = [
            simulated(setting, costs, resolved, true=AtSpeed(costs, {setting.model: speed}))
            for speed in speeds_between(speeds)
        ] or [plain] * len(entry.get("runs", ()))
        place = {name: entry[name] for name in PLACE}
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


def print_rows(rows: list[dict[str, Any]]) -> None:
    """The table, and the bias of each figure."""
    table = pd.DataFrame(
        rows, columns=[*PLACE, "figure", "measured", "simulated", "error", "noise"]
    )
    forms = {"measured": "{:.4g}", "simulated": "{:.4g}", "error": "{:+.1%}", "noise": "{:.1%}"}
    for name, form in forms.items():
        table[name] = table[name].map(form.format)
    table[""] = [str(word_for(row)) for row in rows]
    title = "simulated against measured on vLLM, mean over repetitions"
    print_table(table.set_index([*PLACE, "figure"]), Console(), title)
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


def stored(path: Path) -> dict[str, Any]:
    """What an earlier command wrote. ValueError, naming the file, for anything else."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for name in ("engine", "machine", "settings", "sweeps", "resolved"):
        if name not in content:
            raise ValueError(f"{path} has no {name}: it is no file of this command")
    return content


def _content(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, now or before, and the rows beside what is simulated."""
    if options.again:
        content = stored(options.again)
    else:
        counts = (model.partition(":") for model in options.models)
        content = measured({ServiceId(name): int(count) for name, _, count in counts}, options)
    speeds = [
        speed
        for model, swept in content["sweeps"].items()
        for speed in speeds_of(swept, costs_of(options), model)
    ]
    if speeds:
        content["speed"] = speeds_text(speeds)
    return content | {"rows": compared(content, options)}


def main(arguments: list[str] | None = None) -> int:
    """Compare what the command line names; returns the exit status."""
    options = _options(arguments)
    try:
        if options.repeats < 2:
            raise ValueError(f"--repeats={options.repeats}: noise needs at least 2")
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
