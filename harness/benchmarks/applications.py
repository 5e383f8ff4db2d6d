"""Seconds to serve applications, whose calls wait for each other, on several replicas."""

from dataclasses import replace

import numpy as np

from baselines.least_loaded import LeastLoaded
from baselines.round_robin import RoundRobin
from harness.benchmarks.reference_load import SEED, capacity_per_s, serve_s, w1
from harness.benchmarks.speed import SLOW_S, policies
from harness.interface.graph import Edges
from harness.interface.policies import DispatchPolicy
from harness.workloads.workload import Workload

APPLICATIONS, REPLICAS, LOAD, REPEATS = 3_000, 8, 0.8, 3
CALLS = (6, 20)
"""Fewest and most calls of an application."""


def measure() -> dict[str, float]:
    """First come first served; the best of several repetitions, of a slow engine the only one."""
    load = applications(APPLICATIONS)
    by_load_s = _best_s(load, LeastLoaded(counts="requests"))
    in_turn_s = _best_s(load, RoundRobin())
    return {
        f"applications_{APPLICATIONS}_s": by_load_s,
        "applications_calls_per_s": len(load) / by_load_s,
        f"applications_{APPLICATIONS}_in_turn_s": in_turn_s,
        "applications_in_turn_calls_per_s": len(load) / in_turn_s,
    }


def _best_s(load: Workload, dispatch: DispatchPolicy) -> float:
    policy = policies()["vllm"]
    serve_s(policy, applications(REPLICAS), REPLICAS, dispatch=dispatch)
    best_s = serve_s(policy, load, REPLICAS, dispatch=dispatch)
    for _ in range(REPEATS - 1 if best_s < SLOW_S else 0):
        best_s = min(best_s, serve_s(policy, load, REPLICAS, dispatch=dispatch))
    return best_s


def applications(count: int) -> Workload:
    """Chains, and calls that split into others whose answers one call joins, in equal parts.

    Poisson arrivals of applications at 80% of what the replicas can serve of their calls.
    """
    rng = np.random.default_rng(SEED)
    calls = rng.integers(CALLS[0], CALLS[1] + 1, count)
    first = np.cumsum(calls) - calls
    pairs = np.concatenate(
        [
            start + (_chain(size) if number % 2 else _split_and_join(size))
            for number, (start, size) in enumerate(zip(first, calls, strict=True))
        ]
    )
    total = int(calls.sum())
    output_tokens = rng.integers(20, 301, total)
    alone = replace(
        w1(total, 1),
        arrival_s=np.zeros(total),
        prompt_tokens=rng.integers(100, 2001, total),
        output_tokens=output_tokens,
        max_output_tokens=output_tokens,
        app=np.repeat(np.arange(count), calls),
    )
    per_s = LOAD * REPLICAS * capacity_per_s(policies()["vllm"], alone) * count / total
    return replace(
        alone,
        arrival_s=np.repeat(rng.exponential(1 / per_s, count).cumsum(), calls),
        edges=Edges(pairs[:, 0], pairs[:, 1], np.zeros(len(pairs), np.bool_)),
    )


def _chain(calls: int) -> np.ndarray:
    """(parent, child) of calls that follow each other."""
    return np.stack([np.arange(calls - 1), np.arange(1, calls)], axis=1)


def _split_and_join(calls: int) -> np.ndarray:
    """(parent, child) of a first call, calls that wait for it, and a last that waits for these."""
    middle = np.arange(1, calls - 1)
    split = np.stack([np.zeros_like(middle), middle], axis=1)
    return np.concatenate([split, np.stack([middle, np.full_like(middle, calls - 1)], axis=1)])
