"""Two services, m0 and m1, that share a GPU."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.core.fill import is_decode, run_in_order
from harness.costs.iteration import IterationTable
from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision, Deployment
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.events import Event, Iterated
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.serving import LinearCosts, TwoSizes, serve
from harness.workloads.workload import Workload

SERVICES = frozenset({ServiceId("m0"), ServiceId("m1")})
SHARED = Group(GroupId("both@0"), SERVICES, (GpuId(0),))


class Together:
    """Placement: both services on GPU 0."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same every time."""
        return Deployment((SHARED,))


@dataclass
class LeastServed:
    """The service with fewer iterations so far, its requests in order of arrival."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})
    most_bytes: int = 0
    served: dict[ServiceId, int] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        """Count iterations."""
        assert isinstance(event, Iterated)
        service = event.batch.service
        self.served[service] = self.served.get(service, 0) + event.iterations

    def schedule(self, view: GroupView) -> Decision:
        """The service with work that is furthest behind is next."""
        requests, services = list(view.requests.values()), view.kv.services
        held = sum(r.kv_tokens * services[r.facts.service].kv_bytes_per_token for r in requests)
        self.most_bytes = max(self.most_bytes, held)
        requests.sort(key=lambda r: (self.served.get(r.facts.service, 0), r.facts.service))
        draft = Draft(view)
        run_in_order(draft, requests, victims=requests[::-1])
        alone = len({r.facts.service for r in requests}) == 1
        steady = alone and all(map(is_decode, requests)) and draft.runs_all
        return draft.decision(steady=steady)


@dataclass(frozen=True)
class UnitCosts(TwoSizes):
    """So many seconds for any prefill and any decode, and nothing for loading."""

    load: float = 0.0
    each_s: float = 1.0

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Bases only."""
        none, each = np.zeros(1025), np.full(1025, self.each_s)
        return IterationTable(each, none, none, none, each, none, none, np.array([self.each_s]))


def of_services(load: Workload, services: str) -> Workload:
    """The workload with a service for each request, as digits."""
    return replace(load, service=np.array([int(digit) for digit in services]))


def served(load: Workload, policy: SchedulingPolicy, costs: LinearCosts, *, fast: bool) -> Recorder:
    """Both services on GPU 0, and what each iteration computed."""
    recorder = Recorder(keep_iterations=True)
    return serve(
        load, policy, Together(), costs=costs, fast_forward=fast, gpus=1, recorder=recorder
    )
