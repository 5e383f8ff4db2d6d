"""Requests simulated per second where groups are chosen among by load, or hold several services."""

import sys
from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar

from baselines.least_loaded import ORDERS, LeastLoaded
from harness.core.checks import IllegalDecision
from harness.interface.decisions import Deployment, Displaced, PriorityOrder
from harness.interface.entities import GpuId, Group, GroupId, Service
from harness.interface.policies import Capability
from harness.interface.views import ClusterView
from harness.tools.benchmarks.moving_policies import Ordered, Unaware, doubling_budget_s
from harness.tools.benchmarks.reference_load import best_s, serve_s, vllm_policy, vllm_rule, w1
from harness.tools.benchmarks.speed import policies
from harness.workloads.workload import Workload

GROUPS, SERVICES, REQUESTS, REPEATS = 32, 16, 15_000, 3
DISPATCHED, SHARED_SMS = 64_000, 2_000
RULE = vllm_rule(chunked_prefill=False, max_num_batched_tokens=4096)


class SharedOrder(Ordered):
    """A priority order over the requests of all services of a group."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})


class Unchanged(Unaware):
    """Placement policy: the same deployment at all times."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def place(self, view: ClusterView) -> Deployment:
        """The deployment."""
        return self._deployment


def measure_dispatch() -> dict[str, float]:
    """Two groups for each of 16 services, W1 on each group; the slower way to count.

    The best of several repetitions after a warm-up.
    """
    load, policy = w1(DISPATCHED, GROUPS, SERVICES), vllm_policy()
    name, figures = f"groups{GROUPS}_services{SERVICES}", {}
    for counts in ORDERS:
        dispatch = LeastLoaded(counts=counts)
        seconds = [serve_s(policy, load, GROUPS, dispatch=dispatch) for _ in range(1 + REPEATS)]
        figures[f"{name}_by_{counts}_requests_per_s"] = len(load) / min(seconds[1:])
    return figures | {f"{name}_requests_per_s": min(figures.values())}


def measure() -> dict[str, float]:
    """Requests per second by load, W1 on each group; nothing where the engine refuses the order.

    The best of several repetitions after a warm-up.
    """
    load = w1(REQUESTS, GROUPS, SERVICES)
    try:
        shared_s(w1(GROUPS, GROUPS, SERVICES))
        seconds = best_s(lambda: shared_s(load), REPEATS)
    except IllegalDecision as refused:
        print(f"no figure for shared groups: {refused}", file=sys.stderr)
        return {}
    return {"shared_groups_requests_per_s": len(load) / seconds}


def measure_sm_shares() -> dict[str, float]:
    """Two services on each of two GPUs, side by side on shares of the SMs, W1 on each GPU.

    The slowest policy that gives such shares; the best of several repetitions after a warm-up.
    """
    load, slowest_s = w1(SHARED_SMS, 2, 2), 0.0
    placement = Unchanged(pairs(load.services, 2))
    for policy in policies().values():
        if Capability.GPU_SHARE in policy.requires:
            every_s = [
                serve_s(deepcopy(policy), load, 2, placement=placement) for _ in range(1 + REPEATS)
            ]
            slowest_s = max(slowest_s, min(every_s[1:]))
    return {"sm_shares_requests_per_s": len(load) / slowest_s}


def shared_s(load: Workload) -> float:
    """Wall-clock seconds to serve a load on every group, by load."""
    order = PriorityOrder(doubling_budget_s, RULE, Displaced.PAUSE)
    return serve_s(
        SharedOrder(order),
        load,
        GROUPS,
        dispatch=LeastLoaded(counts="requests"),
        placement=Unchanged(pairs(load.services, GROUPS)),
    )


def pairs(services: Sequence[Service], gpus: int) -> Deployment:
    """On each GPU a service and the one after it; after the last comes the first."""
    names, count = [service.id for service in services], len(services)
    held = [frozenset({names[gpu % count], names[(gpu + 1) % count]}) for gpu in range(gpus)]
    groups = (Group(GroupId(f"group{gpu}"), it, (GpuId(gpu),)) for gpu, it in enumerate(held))
    return Deployment(tuple(groups))
