"""Several services on the same GPUs: one KV space, one queue, a batch of one service at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.benchmarks.moving_policies import Ordered, attained_seconds, attained_tokens
from harness.costs.iteration import IterationTable
from harness.engines.ask import refuse_shared_groups
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.checks import IllegalDecision
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Deployment,
    Displaced,
    PriorityOrder,
)
from harness.interface.draft import Draft
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.events import Event, Iterated
from harness.interface.filling import continuous_batch, is_decode
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable, attained_s
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.loads import Load, assert_same_times, loads
from harness.tests.support.serving import (
    Everywhere,
    LinearCosts,
    TwoSizes,
    UnevenCosts,
    rule,
    serve,
    workload,
)
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

    with pytest.raises(ValueError, match=r"m0, m1 do not fit 1 GPUs together"):
        serve(workload([5, 5], [5, 5], services=2), LeastServed(), Together(), costs=Large())


def test_deployments_ask_for_what_the_engine_supports() -> None:
    refuse_shared_groups(Deployment((SHARED,)), frozenset({Capability.SHARED_GROUP}))
    empty = Deployment((Group(GroupId("none@0"), frozenset(), (GpuId(0),)),))
    for wanted, count, name in ((Deployment((SHARED,)), 2, "both@0"), (empty, 0, "none@0")):
        with pytest.raises(ValueError, match=f"a deployment has {count} services in {name}"):
            refuse_shared_groups(wanted, frozenset())


# ---- priority orders ----


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


def served(load: Workload, order: PriorityOrder, costs: LinearCosts, *, fast: bool) -> Recorder:
    """Both services on GPU 0, and what each iteration computed."""
    recorder = Recorder(keep_iterations=True)
    return serve(
        load, Ordered(order), Together(), costs=costs, fast_forward=fast, gpus=1, recorder=recorder
    )


def mean_length_squared(table: RequestTable) -> Floats:
    """Units of m0 and m1 are 1 and 4: what is left of a fresh request, times the mean."""
    return np.array([1.0, 16.0])[table.service]


def attained(table: RequestTable) -> MovingKey:
    one = np.ones((len(table.id), 1))
    return MovingKey(value=0.0 * one, slope=one, until=np.inf * one, by=Progress.GPU_S)


ONE = rule(max_num_seqs=1)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("prompts_first", [True, False])
@pytest.mark.parametrize(
    ("key", "displaces", "ends_s", "normalized"),
    [
        (None, None, [1, 2, 6, 7, 8], 15.0),
        (attained, Displaced.PAUSE, [1, 2, 8, 4, 5], 9.5),
        (mean_length_squared, None, [1, 2, 8, 3, 4], 7.5),
        (mean_length_squared, Displaced.PAUSE, [1, 2, 8, 3, 4], 7.5),
    ],
)
def test_five_requests_one_at_a_time(
    key: Callable[[RequestTable], Floats | MovingKey] | None,
    displaces: Displaced | None,
    ends_s: list[float],
    normalized: float,
    prompts_first: bool,
    fast: bool,
) -> None:
    """A and B (m0, 1 s) come at 0; C (m1, 4 s), D and E (m0, 1 s) at 2.

    First come first served, C keeps D and E waiting; with turns of 1 s it is paused for them; with
    the shorter service first, it begins after them (fig. 2 of the SeaLLM paper).
    """
    load = of_services(workload([9] * 5, [1, 1, 4, 1, 1], [0, 0, 2, 2, 2], services=2), "00100")
    order = PriorityOrder(key, replace(ONE, prompts_first=prompts_first), displaces)
    ended = served(load, order, UnitCosts(), fast=fast).requests["finished_s"].to_numpy()
    assert ended.tolist() == ends_s
    assert ((ended - load.arrival_s) / load.output_tokens).sum() == normalized


MEAN_S, BUDGET_S = np.array([0.4, 2.0]), np.array([0.6, 3.0])


def doubling_budget(table: RequestTable) -> MovingKey:
    """The budget left times the mean seconds of the service; a budget that is spent doubles."""
    mean_s, budget_s = MEAN_S[table.service, None], BUDGET_S[table.service, None]
    until = attained_s(budget_s * (2.0 ** np.arange(1, 12) - 1))
    return MovingKey(mean_s * until, -mean_s * np.ones_like(until), until, Progress.GPU_S)


def test_budgets_that_double_by_hand() -> None:
    """0.4 +- 0.2 s: 0.6 s x 0.4 s; when these and 1.2, 2.4, 4.8 and 9.6 s more are over, twice."""
    spent_s = np.array([0.0, 0.1, 0.6, 1.8, 4.2, 9.0, 18.6, 0.0])
    nothing = np.zeros(8, int)
    table = RequestTable(
        id=np.arange(8),
        arrival_s=np.zeros(8),
        prompt_tokens=nothing,
        generated_tokens=nothing,
        kv_tokens=nothing,
        gpu_s=attained_s(spent_s),
        max_output_tokens=nothing,
        deadline_s=np.zeros(8),
        predicted_mean_tokens=np.zeros(8),
        service=np.array([0] * 7 + [1]),
        services=(ServiceId("m0"), ServiceId("m1")),
    )
    key = [0.24, 0.20, 0.48, 0.96, 1.92, 3.84, 7.68, 6.0]
    assert doubling_budget(table).at(table).tolist() == pytest.approx(key, abs=1e-5)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("prompts_first", [True, False])
def test_a_service_whose_budget_has_doubled_often_yields(prompts_first: bool, fast: bool) -> None:
    """Iterations of 0.6 s. r0 (m0) has a budget of 7.68 s^2 after 31 of 40, 18.6 s; r1 has 6.0.

    r1 (m1) spends its 3 s, which five iterations take, and r0 runs its last nine, 5.4 s.
    """
    load = workload([9, 9], [40, 5], services=2)
    whole = replace(rule(), prompts_first=prompts_first)
    order = PriorityOrder(doubling_budget, whole, Displaced.PAUSE)
    found = served(load, order, UnitCosts(each_s=0.6), fast=fast).requests
    assert found["started_s"].tolist() == pytest.approx([0.0, 18.6])
    assert found["finished_s"].tolist() == pytest.approx([27.0, 21.6])
    assert found["gpu_s"].tolist() == pytest.approx([24.0, 3.0])


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
    9,600 bytes, so it has no seat beside r1: where that costs its KV, it lacks that from 2 s.
    """
    load = of_services(workload([15, 16], [5, 36], [0.0, 1.5], services=2), "10")
    found = served(load, PriorityOrder(m0_first, rule(), displaces), SIX, fast=fast).requests
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
    found = served(load, PriorityOrder(m0_first, rule(), displaces), SIX, fast=fast).requests
    assert found["finished_s"].tolist() == ends_s


