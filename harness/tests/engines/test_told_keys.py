"""Keys and reservations that change on events: asked at the same times in every engine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.round_robin import RoundRobin
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.events import Arrived, Event, Finished, Iterated, Moved, Overran, Predicted
from harness.interface.moving import MovingKey
from harness.interface.policies import System
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView
from harness.policy_checks import assert_same
from harness.tests.support.applications import applications, assert_served_as_stepped
from harness.tests.support.batches import Watching
from harness.tests.support.learning import Learning, learning, pieces, pieces_of_seconds, scattered
from harness.tests.support.loads import Load, assert_same_times, loads, waits_s
from harness.tests.support.policies import RULES, Restless
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    SERVICE,
    Everywhere,
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    cluster,
    rule,
    serve,
    workload,
)
from harness.workloads.workload import Workload

ONE_SLOT = rule(chunked_prefill=True, max_num_seqs=1, tokens=256)
STATIC = StaticBatching(max_num_seqs=3, max_wait_s=0.05, refills=True, pads_prompts=True)


# ---- by hand ----


def shortest_until_one_ends(table: RequestTable, learnt: int) -> Floats:
    return table.prompt_tokens.astype(np.float64) * (1 if learnt == 0 else -1)


def latest_first(table: RequestTable, learnt: int) -> Floats:
    return np.full(len(table.id), -float(learnt))


def generated(table: RequestTable, learnt: int) -> Floats:
    return table.generated_tokens.astype(np.float64)


def _dry(**about: Any) -> Engine:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    from harness.engines.vllm.dry import VllmDry

    return VllmDry(**about)


ENGINES: dict[str, Callable[..., Engine]] = {
    "compiled": Simulator,
    "stepped": lambda **about: Simulator(**about, fast_forward=False),
    "vLLM": _dry,
}
ENGINE = [
    pytest.param(name, marks=[pytest.mark.vllm] if name == "vLLM" else []) for name in ENGINES
]


def finished_s(
    engine: str,
    policy: Learning,
    load: Load,
    groups: tuple[str, ...] = (SERVICE,),
    *,
    late_s: float = 0.004,
) -> list[float]:
    """Half a second for any prompt, a quarter for any decode; `groups` has the service of each."""
    recorder, placement = Recorder(), Everywhere(*((s, (i,)) for i, s in enumerate(groups)))
    system = System("test", policy, RoundRobin(), placement, predictor=Guess(late_s))
    about: dict[str, Any] = {"max_num_seqs": 8, "max_num_batched_tokens": 512}
    ENGINES[engine](cluster=cluster(len(groups)), costs=FlatCosts(load=0.0), **about).run(
        workload(*load, services=len(set(groups))), system, recorder
    )
    seconds: list[float] = recorder.requests["finished_s"].tolist()
    return seconds


@pytest.mark.parametrize("engine", ENGINE)
@pytest.mark.parametrize(
    ("renews", "seconds"),
    [(False, [0.75, 1.25, 2.25, 1.75]), (True, [0.75, 2.25, 1.25, 1.75])],
)
def test_keys_change_after_an_answer_only_where_the_order_renews_by_hand(
    engine: str, renews: bool, seconds: list[float]
) -> None:
    """The shortest of r1 (10) and r2 (20) would be next, and the longest once r0 has ended.

    r3 (15) comes after that, so its key is -15 and it is before those of 20 and of 10, but after
    the one of -20.
    """
    policy = learning(
        frozenset({Finished}), key=shortest_until_one_ends, rule=ONE_SLOT, renews=renews
    )
    load = ([30, 10, 20, 15], [2, 1, 1, 1], [0.0, 0.1, 0.1, 0.8])
    assert finished_s(engine, policy, load) == pytest.approx(seconds)


@pytest.mark.parametrize("engine", ENGINE)
@pytest.mark.parametrize(("renews", "seconds"), [(False, [0.5, 1.5, 1.0]), (True, [0.5, 1.0, 1.5])])
def test_keys_change_after_an_arrival_only_where_the_order_renews_by_hand(
    engine: str, renews: bool, seconds: list[float]
) -> None:
    """Of those that wait the last comes first, or with equal keys the first."""
    policy = learning(frozenset({Arrived}), key=latest_first, rule=ONE_SLOT, renews=renews)
    load = ([10, 10, 10], [1, 1, 1], [0.0, 0.1, 0.2])
    assert finished_s(engine, policy, load) == pytest.approx(seconds)


@pytest.mark.parametrize("engine", ENGINE)
@pytest.mark.parametrize(
    ("renew_s", "seconds"), [(None, [2.25, 2.75]), (0.9, [2.75, 1.5]), (5.0, [2.25, 2.75])]
)
def test_keys_change_with_time_by_hand(
    engine: str, renew_s: float | None, seconds: list[float]
) -> None:
    """At 0.9 s r0 has 2 tokens of 8 and r1 none: r1 takes the slot at 1.0 s for half a second."""
    policy = learning(
        frozenset({Overran}),
        key=generated,
        rule=ONE_SLOT,
        displaces=Displaced.PAUSE,
        renews=True,
        renew_s=renew_s,
    )
    load = ([10, 10], [8, 1], [0.0, 0.1])
    assert finished_s(engine, policy, load) == pytest.approx(seconds)


@pytest.mark.parametrize("engine", ENGINE)
def test_a_key_is_asked_when_a_request_comes_and_is_predicted_by_hand(engine: str) -> None:
    """Also while a batch is computed; the prediction of r0 comes with it."""
    policy = learning(frozenset({Finished}), key=latest_first, rule=ONE_SLOT)
    finished_s(engine, policy, ([10, 10, 10], [4, 1, 1], [0.0, 0.1, 0.2]))
    assert policy.asked == [[0], [1], [1], [2], [2]]


def longest_after_30(table: RequestTable, learnt: int) -> Floats:
    return table.prompt_tokens.astype(np.float64) * (1 if learnt < 30 else -1)


@pytest.mark.parametrize("engine", ENGINE)
def test_after_an_overrun_keys_of_an_empty_group_are_asked_once_by_hand(engine: str) -> None:
    """Of requests in turn in two groups, r1 overruns at 1.0 s and ends at 2.25 s.

    The other group has been empty since 0.5 s. Its keys are asked when r2, r4 and r6 come at 1.5 s:
    8 and 13 have been learnt then, and the shortest is first. They stand when 36 have been.
    """
    kinds: frozenset[type[Event]] = frozenset({Overran, Finished})
    policy = learning(kinds, key=longest_after_30, rule=ONE_SLOT, reserve_tokens=12)
    load = ([10, 10, 5, 10, 10, 10, 20], [1, 8, 4, 1, 1, 1, 1], [0.0, 0.0] + 5 * [1.5])
    seconds = [0.5, 2.25, 2.75, 2.75, 3.25, 3.25, 3.75]
    assert finished_s(engine, policy, load, (SERVICE, SERVICE), late_s=0) == pytest.approx(seconds)


@pytest.mark.parametrize("engine", ENGINE)
def test_keys_change_with_time_after_a_group_was_empty_by_hand(engine: str) -> None:
    """They are due when r3 comes at 3.0 s, and again at 3.9 s: r4 is first from 4.0 s on."""
    about: dict[str, Any] = {"displaces": Displaced.PAUSE, "renews": True, "renew_s": 0.9}
    policy = learning(frozenset({Overran}), key=generated, rule=ONE_SLOT, **about)
    load = ([10] * 5, [1, 1, 1, 8, 1], [0.0, 0.6, 1.2, 3.0, 3.1])
    seconds = [0.5, 1.1, 1.7, 5.75, 4.5]
    assert finished_s(engine, policy, load) == pytest.approx(seconds)


class SteppedInPart(Learning):
    """The simulator does not compile its groups of m1, which ask to be woken."""

    subscribes = frozenset({Overran})

    def schedule(self, view: GroupView) -> Decision:
        order = super().schedule(view)
        return replace(order, wake_s=view.now_s + 99.0) if "m1" in view.services else order


@pytest.mark.parametrize("engine", ENGINE)
def test_an_overrun_in_a_stepped_group_changes_the_keys_of_requests_to_come_by_hand(
    engine: str,
) -> None:
    """It is that of r1 of m1, at 1.0 s. Of m0, r4 and r6 come later and wait for r2."""
    policy = SteppedInPart(key=shortest_until_one_ends, rule=ONE_SLOT, reserve_tokens=12)
    load = ([10, 10, 20, 20, 20, 20, 10], [1, 4, 9, 1, 1, 1, 1], [0, 0, 0.7, 0.7, 1.6, 1.6, 1.6])
    seconds = [0.5, 1.25, 3.2, 1.75, 3.7, 2.25, 4.2]
    assert finished_s(engine, policy, load, ("m0", "m1"), late_s=0.0) == pytest.approx(seconds)


@pytest.mark.parametrize("engine", ENGINE)
def test_keys_change_at_the_end_of_an_iteration_by_hand(engine: str) -> None:
    """When r1 ends at 1.0 s in one group, r0 in the other has just produced its third token."""
    about: dict[str, Any] = {"displaces": Displaced.PAUSE, "renews": True}
    policy = learning(frozenset({Finished}), key=shortest_until_one_ends, rule=ONE_SLOT, **about)
    load = ([10, 10, 20], [8, 3, 1], [0.0, 0.0, 0.0])
    assert finished_s(engine, policy, load, (SERVICE, SERVICE)) == pytest.approx([2.75, 1.0, 1.5])


@pytest.mark.parametrize(
    ("renews", "renew_s", "sentence"),
    [
        (True, 0.0, "renew_s is 0.0, it must be above 0 and finite"),
        (True, -1.0, "renew_s is -1.0, it must be above 0 and finite"),
        (True, float("inf"), "renew_s is inf, it must be above 0 and finite"),
        (True, float("nan"), "renew_s is nan, it must be above 0 and finite"),
        (False, 2.0, "renew_s is 2.0 and renews is False, it must be True"),
    ],
)
def test_times_that_cannot_be_are_refused(renews: bool, renew_s: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PriorityOrder(None, ONE_SLOT, renews=renews, renew_s=renew_s)


def test_keys_that_become_pieces_are_refused() -> None:
    policy = learning(
        frozenset({Finished}),
        key=lambda table, learnt: pieces(table, learnt) if learnt else latest_first(table, learnt),
        rule=ONE_SLOT,
    )
    with pytest.raises(ValueError, match="gives a key of 2 pieces by tokens generated where it"):
        finished_s("stepped", policy, ([10, 10, 10], [2, 9, 1], [0.0, 0.0, 0.8]))


# ---- any order ----


def pieces_that_end(table: RequestTable, learnt: int) -> MovingKey:
    """From the last multiple of eight tokens to the next one."""
    done, place = table.generated_tokens // 8 * 8.0, scattered(table, learnt)
    return MovingKey(
        value=np.stack([place, 50.0 - place], axis=1),
        slope=np.tile([0.0, 1.0], (len(place), 1)),
        until=done[:, None] + np.array([2.0 + learnt % 3, 8.0]),
    )


def some_aside(table: RequestTable, learnt: int) -> Floats:
    third = (table.id + learnt) % 3
    return np.where(third == 0, np.nan, table.prompt_tokens + third * 11.0 + learnt % 7)


KEYS = {
    "numbers": scattered,
    "pieces": pieces,
    "pieces that end": pieces_that_end,
    "pieces of seconds": pieces_of_seconds,
}
KINDS = st.frozensets(st.sampled_from([Arrived, Moved, Predicted, Finished, Overran]), min_size=1)
RENEWALS = st.sampled_from(
    [{}, {"renews": True}, {"renews": True, "renew_s": 0.0713}, {"renews": True, "renew_s": 0.9}]
)


@pytest.mark.parametrize("gives_way", [None, *Displaced, PreemptionMode.SWAP])
@given(
    key=st.sampled_from(sorted(KEYS)),
    load=loads(most=20),
    kinds=KINDS,
    renewal=RENEWALS,
    batch_rule=st.sampled_from(RULES),
    blocks=st.sampled_from([12, 17, 30, 200]),
    aside=st.sampled_from([None, 165, some_aside]),
    late_s=st.sampled_from([0.0, 0.0131, 0.1317]),
    services=st.sampled_from([1, 2]),
)
@settings(max_examples=10, deadline=None)
def test_same_times_whatever_is_learnt(
    gives_way: Displaced | PreemptionMode | None,
    key: str,
    load: Load,
    kinds: frozenset[type[Event]],
    renewal: dict[str, Any],
    batch_rule: ContinuousBatching,
    blocks: int,
    aside: Any,
    late_s: float,
    services: int,
) -> None:
    """Two groups: what the one's policy learns of the other changes its keys."""
    how = "gives_way" if isinstance(gives_way, PreemptionMode) else "displaces"
    order = {"key": KEYS[key], "rule": batch_rule, "reserve_tokens": aside, how: gives_way}
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=services),
            learning(kinds, **order, **renewal),
            Everywhere(("m", (0,)), ("m", (1,))) if services == 1 else None,
            costs=UnevenCosts(blocks=blocks, load=0.0),
            fast_forward=fast,
            predictor=Guess(late_s),
        )
    )


