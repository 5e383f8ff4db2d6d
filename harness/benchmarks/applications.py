"""Seconds to serve applications, whose calls wait for each other, on several replicas."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from baselines.least_loaded import LeastLoaded
from baselines.round_robin import RoundRobin
from harness.benchmarks.reference_load import SEED, capacity_per_s, serve_s, w1
from harness.benchmarks.speed import SLOW_S, policies
from harness.interface.apps import OUTSIDE, Apps
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import Service
from harness.interface.events import Event, UnitFinished
from harness.interface.graph import Edges
from harness.interface.policies import Capability, DispatchPolicy, SchedulingPolicy
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView
from harness.workloads.call_ids import with_apps
from harness.workloads.workload import Workload

APPLICATIONS, REPLICAS, LOAD, REPEATS = 3_000, 8, 0.8, 3
CALLS = (6, 20)
"""Fewest and most calls of an application."""
OUTSIDE_SHARE, OUTSIDE_S = 1 / 3, 5.0
"""Share of calls that run outside any LLM, and their mean seconds."""


@dataclass(slots=True)
class LeastServed:
    """Applications that have had the fewest tokens first, renewed when a unit is over."""

    rule: ContinuousBatching
    tokens: Floats = field(default_factory=lambda: np.zeros(APPLICATIONS))
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({UnitFinished})
    requires: ClassVar[frozenset[Capability]] = frozenset()

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
    """First come first served; the best of several repetitions, of a slow engine the only one."""
    load = applications(APPLICATIONS)
    by_load_s = _best_s(load, LeastLoaded(counts="requests"))
    in_turn_s = _best_s(load, RoundRobin())
    outside = with_units_outside(load)
    rule = ContinuousBatching(
        chunked_prefill=True,
        pads_prompts=False,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        max_padding_tokens=0,
        watermark=0.01,
    )
    return {
        f"applications_{APPLICATIONS}_s": by_load_s,
        "applications_calls_per_s": len(load) / by_load_s,
        f"applications_{APPLICATIONS}_in_turn_s": in_turn_s,
        "applications_in_turn_calls_per_s": len(load) / in_turn_s,
        f"applications_{APPLICATIONS}_units_outside_s": _best_s(
            outside, LeastLoaded(counts="requests")
        ),
        f"applications_{APPLICATIONS}_renewed_s": _best_s(
            outside, LeastLoaded(counts="requests"), LeastServed(rule)
        ),
    }


def _best_s(
    load: Workload, dispatch: DispatchPolicy, policy: SchedulingPolicy | None = None
) -> float:
    policy = policy or policies()["vllm"]
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


def _chain(calls: int) -> np.ndarray:
    """(parent, child) of calls that follow each other."""
    return np.stack([np.arange(calls - 1), np.arange(1, calls)], axis=1)


def _split_and_join(calls: int) -> np.ndarray:
    """(parent, child) of a first call, calls that wait for it, and a last that waits for these."""
    middle = np.arange(1, calls - 1)
    split = np.stack([np.zeros_like(middle), middle], axis=1)
    return np.concatenate([split, np.stack([middle, np.full_like(middle, calls - 1)], axis=1)])