def test_an_order_that_a_shared_group_does_not_offer_is_refused() -> None:
    """Before anything runs in it."""
    order = PriorityOrder(None, rule(chunked_prefill=True))
    with pytest.raises(IllegalDecision, match=r"with rule\.chunked_prefill in both@0 \(m0, m1\)"):
        served(workload([9, 9], [2, 2], services=2), order, SIX, fast=True)


# ---- random loads ----


def longest_prompt(table: RequestTable) -> Floats:
    return -table.prompt_tokens.astype(np.float64)


KEYS: dict[str, Callable[[RequestTable], Floats | MovingKey] | None] = {
    "arrival": None,
    "longest prompt": longest_prompt,
    "service": m0_first,
    "attained": attained_seconds,
    "tokens": attained_tokens,
    "doubling budget": doubling_budget,
}
RULES = st.builds(
    replace,
    st.sampled_from([rule(max_num_seqs=n, tokens=220) for n in (1, 3, 8)]),
    prompts_first=st.booleans(),
    watermark=st.sampled_from([0.0, 0.1]),
)
DISPLACES = (None, Displaced.PAUSE, Displaced.RECOMPUTE)


class Witness(Ordered):
    """An order whose group has no more KV than there is, and whose batches are of one service."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    def __init__(self, order: PriorityOrder, load: Workload) -> None:
        super().__init__(order)
        self._load = load

    def observe(self, event: Event) -> None:
        """Look at a batch."""
        assert isinstance(event, Iterated)
        services = {self._load.service_of(request) for request in event.batch.tokens}
        assert services == {event.batch.service}

    def schedule(self, view: GroupView) -> Decision:
        """Look at the KV."""
        kv, requests = view.kv, view.requests.values()
        held = [kv.blocks(r.kv_tokens) * kv.block_bytes(r.facts.service) for r in requests]
        for service in view.services:
            free_bytes = kv.capacity_bytes - sum(held)
            assert kv.free_blocks(service) == free_bytes // kv.block_bytes(service) >= 0
        assert kv.problems() == []
        return super().schedule(view)


@pytest.mark.parametrize("displaces", DISPLACES)
@pytest.mark.parametrize("key", KEYS)
@given(
    load=loads(most=20),
    batch_rule=RULES,
    blocks=st.sampled_from([33, 45, 200]),
    services=st.integers(1, 2),
)
@settings(max_examples=10, deadline=None)
def test_random_loads_are_served_and_alike_with_every_iteration_asked(
    key: str,
    displaces: Displaced | None,
    load: Load,
    batch_rule: ContinuousBatching,
    blocks: int,
    services: int,
) -> None:
    of_two = workload(*load, services=2)
    if services == 1:
        of_two = of_services(of_two, "1" * len(of_two))
    order = PriorityOrder(KEYS[key], batch_rule, displaces)

    def serve_it(fast: bool) -> Recorder:
        recorder, costs = Recorder(keep_iterations=True), TwoSizes(blocks=blocks)
        policy, placement = Witness(order, of_two), Together()
        return serve(
            of_two, policy, placement, costs=costs, fast_forward=fast, gpus=1, recorder=recorder
        )

    found = assert_same_times(serve_it)
    np.testing.assert_array_equal(found.requests["output_tokens"], of_two.output_tokens)
    rows = found.iteration_frame()
    assert rows is not None
    assert (rows["prefill_requests"] * rows["decode_requests"] == 0).all()
    assert serve_it(True).requests.equals(found.requests)


@pytest.mark.parametrize("displaces", DISPLACES)
@pytest.mark.parametrize("key", KEYS)
@given(load=loads(most=20), batch_rule=RULES, blocks=st.sampled_from([12, 33, 200]))
@settings(max_examples=10, deadline=None)
def test_a_group_whose_requests_are_of_one_service_is_like_one_of_that_service(
    key: str, displaces: Displaced | None, load: Load, batch_rule: ContinuousBatching, blocks: int
) -> None:
    of_m0 = of_services(workload(*load, services=2), "0" * len(load[0]))
    order = PriorityOrder(KEYS[key], batch_rule, displaces)
    costs = TwoSizes(blocks=blocks, load=0.0)
    alone = Everywhere(("m0", (0,)), ("m1", (1,)))
    assert_same_times(
        lambda fast: serve(of_m0, Ordered(order), Together() if fast else alone, costs=costs)
    )
