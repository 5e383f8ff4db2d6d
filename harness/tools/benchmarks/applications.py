"""Seconds to serve applications, whose calls wait for each other, on several replicas."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from baselines.least_loaded import LeastLoaded
from baselines.round_robin import RoundRobin
from harness.interface.apps import OUTSIDE, Apps
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import Service
from harness.interface.events import Event, UnitFinished
from harness.interface.graph import Edges
from harness.interface.policies import DispatchPolicy, SchedulingPolicy
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView
from harness.tools.benchmarks.moving_policies import Unaware
from harness.tools.benchmarks.reference_load import (
    SEED,
    best_s,
    capacity_per_s,
    serve_s,
    vllm_policy,
    vllm_rule,
    w1,
)
from harness.workloads.call_ids import with_apps
from harness.workloads.workload import Workload

APPLICATIONS, REPLICAS, LOAD, REPEATS = 3_000, 8, 0.8, 3
CALLS = (6, 20)
"""Fewest and most calls of an application."""
OUTSIDE_SHARE, OUTSIDE_S = 1 / 3, 5.0
"""Share of calls that run outside any LLM, and their mean seconds."""


@dataclass(slots=True)
class LeastServed(Unaware):
    """Applications that have had the fewest tokens first, renewed when a unit is over."""

    rule: ContinuousBatching
    tokens: Floats = field(default_factory=lambda: np.zeros(APPLICATIONS))
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({UnitFinished})

    def observe(self, event: Event) -> None:
        """Count the tokens of a unit."""
        if isinstance(event, UnitFinished):
            self.tokens[event.app] += sum(event.output_tokens)

    def schedule(self, view: GroupView) -> Decision:
        """The same order throughout."""
        return Decision(priority_order=PriorityOrder(self._key, self.rule, renews=True))

    def _key(self, table: RequestTable) -> Floats:
        return self.tokens[table.app]


def measure() -> dict[str, float]:
    """First come first served; the best of several repetitions."""
    load, by_load, vllm = applications(APPLICATIONS), LeastLoaded(counts="requests"), vllm_policy()
    outside = with_units_outside(load)
    by_load_s, in_turn_s = _best_s(load, by_load, vllm), _best_s(load, RoundRobin(), vllm)
    renewed = LeastServed(vllm_rule(max_num_batched_tokens=8192, watermark=0.01))
    name = f"applications_{APPLICATIONS}"
    return {
        f"{name}_s": by_load_s,
        "applications_calls_per_s": len(load) / by_load_s,
        f"{name}_in_turn_s": in_turn_s,
        "applications_in_turn_calls_per_s": len(load) / in_turn_s,
        f"{name}_units_outside_s": _best_s(outside, by_load, vllm),
        f"{name}_renewed_s": _best_s(outside, by_load, renewed),
    }


def _best_s(load: Workload, dispatch: DispatchPolicy, policy: SchedulingPolicy) -> float:
    serve_s(policy, applications(REPLICAS), REPLICAS, dispatch=dispatch)
    return best_s(lambda: serve_s(policy, load, REPLICAS, dispatch=dispatch), REPEATS)


def applications(count: int) -> Workload:
    """Chains, and calls that split into others whose answers one call joins, in equal parts.

    Poisson arrivals of applications at 80% of what the replicas can serve of their calls.
    """
    rng = np.random.default_rng(SEED)
    calls = rng.integers(CALLS[0], CALLS[1] + 1, count)
    first = np.cumsum(calls) - calls
    each = enumerate(zip(first, calls, strict=True))
    pairs = np.concatenate([start + _pairs(size, number) for number, (start, size) in each])
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
    per_s = LOAD * REPLICAS * capacity_per_s(vllm_policy(), alone) * count / total
    return replace(
        alone,
        arrival_s=np.repeat(rng.exponential(1 / per_s, count).cumsum(), calls),
        edges=Edges(pairs[:, 0], pairs[:, 1], np.zeros(len(pairs), np.bool_)),
    )


def with_units_outside(load: Workload) -> Workload:
    """The same applications; a third of their calls run outside any LLM.

    Calls that wait for the same are one unit.
    """
    rng, count = np.random.default_rng(SEED), len(load)
    outside = rng.random(count) < OUTSIDE_SHARE
    tokens = np.where(outside, 1, load.output_tokens)
    prompt_tokens = np.where(outside, 1, load.prompt_tokens)
    last_parent = np.full(count, -1)
    np.maximum.at(last_parent, load.edges.child, load.edges.parent)
    _, instance = np.unique(np.stack([load.app, last_parent]), axis=1, return_inverse=True)
    apps = Apps(
        kinds=("mixed",),
        kind=np.zeros(int(load.app.max()) + 1, np.int64),
        units=("call",),
        unit=np.zeros(count, np.int64),
        instance=instance,
        external_s=np.where(outside, rng.exponential(OUTSIDE_S, count), np.nan),
    )
    alone = replace(
        load,
        services=(*load.services, Service(OUTSIDE, 0, 2)),
        service=np.where(outside, len(load.services), load.service),
        prompt_tokens=prompt_tokens,
        own_tokens=prompt_tokens,
        output_tokens=tokens,
        max_output_tokens=tokens,
    )
    return with_apps(alone, apps, SEED)


def _pairs(calls: int, number: int) -> np.ndarray:
    """(parent, child) of calls that follow each other, or wait for the first before the last."""
    if number % 2:
        return np.stack([np.arange(calls - 1), np.arange(1, calls)], axis=1)
    middle, ends = np.arange(1, calls - 1), np.zeros(calls - 2, np.int64)
    split, join = np.stack([ends, middle], axis=1), np.stack([middle, ends + calls - 1], axis=1)
    return np.concatenate([split, join])
