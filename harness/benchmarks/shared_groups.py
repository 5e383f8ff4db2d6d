"""Requests simulated per second where groups hold several services, under a doubling budget."""

import sys
from collections.abc import Sequence
from typing import ClassVar

from baselines.least_loaded import LeastLoaded
from harness.benchmarks.moving_policies import Ordered, doubling_budget_s
from harness.benchmarks.reference_load import serve_s, w1
from harness.benchmarks.speed import SLOW_S
from harness.interface.checks import IllegalDecision
from harness.interface.decisions import ContinuousBatching, Deployment, Displaced, PriorityOrder
from harness.interface.entities import GpuId, Group, GroupId, Service
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import ClusterView
from harness.workloads.workload import Workload

GROUPS, SERVICES, REQUESTS, REPEATS = 32, 16, 15_000, 3
RULE = ContinuousBatching(
    chunked_prefill=False,
    pads_prompts=False,
    max_num_seqs=256,
    max_num_batched_tokens=4096,
    max_padding_tokens=0,
    watermark=0.0,
)


class SharedOrder(Ordered):
    """A priority order over the requests of all services of a group."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})


class Unchanged:
    """Placement policy: the same deployment at all times."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The deployment."""
        return self._deployment


def measure() -> dict[str, float]:
    """Requests per second by load, W1 on each group; nothing where the engine refuses the order.

    The best of several repetitions after a warm-up, of a slow engine the only one.
    """
    load = w1(REQUESTS, GROUPS, SERVICES)
    try:
        shared_s(w1(GROUPS, GROUPS, SERVICES))
        best_s = shared_s(load)
    except IllegalDecision as refused:
        print(f"no figure for shared groups: {refused}", file=sys.stderr)
        return {}
    for _ in range(REPEATS - 1 if best_s < SLOW_S else 0):
        best_s = min(best_s, shared_s(load))
    return {"shared_groups_requests_per_s": len(load) / best_s}


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
    return Deployment(
        tuple(
            Group(
                GroupId(f"group{gpu}"),
                frozenset({names[gpu % count], names[(gpu + 1) % count]}),
                (GpuId(gpu),),
            )
            for gpu in range(gpus)
        )
    )
