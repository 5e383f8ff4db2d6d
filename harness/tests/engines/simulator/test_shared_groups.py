"""Several services on the same GPUs: one KV space, one queue, a batch of one service at a time."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from harness.engines.ask import refuse_shared_groups
from harness.engines.recorder import GpuUse
from harness.interface.decisions import Decision, Deployment
from harness.interface.draft import Draft
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.events import Event, Iterated
from harness.interface.filling import continuous_batch, is_decode
from harness.interface.policies import Capability
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.serving import LinearCosts, UnevenCosts, serve, workload

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
        """Who has work and is behind goes next; while one has all the work, that is no choice."""
        kv = view.kv
        held = sum(kv.held_tokens(s) * kv.services[s].kv_bytes_per_token for s in view.services)
        self.most_bytes = max(self.most_bytes, held)
        requests = list(view.requests.values())
        requests.sort(key=lambda r: (self.served.get(r.facts.service, 0), r.facts.service))
        draft = Draft(view)
        continuous_batch(draft, requests, victims=requests[::-1])
        alone = len({r.facts.service for r in requests}) == 1
        steady = alone and all(map(is_decode, requests)) and draft.runs_all
        return draft.decision(steady=steady)


@pytest.mark.parametrize("blocks", [14, 200])
def test_two_services_share_a_group(blocks: int) -> None:
    rng = np.random.default_rng(5)
    load = workload(
        rng.integers(1, 60, 24).tolist(),
        rng.integers(1, 40, 24).tolist(),
        np.cumsum(rng.exponential(0.1, 24)).tolist(),
        services=2,
    )
    ended = []
    for fast in (True, False):
        policy, costs = LeastServed(), UnevenCosts(blocks=blocks, load=0.5)
        recorder = serve(load, policy, Together(), costs=costs, fast_forward=fast, gpus=1)
        requests = recorder.requests
        np.testing.assert_array_equal(requests["output_tokens"], load.output_tokens)
        ended.append(requests["finished_s"])
        assert 0 < policy.most_bytes <= costs.kv_bytes(SERVICES, 1)
        assert set(policy.served) == SERVICES
        use = recorder.gpu_frame()
        (loading,) = (use[use["use"] == GpuUse.LOADING.value]).to_dict("records")
        # They start side by side, and their weights come one after the other.
        starts_s = [costs.start_s(service, 1) for service in SERVICES]
        loads_s = sum(costs.load_s(service, 1) for service in SERVICES) - sum(starts_s)
        loads_s += max(starts_s)
        assert loading["end_s"] - loading["start_s"] == pytest.approx(loads_s)
        busy = use[use["use"] == GpuUse.BUSY.value]
        assert (busy["start_s"].to_numpy()[1:] >= busy["end_s"].to_numpy()[:-1] - 1e-9).all()
    np.testing.assert_allclose(ended[0], ended[1], rtol=1e-9)


@dataclass
class InTurn:
    """Placement: these groups one after the other, each for ten seconds."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SHARED_GROUP, Capability.REDEPLOY}
    )
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    groups: list[Group]

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The one whose turn it is."""
        turn = min(int(view.now_s / 10), len(self.groups) - 1)
        last = turn == len(self.groups) - 1
        return Deployment((self.groups[turn],), wake_s=None if last else 10.0 * (turn + 1))


def _of(name: str, services: str, *gpus: int) -> Group:
    members = frozenset(ServiceId(service) for service in services.split("+"))
    return Group(GroupId(name), members, tuple(GpuId(gpu) for gpu in gpus))


def test_only_services_that_a_group_lacks_are_loaded() -> None:
    """m1 joins m0 on GPU 0, then has it alone; on two GPUs and under another name all is loaded."""
    groups = [
        _of("a", "m0", 0),
        _of("a", "m0+m1", 0),
        _of("a", "m1", 0),
        _of("a", "m1+m0", 0, 1),
        _of("a", "m1+m0", 0),
        _of("b", "m1+m0", 0),
    ]
    costs = UnevenCosts(load=1.0)
    load = workload([5, 5], [5, 5], [0.0, 70.0], services=2)
    recorder = serve(load, LeastServed(), InTurn(groups), costs=costs)
    use = recorder.gpu_frame()
    loads = use[(use["use"] == GpuUse.LOADING.value) & (use["gpu"] == 0)]
    m0, m1 = ServiceId("m0"), ServiceId("m1")

    def both_s(tensor_parallel: int) -> float:
        whole_s = [costs.load_s(service, tensor_parallel) for service in (m0, m1)]
        starts_s = [costs.start_s(service, tensor_parallel) for service in (m0, m1)]
        return sum(whole_s) - sum(starts_s) + max(starts_s)

    expected = [costs.load_s(m0, 1), costs.load_s(m1, 1), both_s(2), both_s(1), both_s(1)]
    spans_s = (loads["end_s"] - loads["start_s"]).to_numpy()
    # For m1 alone nothing is loaded.
    assert spans_s[spans_s > 0].tolist() == pytest.approx(expected)


def test_weights_that_do_not_fit_beside_each_other_are_refused() -> None:
    class Large(LinearCosts):
        def kv_bytes(self, services: object, tensor_parallel: int) -> int:
            return 0

    with pytest.raises(ValueError, match=r"m0, m1 do not fit 1 GPUs of this cluster together"):
        serve(workload([5, 5], [5, 5], services=2), LeastServed(), Together(), costs=Large())


def test_deployments_ask_for_what_the_engine_supports() -> None:
    refuse_shared_groups(Deployment((SHARED,)), frozenset({Capability.SHARED_GROUP}))
    empty = Deployment((Group(GroupId("none@0"), frozenset(), (GpuId(0),)),))
    for wanted, count, name in ((Deployment((SHARED,)), 2, "both@0"), (empty, 0, "none@0")):
        with pytest.raises(ValueError, match=f"a deployment has {count} services in {name}"):
            refuse_shared_groups(wanted, frozenset())
