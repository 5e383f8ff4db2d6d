"""W1, the load that speeds are quoted for: 512 prompt, 128 output tokens, Poisson 8/s a replica."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.config.build import build
from harness.config.paths import PROFILES, ROOT
from harness.config.yaml_files import read_policy
from harness.costs.gpu_facts import gpu_facts
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.engines.host_memory import HostMemory
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.apps import OUTSIDE
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import Cluster, GpuId, Service, ServiceId
from harness.interface.policies import (
    Capability,
    DispatchPolicy,
    PlacementPolicy,
    SchedulingPolicy,
    System,
)
from harness.predictors.oracle import Oracle
from harness.workloads.workload import Workload

GPU, PROFILE, MODEL = "A100-80G", "a100_80g_vllm_0_3", "Llama-2-7b-hf"
PROMPT_TOKENS, OUTPUT_TOKENS, RATE_PER_S, SEED = 512, 128, 8.0, 42
SLOW_S = 10.0
"""What takes longer is measured once."""
NO_KV: Mapping[str, Any] = MappingProxyType({})
VLLM = ROOT / "scenarios" / "policy" / "vllm.yaml"


def best_s(seconds: Callable[[], float], repeats: int) -> float:
    """The least of several repetitions, of a slow engine the only one."""
    found = [seconds()]
    while found[0] < SLOW_S and len(found) < repeats:
        found.append(seconds())
    return min(found)


def seconds_of(call: Callable[[], object]) -> float:
    """Wall-clock seconds of a call."""
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s


def printed(words: Sequence[str], **environment: str) -> Any:
    """What Python with these arguments prints last, as JSON, in a process of its own."""
    command, env = [sys.executable, *words], {**os.environ, **environment}
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
    return json.loads(out.stdout.splitlines()[-1])


def vllm_policy() -> SchedulingPolicy:
    """First come first served as in vLLM."""
    policy: SchedulingPolicy = build(read_policy(VLLM))
    return policy


def vllm_rule(**changes: Any) -> ContinuousBatching:
    """The batch rule of vLLM's policy file, with changes."""
    rule: ContinuousBatching = build(read_policy(VLLM)["rule"] | changes)
    return rule


def w1(requests: int, replicas: int, services: int = 1) -> Workload:
    """`requests` of W1 for one service on `replicas` groups, or for several of them in turn."""
    facts = model_facts(MODEL)
    rng = np.random.default_rng(SEED)
    names = [MODEL] if services == 1 else [f"{MODEL}~{i}" for i in range(services)]
    kv, context = facts.kv_bytes_per_token, facts.max_context_tokens
    return Workload(
        services=tuple(Service(ServiceId(name), kv, context) for name in names),
        service=np.arange(requests, dtype=np.int64) % services,
        arrival_s=rng.exponential(1 / (RATE_PER_S * replicas), requests).cumsum(),
        prompt_tokens=np.full(requests, PROMPT_TOKENS),
        output_tokens=np.full(requests, OUTPUT_TOKENS),
        max_output_tokens=np.full(requests, OUTPUT_TOKENS),
        app=np.arange(requests),
        deadline_s=np.full(requests, np.nan),
    )


def reference_costs(kv: Mapping[str, Any] = NO_KV) -> ProfileCosts:
    """The costs that W1 is served at; `kv` may have other `kv_bytes` and `kv_number_bytes`."""
    about: dict[str, Any] = {"gpu": GPU, "profile_dir": PROFILE, "memory_share": 0.9}
    return ProfileCosts(**about, parts=PARTS, **kv)


def reference_host_memory() -> HostMemory:
    """4 GiB for each GPU, vLLM's default swap_space, on the bus of its data sheet."""
    facts = gpu_facts(GPU, PROFILES / PROFILE)
    return HostMemory(kv_bytes=4 * 2**30, bytes_per_s=facts.pcie_bytes_per_s)


def reference_cluster(gpus: int) -> Cluster:
    """GPUs that nothing joins."""
    names = tuple(GpuId(i) for i in range(gpus))
    return Cluster(names, tuple(frozenset({gpu}) for gpu in names))


def serve_s(
    policy: SchedulingPolicy,
    load: Workload,
    replicas: int,
    recorder: Recorder | None = None,
    *,
    dispatch: DispatchPolicy | None = None,
    placement: PlacementPolicy | None = None,
    prefix_caching: bool = False,
    kv: Mapping[str, Any] = NO_KV,
) -> float:
    """Wall-clock seconds to simulate a load; predictions are true lengths.

    Requests go to the groups of their service in turn, or as `dispatch` says; each service has
    equally many groups of one GPU, or those of `placement`. `kv` as in `reference_costs`.
    """
    costs = reference_costs(kv)
    engine = Simulator(
        cluster=reference_cluster(replicas),
        costs=costs,
        max_num_seqs=512,
        max_num_batched_tokens=65536,
        host_memory=reference_host_memory(),
        prefix_caching=prefix_caching,
    )
    each = replicas // sum(service.id != OUTSIDE for service in load.services)
    placement = placement or FixedPlacement(data_parallel=each, tensor_parallel=1, costs=costs)
    is_told = Capability.PREDICTIONS in policy.requires
    predictor = Oracle().of(load, SEED) if is_told else None
    system = System("bench", policy, dispatch or RoundRobin(), placement, predictor=predictor)
    return seconds_of(lambda: engine.run(load, system, recorder or Recorder()))


def capacity_per_s(policy: SchedulingPolicy, backlog: Workload) -> float:
    """Requests that one replica serves per second of a load that is all there at once."""
    recorder = Recorder()
    serve_s(policy, backlog, 1, recorder)
    served = recorder.requests
    return float(len(backlog) / (served["finished_s"].max() - served["started_s"].min()))
