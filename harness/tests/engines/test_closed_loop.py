"""Clients that send their next request when their last one has been answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision, PriorityOrder, StaticBatching
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Arrived, Event
from harness.interface.policies import Capability, DispatchPolicy, SchedulingPolicy, System
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.applications import linked
from harness.tests.support.dispatches import (
    LOAD_ORDERS,
    ByLoad,
    LooksAtLoad,
    NamedTurns,
    assert_same_groups,
)
from harness.tests.support.loads import Load, closed, loads
from harness.tests.support.policies import RULES, Restless, Srpt, SteadyFcfs
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    cluster,
    rule,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import Ordered, OrderedByPrediction, predicted_tokens
from harness.workloads.arrivals import ClosedLoop
from harness.workloads.together import together
from harness.workloads.workload import Workload

CHUNKS = rule(chunked_prefill=True)
BY_PROMPT = PriorityOrder(lambda table: -table.prompt_tokens.astype(np.float64), CHUNKS)
STATIC = StaticBatching(max_num_seqs=3, max_wait_s=0.05, refills=True, pads_prompts=False)
POLICIES: list[Callable[[], SchedulingPolicy]] = [
    *(lambda batch_rule=batch_rule: Fcfs(rule=batch_rule) for batch_rule in (*RULES, STATIC)),
    lambda: Ordered(BY_PROMPT),
    lambda: OrderedByPrediction(PriorityOrder(predicted_tokens, CHUNKS)),
    lambda: SteadyFcfs(rotates=False),
    Srpt,
]
DISPATCHES: list[Callable[[], DispatchPolicy]] = [
    RoundRobin,
    NamedTurns,
    *(lambda order=order: ByLoad(order) for order in LOAD_ORDERS),
    lambda: LooksAtLoad(LOAD_ORDERS[0]),
]
TWO_AND_ONE = Everywhere(("m0", (0,)), ("m0", (1,)), ("m1", (2,)))


def some(count: int, seed: int = 5) -> Workload:
    """Requests of one service with prompts of up to 90 and answers of up to 60 tokens."""
    rng = np.random.default_rng(seed)
    return workload(rng.integers(1, 90, count).tolist(), rng.integers(1, 60, count).tolist())


def in_system(requests: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the spans between two changes, in seconds, and the requests in each."""
    changes_s = np.unique(requests[["arrival_s", "finished_s"]])
    middle_s = (changes_s[1:] + changes_s[:-1]) / 2
    sent = np.searchsorted(np.sort(requests["arrival_s"]), middle_s)
    answered = np.searchsorted(np.sort(requests["finished_s"]), middle_s)
    return np.diff(changes_s), sent - answered


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("think_s", [0.0, 0.3])
def test_littles_law(fast: bool, think_s: float) -> None:
    """Requests in the system are throughput times mean JCT, and without thinking the clients."""
    requests = serve(closed(some(150), 8, think_s), fast_forward=fast).requests
    seconds, there = in_system(requests)
    jct_s = requests["finished_s"] - requests["arrival_s"]
    per_s = len(requests) / seconds.sum()
    assert np.average(there, weights=seconds) == pytest.approx(per_s * jct_s.mean())
    until_last = np.cumsum(seconds) <= requests["arrival_s"].max()
    assert until_last.sum() > 50
    if think_s:
        # With thinking the same law has the clients: N = X (R + Z), before any has no request left.
        answered = requests["finished_s"] <= requests["arrival_s"].max()
        held_s = (jct_s + think_s)[answered].sum()
        assert held_s / requests["arrival_s"].max() == pytest.approx(8, rel=0.1)
    else:
        assert (there[until_last] == 8).all()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("think_s", [0.0, 0.25])
def test_one_client_has_one_request_at_a_time(fast: bool, think_s: float) -> None:
    requests = serve(closed(some(20), 1, think_s), fast_forward=fast).requests
    next_s, answered_s = requests["arrival_s"][1:], requests["finished_s"][:-1]
    assert next_s.tolist() == (answered_s + think_s).tolist()
    jct_s = (requests["finished_s"] - requests["arrival_s"]).sum()
    assert jct_s + 19 * think_s == pytest.approx(requests["finished_s"].max())


