"""Several services on the same GPUs: one KV space, one queue, a batch of one service at a time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fastserve import FastServe
from baselines.fcfs import Fcfs
from baselines.service_round_robin import ServiceRoundRobin
from harness.core.checks import IllegalDecision
from harness.core.kv_ledger import ledger_of
from harness.core.ledger_problems import problems
from harness.engines.ask import refuse_shared_groups
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Deployment,
    Displaced,
    PriorityOrder,
)
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.events import Event, Iterated
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.promotion import AfterIterations
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import ClusterView, GroupView
from harness.runs.building import window_of
from harness.tests.support.loads import Load, assert_same_times, loads
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    TwoSizes,
    UnevenCosts,
    rule,
    serve,
    workload,
)
from harness.tests.support.shared import (
    SERVICES,
    SHARED,
    LeastServed,
    Together,
    UnitCosts,
    of_services,
    served,
)
from harness.tools.benchmarks.moving_policies import Ordered, attained_seconds, attained_tokens
from harness.workloads.workload import Workload
from systems.seallm.doubling_budget import DoublingBudget


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

    expected = [costs.load_s(m0, 1), both_s(2), both_s(1), both_s(1)]
    spans_s = (loads["end_s"] - loads["start_s"]).to_numpy()
    # m1 is read while m0 is served; for m1 alone nothing is loaded.
    assert spans_s[spans_s > 0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("policy", [LeastServed(), Fcfs(rule=rule())], ids=["asked", "compiled"])
def test_a_group_serves_what_it_has_while_it_reads_another_service(
    policy: SchedulingPolicy,
) -> None:
    """A prefill takes 0.5 s and a decode 0.25 s, a start 0.25 s and reading 0.75 s.

    From 10 s on m1 is read beside m0, without another start. The request for m0 at 10.1 s is
    answered at 10.85 s; that for m1 is there at 10.75 s, and has its prefill next. From 20 s on
    the same engine has m1 alone, from 30 s on it reads m0 instead, while nothing is served.
    """
    groups = [_of("a", "m0", 0), _of("a", "m0+m1", 0), _of("a", "m1", 0), _of("a", "m0", 0)]
    load = workload([5] * 4, [2] * 4, [0.0, 10.1, 10.1, 30.1], services=2)
    load = replace(load, service=np.array([0, 1, 0, 0]))
    ran = serve(load, policy, InTurn(groups), costs=FlatCosts(load=1.0), gpus=1).requests
    assert ran["first_token_s"].tolist() == pytest.approx([1.5, 11.35, 10.6, 31.25])
    assert ran["finished_s"].tolist() == pytest.approx([1.75, 11.6, 10.85, 31.5])


def test_weights_that_do_not_fit_beside_each_other_are_refused() -> None:
    class Large(LinearCosts):
        def kv_bytes(self, services: object, tensor_parallel: int) -> int:
            return 0

    with pytest.raises(ValueError, match=r"m0, m1 do not fit 1 GPUs together"):
        serve(workload([5, 5], [5, 5], services=2), LeastServed(), Together(), costs=Large())


def test_deployments_ask_for_what_the_engine_supports() -> None:
    refuse_shared_groups(Deployment((SHARED,)), frozenset({Capability.SHARED_GROUP}))
    empty = Deployment((Group(GroupId("none@0"), frozenset(), (GpuId(0),)),))
    for wanted, count, name in ((Deployment((SHARED,)), 2, "both@0"), (empty, 0, "none@0")):
        with pytest.raises(ValueError, match=f"a deployment has {count} services in {name}"):
            refuse_shared_groups(wanted, frozenset())


# ---- priority orders ----


def m0_first(table: RequestTable) -> Floats:
    return table.service.astype(np.float64)


SIX = UnitCosts(blocks=6)
"""9,600 bytes: six blocks of m0 at 1,600, two of m1 at 4,800."""


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("displaces", "preempted_s"), [(None, 3), (Displaced.PAUSE, 3), (Displaced.RECOMPUTE, 36)]
)
def test_kv_of_one_service_is_taken_for_another(
    displaces: Displaced | None, preempted_s: float, fast: bool
) -> None:
    """r0 (m1, 15 tokens) holds 4,800 bytes at 2 s, after two of five tokens; then m0 comes first.

    r1 (m0, 16 tokens) has 36 tokens to produce. Its prompt ends at 3 s, and its KV takes the other
    4,800 bytes until 48 tokens are held, by 32 decodes: at 35 s it takes those of r0. It ends at
    3 + 35 s, and r0 computes its prompt and two tokens anew, and decodes twice. r0 would need
    9,600 bytes, so it has no slot beside r1: where that costs its KV, it lacks that from 2 s.
    """
    load = of_services(workload([15, 16], [5, 36], [0.0, 1.5], services=2), "10")
    found = served(
        load, Ordered(PriorityOrder(m0_first, rule(), displaces)), SIX, fast=fast
    ).requests
    assert found["finished_s"].tolist() == [41, 38]
    assert found["preemptions"].tolist() == [1, 0]
    assert found["preempted_s"].tolist() == [preempted_s, 0]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("displaces", "ends_s"),
    [(None, [5, 6]), (Displaced.PAUSE, [6, 3]), (Displaced.RECOMPUTE, [6, 3])],
)
def test_newcomers_take_kv_only_where_the_order_displaces(
    displaces: Displaced | None, ends_s: list[float], fast: bool
) -> None:
    """r0 (m1) holds 4,800 of 9,600 bytes when r1 (m0) comes first, whose 49 tokens take 6,400."""
    load = of_services(workload([15, 49], [5, 1], [0.0, 1.5], services=2), "10")
    found = served(
        load, Ordered(PriorityOrder(m0_first, rule(), displaces)), SIX, fast=fast
    ).requests
    assert found["finished_s"].tolist() == ends_s


def test_an_order_that_a_shared_group_does_not_offer_is_refused() -> None:
    """Before anything runs in it."""
    order = PriorityOrder(None, rule(chunked_prefill=True))
    with pytest.raises(IllegalDecision, match=r"with rule\.chunked_prefill in both@0 \(m0, m1\)"):
        served(workload([9, 9], [2, 2], services=2), Ordered(order), SIX, fast=True)


# ---- random loads ----


def longest_prompt(table: RequestTable) -> Floats:
    return -table.prompt_tokens.astype(np.float64)


Maker = Callable[[ContinuousBatching, Displaced | None], SchedulingPolicy]
HISTORY = window_of(workload([9, 90, 40, 20], [60, 5, 30, 8], services=2))


def by(key: Callable[[RequestTable], Floats | MovingKey] | None) -> Maker:
    """A policy that is a priority order by a key."""
    return lambda batch_rule, displaces: Ordered(PriorityOrder(key, batch_rule, displaces))


def starving(key: Callable[[RequestTable], Floats | MovingKey] | None) -> Maker:
    """The same where m0 is starved after 0.1 s and m1 after 0.3 s."""
    return lambda batch_rule, displaces: Ordered(
        PriorityOrder(
            key, batch_rule, displaces, starves_after_s={"m0": 0.1, "m1": 0.3}.__getitem__
        )
    )


def promoting(key: Callable[[RequestTable], Floats]) -> Maker:
    """The same where nine iterations without a request promote it for four."""
    promotion = AfterIterations(9, 4, lambda table: key(table) - 1e6)
    return lambda batch_rule, displaces: Ordered(
        PriorityOrder(key, batch_rule, displaces, promotion=promotion)
    )


def doubling_budget(starved_after: float | None) -> Maker:
    return lambda batch_rule, displaces: DoublingBudget(
        costs=TwoSizes(),
        rule=batch_rule,
        displaces=displaces.value if displaces else None,
        starved_after=starved_after,
        history=HISTORY,
    )


ORDERS: dict[str, Maker] = {
    "arrival": by(None),
    "longest prompt": by(longest_prompt),
    "service": by(m0_first),
    "attained": by(attained_seconds),
    "tokens": by(attained_tokens),
    "doubling budget": doubling_budget(None),
}


def skip_join(promote_s: float | None) -> Maker:
    return lambda batch_rule, displaces: FastServe(
        costs=TwoSizes(),
        rule=batch_rule,
        quantum_s=0.02,
        ratio=2.0,
        queues=5,
        displaces=displaces.value if displaces else None,
        promote_s=promote_s,
    )


MAKERS = ORDERS | {
    "doubling budget, starving": doubling_budget(0.5),
    "service, starving": starving(m0_first),
    "attained, starving": starving(attained_seconds),
    "skip-join": skip_join(None),
    "skip-join, promoting": skip_join(0.9),
    "longest prompt, promoting": promoting(longest_prompt),
    "round robin": lambda batch_rule, _: ServiceRoundRobin(
        rule=replace(batch_rule, prompts_first=True), quantum_s=0.05
    ),
}
RULES = st.builds(
    replace,
    st.sampled_from([rule(max_num_seqs=n, tokens=220) for n in (1, 3, 8)]),
    prompts_first=st.booleans(),
    watermark=st.sampled_from([0.0, 0.1]),
)
DISPLACES = (None, Displaced.PAUSE, Displaced.RECOMPUTE)


def in_turn(makers: dict[str, Maker]) -> list[tuple[str, Displaced | None]]:
    """Each with one of the ways to displace."""
    return [(name, DISPLACES[at % len(DISPLACES)]) for at, name in enumerate(makers)]


class Witness:
    """A policy whose group has no more KV than there is, and whose batches are of one service."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    def __init__(self, policy: SchedulingPolicy, load: Workload) -> None:
        self._policy, self._load = policy, load

    def observe(self, event: Event) -> None:
        """Look at a batch."""
        assert isinstance(event, Iterated)
        services = {self._load.service_of(request) for request in event.batch.tokens}
        assert services == {event.batch.service}

    def schedule(self, view: GroupView) -> Decision:
        """Look at the KV."""
        kv, requests = ledger_of(view), view.requests.values()
        held = [
            kv.blocks(r.kv_tokens, r.facts.service) * kv.block_bytes(r.facts.service)
            for r in requests
        ]
        for service in view.services:
            free_bytes = kv.capacity_bytes - sum(held)
            assert kv.free_blocks(service) == free_bytes // kv.block_bytes(service) >= 0
        assert problems(kv) == []
        return self._policy.schedule(view)