@pytest.mark.parametrize("key", ["numbers", "pieces"])
@given(
    load=loads(most=20),
    kinds=KINDS,
    renewal=RENEWALS,
    refills=st.booleans(),
    late_s=st.sampled_from([0.0, 0.0131, 0.1317]),
)
@settings(max_examples=6, deadline=None)
def test_same_times_in_batches_of_whole_requests(
    key: str,
    load: Load,
    kinds: frozenset[type[Event]],
    renewal: dict[str, Any],
    refills: bool,
    late_s: float,
) -> None:
    batches = StaticBatching(max_num_seqs=3, max_wait_s=0.05, refills=refills, pads_prompts=True)
    assert_same_times(
        lambda fast: serve(
            workload(*load),
            learning(kinds, key=KEYS[key], rule=batches, **renewal),
            Everywhere(("m", (0,)), ("m", (1,))),
            costs=LinearCosts(blocks=30, load=0.0),
            fast_forward=fast,
            predictor=Guess(late_s),
        )
    )


@pytest.mark.parametrize("displaces", [None, *Displaced])
@given(
    load=loads(most=16),
    kinds=KINDS,
    renewal=RENEWALS,
    seed=st.integers(0, 999),
    waits_s=waits_s(4),
)
@settings(max_examples=5, deadline=None)
def test_same_times_when_groups_come_and_go(
    displaces: Displaced | None,
    load: Load,
    kinds: frozenset[type[Event]],
    renewal: dict[str, Any],
    seed: int,
    waits_s: list[float],
) -> None:
    """A request that moves is asked about again."""
    order = {"key": scattered, "rule": RULES[3], "displaces": displaces}
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=2),
            learning(kinds, **order, **renewal),
            Restless(seed, waits_s, 3),
            costs=UnevenCosts(blocks=17, load=0.37),
            fast_forward=fast,
            gpus=3,
            predictor=Guess(0.0),
        )
    )