@pytest.mark.parametrize("fast", [True, False])
def test_requests_are_sent_in_order_whoever_is_answered(fast: bool) -> None:
    """The n-th answer sends the n-th request that is left."""
    requests = serve(closed(some(60), 7), fast_forward=fast).requests
    assert requests["arrival_s"].is_monotonic_increasing
    answers_s = np.sort(requests["finished_s"])
    assert requests["arrival_s"].tolist() == [0.0] * 7 + answers_s[:53].tolist()


def test_clients_begin_over_the_ramp() -> None:
    """A load of 1 s, and four clients in 2 s."""
    requests = serve(closed(some(12), 4, ramp_up_s=2.0)).requests
    assert requests["arrival_s"][:4].tolist() == [0.0, 0.5, 1.0, 1.5]
    assert requests["arrival_s"].min() == 0.0
    assert requests["finished_s"].notna().all()


@pytest.mark.parametrize("fast", [True, False])
def test_a_client_goes_to_any_group(fast: bool) -> None:
    """Taking turns sends request 3 beside request 1, though the other group answered request 0.

    Each waits in its decoding for the half second of the other's prompt.
    """
    load = closed(workload([9] * 4, [2, 40, 2, 2]), 2)
    both = Everywhere(("m", (0,)), ("m", (1,)))
    requests = serve(load, placement=both, costs=FlatCosts(), fast_forward=fast).requests
    assert requests["finished_s"][0] == requests["arrival_s"][2] == 1.75
    assert requests["finished_s"][2] == requests["arrival_s"][3] == 2.5
    assert requests["longest_gap_s"].tolist()[1] == pytest.approx(0.75)


@dataclass(frozen=True)
class Taken:
    """How requests come: from so many clients or at their own times, taken in within so long."""

    clients: int | None
    think_s: float
    ramp_up_s: float
    intake_s: float
    received_s: float

    def of(self, load: Load) -> Workload:
        """Requests of two services."""
        made = workload(*load, services=2)
        if self.clients is None:
            return made
        return closed(made, self.clients, self.think_s, self.ramp_up_s)


TAKEN = st.builds(
    Taken,
    clients=st.sampled_from([None, None, 1, 3, 20]),
    think_s=st.sampled_from([0.0, 0.0, 0.0431]),
    ramp_up_s=st.sampled_from([0.0, 2.3]),
    intake_s=st.sampled_from([0.0, 0.0107]),
    received_s=st.sampled_from([0.0, 0.0037, 0.0507]),
)


@pytest.mark.parametrize("policy", POLICIES)
@given(
    load=loads(),
    taken=TAKEN,
    blocks=st.sampled_from([14, 40, 200]),
    predicts=st.booleans(),
    dispatch=st.sampled_from(DISPATCHES),
)
@settings(max_examples=10, deadline=None)
def test_compiled_and_stepped_take_in_and_send_the_same(
    policy: Callable[[], SchedulingPolicy],
    load: Load,
    taken: Taken,
    blocks: int,
    predicts: bool,
    dispatch: Callable[[], DispatchPolicy],
) -> None:
    """Two services, one with two groups; requests may overtake others on their way in."""
    costs = UnevenCosts(
        blocks=blocks,
        load=0.1,
        intake_s_per_request=taken.intake_s,
        intake_s_per_prompt_token=taken.intake_s / 9,
        received_s_per_request=taken.received_s,
    )
    predicts |= Capability.PREDICTIONS in policy().requires
    assert_same_groups(
        lambda fast: serve(
            taken.of(load),
            policy(),
            TWO_AND_ONE,
            costs=costs,
            fast_forward=fast,
            gpus=3,
            dispatch=dispatch(),
            predictor=Guess() if predicts else None,
        )
    )