@pytest.mark.parametrize(("maker", "displaces"), in_turn(MAKERS))
@given(
    load=loads(most=20),
    batch_rule=RULES,
    blocks=st.sampled_from([33, 45, 200]),
    services=st.integers(1, 2),
    received_s=st.sampled_from([0.0, 0.0037]),
)
@settings(max_examples=5, deadline=None)
def test_random_loads_are_served_and_alike_with_every_iteration_asked(
    maker: str,
    displaces: Displaced | None,
    load: Load,
    batch_rule: ContinuousBatching,
    blocks: int,
    services: int,
    received_s: float,
) -> None:
    of_two = workload(*load, services=2)
    if services == 1:
        of_two = of_services(of_two, "1" * len(of_two))

    def serve_it(fast: bool) -> Recorder:
        recorder = Recorder(keep_iterations=True)
        costs = TwoSizes(blocks=blocks, received_s_per_request=received_s)
        policy = Witness(MAKERS[maker](batch_rule, displaces), of_two)
        return serve(
            of_two, policy, Together(), costs=costs, fast_forward=fast, gpus=1, recorder=recorder
        )

    found = assert_same_times(serve_it)
    np.testing.assert_array_equal(found.requests["output_tokens"], of_two.output_tokens)
    rows = found.iteration_frame()
    assert rows is not None
    assert (rows["prefill_requests"] * rows["decode_requests"] == 0).all()
    assert serve_it(True).requests.equals(found.requests)


@pytest.mark.parametrize(("maker", "displaces"), in_turn(ORDERS))
@given(load=loads(most=20), batch_rule=RULES, blocks=st.sampled_from([12, 33, 200]))
@settings(max_examples=5, deadline=None)
def test_a_group_whose_requests_are_of_one_service_is_like_one_of_that_service(
    maker: str, displaces: Displaced | None, load: Load, batch_rule: ContinuousBatching, blocks: int
) -> None:
    of_m0 = of_services(workload(*load, services=2), "0" * len(load[0]))
    policy = ORDERS[maker](batch_rule, displaces)
    costs = TwoSizes(blocks=blocks, load=0.0)
    alone = Everywhere(("m0", (0,)), ("m1", (1,)))
    assert_same_times(lambda fast: serve(of_m0, policy, Together() if fast else alone, costs=costs))