@pytest.mark.parametrize("key", KEYS)
@given(
    load=applications(),
    kinds=KINDS,
    renewal=RENEWALS,
    displaces=st.sampled_from([None, *Displaced]),
    after_s=st.sampled_from([0.0, 0.003, 0.4]),
)
@settings(max_examples=6, deadline=None)
def test_same_times_of_applications(
    key: str,
    load: Workload,
    kinds: frozenset[type[Event]],
    renewal: dict[str, Any],
    displaces: Displaced | None,
    after_s: float,
) -> None:
    """Calls of three services come when the answers are there that they wait for."""
    order = {"key": KEYS[key], "rule": RULES[3], "displaces": displaces}
    assert_served_as_stepped(
        load,
        lambda fast: serve(
            load,
            learning(kinds, **order, **renewal),
            costs=UnevenCosts(blocks=30, load=0.0),
            gpus=3,
            hand_over_s=after_s,
            fast_forward=fast,
            predictor=Guess(),
        ),
        after_s,
    )


@pytest.mark.vllm
@pytest.mark.parametrize("key", KEYS)
@given(
    displaces=st.sampled_from([None, Displaced.PAUSE, Displaced.RECOMPUTE]),
    load=loads(most=20),
    kinds=st.frozensets(st.sampled_from([Arrived, Predicted, Finished, Overran, Iterated])),
    renewal=RENEWALS,
    batch_rule=st.sampled_from(RULES),
    blocks=st.sampled_from([12, 17, 30, 200]),
    aside=st.sampled_from([None, some_aside]),
    late_s=st.sampled_from([0.0, 0.0131, 0.1317]),
)
@settings(max_examples=5, deadline=None)
def test_vllm_runs_the_same_batches_whatever_is_learnt(
    key: str,
    displaces: Displaced | None,
    load: Load,
    kinds: frozenset[type[Event]],
    renewal: dict[str, Any],
    batch_rule: ContinuousBatching,
    blocks: int,
    aside: Any,
    late_s: float,
) -> None:
    order = {"key": KEYS[key], "rule": batch_rule, "reserve_tokens": aside, "displaces": displaces}
    seen = []
    for engine in ("stepped", "vLLM"):
        placement = Watching(("m", (0,)), ("m", (1,)))
        policy = learning(kinds, **order, **renewal)
        system = System("test", policy, RoundRobin(), placement, predictor=Guess(late_s))
        costs = LinearCosts(blocks=blocks, load=0.0)
        ENGINES[engine](
            cluster=cluster(2), costs=costs, max_num_seqs=512, max_num_batched_tokens=8192
        ).run(workload(*load), system, Recorder())
        seen.append(placement.steps)
    assert_same(*seen)
