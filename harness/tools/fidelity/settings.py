"""Settings of runs that are measured and simulated: one model, policy and load each."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

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
from harness.interface.entities import Cluster, GpuId
from harness.interface.policies import CostModel, System
from harness.predictors.oracle import Oracle
from harness.report.agreement import AIMS
from harness.runs.latencies import request_figures
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
class MeasuredSetting:
    """One model, policy and load."""

    model: str
    policy: str
    load: str
    requests: int
    rate_per_s: float | None
    burstiness: float


def workload_of(setting: MeasuredSetting) -> Workload:
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


def served(engine: Engine, setting: MeasuredSetting, costs: CostModel) -> pd.DataFrame:
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
    clockwork = Simulator(
        cluster=Cluster((GpuId(0),), ()),
        costs=true or costs,
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
) -> Iterator[MeasuredSetting]:
    """Every policy and load of a model; rates are shares of the simulated offline throughput."""
    offline = MeasuredSetting(model, "vllm", "offline", requests, None, 1.0)
    capacity = requests / simulated(offline, costs, limits)["makespan_s"]
    for policy in policies:
        for load, (share, burstiness) in LOADS.items():
            rate = None if share is None else share * capacity
            yield MeasuredSetting(model, policy, load, requests, rate, burstiness)


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
