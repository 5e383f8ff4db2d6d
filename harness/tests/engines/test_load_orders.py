"""Dispatch by load: compiled or stepped, each request goes to the group with the least load."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision, Displaced, PriorityOrder
from harness.interface.events import Arrived, Event
from harness.interface.load_order import LoadOrder
from harness.interface.policies import SchedulingPolicy
from harness.interface.tables import Floats, Ints, RequestTable
from harness.interface.views import GroupView
from harness.tests.support.applications import applications
from harness.tests.support.dispatches import (
    LOAD_ORDERS,
    ByLoad,
    assert_same_groups,
    prompt_tokens,
)
from harness.tests.support.loads import Load, loads, waits_s
from harness.tests.support.policies import RULES, Restless, SteadyFcfs, some_load
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    UnevenCosts,
    rule,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import (
    Ordered,
    OrderedByPrediction,
    allocating,
    moving,
    predicted_tokens,
    static,
)
from harness.workloads.workload import Workload

CHUNKS = rule(chunked_prefill=True, max_num_seqs=3)
POLICIES: list[SchedulingPolicy] = [
    *(Fcfs(rule=batch_rule) for batch_rule in RULES),
    OrderedByPrediction(PriorityOrder(predicted_tokens, CHUNKS)),
    *moving(CHUNKS).values(),
    *allocating(CHUNKS, 165).values(),
    *static(3).values(),
]
NAMES = ["requests", "prompts", "tokens"]


def _places(*groups: int) -> Everywhere:
    """So many groups of each service, a GPU each."""
    names = ["m"] if len(groups) == 1 else [f"m{i}" for i in range(len(groups))]
    each = [name for name, count in zip(names, groups, strict=True) for _ in range(count)]
    return Everywhere(*((name, (gpu,)) for gpu, name in enumerate(each)))


@pytest.mark.slow
@pytest.mark.parametrize("order", LOAD_ORDERS, ids=NAMES)
@given(
    load=loads(),
    blocks=st.sampled_from([12, 40]),
    policy=st.sampled_from(POLICIES),
    groups=st.sampled_from([(4, 2), (3, 1, 2), (1, 1), (5,)]),
)
@settings(max_examples=6, deadline=None)
def test_the_same_groups_compiled_and_stepped(
    order: LoadOrder, load: Load, blocks: int, policy: SchedulingPolicy, groups: tuple[int, ...]
) -> None:
    """Several services with several groups each, whose times differ; predictions come late."""
    served = workload(*load, services=len(groups))
    placement, costs = _places(*groups), UnevenCosts(blocks=blocks, load=0.1)
    assert_same_groups(
        lambda fast: serve(
            served,
            deepcopy(policy),  # some learn
            placement,
            costs=costs,
            fast_forward=fast,
            gpus=8,
            dispatch=ByLoad(order),
            predictor=Guess(),
        )
    )


class ByGroup:
    """Another order in every group."""

    requires = Fcfs.requires
    subscribes = Fcfs.subscribes

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Long prompts first in the groups on even GPUs."""
        is_odd = view.group.gpus[0] % 2
        return Decision(priority_order=PriorityOrder(_shortest if is_odd else _longest, CHUNKS))


def _shortest(table: RequestTable) -> Floats:
    return table.prompt_tokens.astype(np.float64)


def _longest(table: RequestTable) -> Floats:
    return -table.prompt_tokens.astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [ByGroup(), SteadyFcfs(rotates=True), Fcfs(rule=CHUNKS)])
@given(load=loads(), order=st.sampled_from(LOAD_ORDERS))
@settings(max_examples=5, deadline=None)
def test_the_same_where_groups_differ(
    policy: SchedulingPolicy, load: Load, order: LoadOrder
) -> None:
    """In order or in GPUs, or without any standing order."""
    placement = Everywhere(("m0", (0,)), ("m0", (1, 2)), ("m1", (3,)), ("m1", (4,)))
    assert_same_groups(
        lambda fast: serve(
            workload(*load, services=2),
            policy,
            placement,
            costs=UnevenCosts(blocks=64, load=0.1),
            fast_forward=fast,
            gpus=6,
            dispatch=ByLoad(order),
            max_num_seqs=4,
            tokens=256,
        )
    )


@pytest.mark.slow
@given(load=applications(), order=st.sampled_from(LOAD_ORDERS))
@settings(max_examples=7, deadline=None)
def test_the_same_where_calls_wait_for_calls(load: Workload, order: LoadOrder) -> None:
    assert_same_groups(
        lambda fast: serve(
            load,
            Fcfs(rule=CHUNKS),
            _places(2, 1, 2),
            costs=UnevenCosts(load=0.0),
            fast_forward=fast,
            gpus=6,
            dispatch=ByLoad(order),
        )
    )