@given(
    load=loads(),
    clients=st.sampled_from([2, 9]),
    think_s=st.sampled_from([0.0, 0.0431]),
    seed=st.integers(0, 999),
    waits_s=st.lists(st.sampled_from([0.0113, 0.2719, 1.6449]), max_size=4),
)
@settings(max_examples=12, deadline=None)
def test_groups_come_and_go(
    load: Load, clients: int, think_s: float, seed: int, waits_s: list[float]
) -> None:
    assert_same_groups(
        lambda fast: serve(
            closed(workload(*load, services=2), clients, think_s),
            placement=Restless(seed, waits_s, 3),
            costs=UnevenCosts(blocks=14, load=0.1, intake_s_per_request=0.0031),
            fast_forward=fast,
            gpus=3,
        )
    )


class Looking(Fcfs):
    """Keeps what it is told of requests, and that a group never has more than the clients sent."""

    subscribes = frozenset({Arrived})

    def __init__(self) -> None:
        super().__init__(rule=CHUNKS)
        self.came: list[Arrived] = []
        self.most = 0

    def observe(self, event: Event) -> None:
        """Keep it."""
        assert isinstance(event, Arrived)
        self.came.append(event)

    def schedule(self, view: GroupView) -> Decision:
        """Count the requests there."""
        assert (view.table.arrival_s <= view.now_s).all()
        self.most = max(self.most, len(view.requests))
        return super().schedule(view)


class Backlog:
    """Looks at the whole cluster when it is asked."""

    reads_load: ClassVar[bool] = True

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId]:
        """The only group; none but the clients' requests is seen."""
        assert sum(view.backlog.values()) <= 5
        assert len(view.to_come(service).id) == len(view.edges) == 0
        assert (view.unfinished(service).arrival_s <= view.now_s).all()
        return [view.deployment.groups[0].id] * len(requests)


@pytest.mark.parametrize("intake_s", [0.0, 0.02])
def test_policies_see_requests_when_they_have_been_sent(intake_s: float) -> None:
    policy = Looking()
    costs = LinearCosts(intake_s_per_request=intake_s)
    requests = serve(closed(some(40), 5), policy, dispatch=Backlog(), costs=costs).requests
    assert policy.most <= 5
    assert [int(event.request.id) for event in policy.came] == list(range(40))
    assert [event.request.arrival_s for event in policy.came] == requests["arrival_s"].tolist()
    came_s = [event.now_s for event in policy.came]
    assert came_s == pytest.approx((requests["arrival_s"] + intake_s).tolist(), abs=1e-12)


def test_what_was_not_sent_by_the_horizon_has_no_time() -> None:
    recorder = Recorder()
    engine = Simulator(
        cluster=cluster(1),
        costs=LinearCosts(),
        max_num_seqs=8,
        max_num_batched_tokens=256,
        horizon_s=2.0,
    )
    system = System("test", Fcfs(rule=CHUNKS), RoundRobin(), Everywhere(("m", (0,))))
    engine.run(closed(some(200), 4), system, recorder)
    unsent = np.isinf(recorder.requests["arrival_s"])
    assert 0 < unsent.sum() < 200
    assert recorder.requests["finished_s"][~unsent].isna().sum() == 4
    assert recorder.requests["finished_s"][unsent].isna().all()


def test_more_clients_than_requests_send_all_at_once() -> None:
    load = closed(some(5), 64, think_s=1.0)
    assert serve(load).requests["arrival_s"].tolist() == [0.0] * 5


def test_what_cannot_be_is_refused() -> None:
    load = some(6)
    with pytest.raises(ValueError, match=r"arrivals\.clients is 0, it must be at least 1"):
        ClosedLoop(clients=0, ramp_up_s=0.0, think_s=0.0)
    with pytest.raises(ValueError, match=r"arrivals\.think_s is -1\.0, it must be from 0 to"):
        ClosedLoop(clients=1, ramp_up_s=0.0, think_s=-1.0)
    with pytest.raises(ValueError, match="wait for the answers of certain others"):
        closed(linked(load, [(0, 1)]), 2)
    with pytest.raises(ValueError, match="a deadline is a time, and in a closed loop no request"):
        closed(replace(load, deadline_s=np.full(6, 9.0)), 2)
    with pytest.raises(ValueError, match="has one list of requests: it cannot be one of several"):
        together([closed(load, 2), load])
    with pytest.raises(ValueError, match="request 0 arrives at inf s"):
        replace(load, arrival_s=np.full(6, np.inf), think_s=0.0)