@pytest.mark.slow
@given(
    load=loads(),
    order=st.sampled_from(LOAD_ORDERS),
    seed=st.integers(0, 999),
    waits_s=waits_s(4),
)
@settings(max_examples=5, deadline=None)
def test_the_same_where_groups_come_and_go(
    load: Load, order: LoadOrder, seed: int, waits_s: list[float]
) -> None:
    assert_same_groups(
        lambda fast: serve(
            workload(*load, services=2),
            Fcfs(rule=CHUNKS),
            Restless(seed, waits_s, 4),
            costs=UnevenCosts(load=0.37),
            fast_forward=fast,
            gpus=4,
            dispatch=ByLoad(order),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_swaps_that_are_undone_are_not_counted(seed: int) -> None:
    """The second service has less to do and runs ahead first; the end of the other cuts it."""
    rng, half = np.random.default_rng(seed), 12
    arrival_s = np.sort(rng.uniform([0.0] * half + [0.3] * half, [0.05] * half + [0.9] * half))
    output_tokens = [*rng.integers(30, 60, half).tolist(), *rng.integers(10, 50, half).tolist()]
    load = replace(
        workload(
            rng.integers(20, 60, 2 * half).tolist(), output_tokens, arrival_s.tolist(), services=2
        ),
        service=np.repeat([1, 0], half),
    )
    order = PriorityOrder(_longest, CHUNKS, Displaced.SWAP)
    swapped = assert_same_groups(
        lambda fast: serve(
            load,
            Ordered(order),
            _places(2, 2),
            costs=UnevenCosts(blocks=12, load=0.1),
            fast_forward=fast,
            gpus=4,
            dispatch=ByLoad(LOAD_ORDERS[0]),
        )
    )
    assert swapped.requests["swaps"].sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("order", [LOAD_ORDERS[0], LOAD_ORDERS[-1]], ids=["requests", "tokens"])
def test_many_requests_and_many_groups(order: LoadOrder) -> None:
    """More than room is made for at first; the last groups are needed in the worst bursts only."""
    load = some_load(5, count=100, services=2)
    dispatch = ByLoad(order)
    assert_same_groups(
        lambda fast: serve(
            load,
            Fcfs(rule=CHUNKS),
            _places(6, 6),
            costs=UnevenCosts(load=0.0),
            fast_forward=fast,
            gpus=12,
            dispatch=dispatch,
            recorder=Recorder(keep_iterations=True),
        )
    )
    assert dispatch.asked == ["m0", "m1"] * 2


def _chosen(order: LoadOrder, prompts: list[int], outputs: list[int], come_s: list[float]) -> str:
    """The groups of requests in two groups, as letters; one runs at a time in each."""
    recorder = serve(
        workload(prompts, outputs, come_s),
        Fcfs(rule=rule(max_num_seqs=1)),
        _places(2),
        costs=FlatCosts(load=0.0),
        dispatch=ByLoad(order),
        recorder=Recorder(keep_events=True),
    )
    arrived = [event for event in recorder.events if isinstance(event, Arrived)]
    return "".join("ab"[int(event.group[-1])] for event in arrived)


def test_equally_loaded_groups_come_in_order_and_those_of_one_instant_count() -> None:
    assert _chosen(LoadOrder(), [9] * 5, [40] * 5, [0.0] * 5) == "ababa"


def test_what_weighs_more_is_avoided_until_it_is_answered() -> None:
    """r0 weighs 50 until it is answered at 0.75 s: at that very instant nobody is in its group."""
    prompts, outputs, come_s = [50, 9, 9, 9, 9], [2, 40, 40, 40, 40], [0.0, 0.0, 0.1, 0.2, 0.75]
    assert _chosen(LoadOrder(weight=prompt_tokens), prompts, outputs, come_s) == "abbba"


def test_tokens_generated_so_far_count() -> None:
    """r0 has 9 tokens of prompt and, at 3.1 s, eleven of its answer; r1 has 12 of prompt."""
    load = [9, 12, 1], [40, 40, 1], [0.0, 3.0, 3.1]
    assert _chosen(LoadOrder(weight=prompt_tokens, adds_generated=True), *load) == "abb"
    assert _chosen(LoadOrder(weight=prompt_tokens), *load) == "aba"


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        (lambda t: -t.prompt_tokens, "the weight of r0 is -9, it must be a whole number from 0"),
        (lambda t: t.prompt_tokens / 2, r"the weight of r0 is 4\.5, it must be a whole number"),
        (lambda t: t.predicted_mean_tokens, "the weight of r0 is nan, it must be a whole number"),
        (lambda t: t.prompt_tokens[1:], r"weight of shape \(0,\) for 1 requests"),
    ],
)
def test_weights_that_are_none(weight: Callable[[RequestTable], Ints], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        serve(workload([9], [3]), dispatch=ByLoad(LoadOrder(weight=weight)))
