"""KV that goes to host memory and comes back: what a draft does, and what is refused, by hand."""

from dataclasses import replace

import pytest

from harness.core.checks import check
from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.engines.told_keys import Heard, ToldKeys
from harness.interface.decisions import (
    Batch,
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
)
from harness.interface.entities import RequestId
from harness.interface.policies import Capability
from harness.tests.support.fakes import ALL, CHAT, FakeGroup, FakeScene, by_id, launched
from harness.tests.support.serving import rule

R1, R2, R3 = (RequestId(number) for number in (1, 2, 3))
SWAP = PreemptionMode.SWAP


def a_view(*, free_host_bytes: int = 40, capacity_blocks: int = 6) -> FakeGroup:
    """r1 decodes on 32 tokens, r2 would on 40 that are in host memory, r3 is new."""
    scene = FakeScene(capacity_blocks=capacity_blocks)
    scene.decoding(32)
    scene.add(40, generated=1).swapped_tokens = 40
    scene.add(20)
    view = scene.view()
    view.free_host_bytes = free_host_bytes
    return view


def test_kv_comes_back_whole_with_what_runs() -> None:
    """r1 takes 3 of the 6 blocks for 33 tokens, r2 the other 3 for 41; then none is left for r3."""
    draft = Draft(view := a_view())
    r1, r2, r3 = by_id(view)
    assert draft.try_run(r1, 1)
    assert not draft.try_run(r2, 2)
    assert draft.try_run(r2, 1)
    assert not draft.try_run(r3, 1)
    decision = draft.decision()
    assert (launched(decision), decision.swap_in) == ({1: 1, 2: 1}, {2})
    assert draft.kv.holding(R2) == 41
    assert check(decision, view, supports=ALL) == []


def test_no_room_in_host_memory_is_a_sentence() -> None:
    draft = Draft(view := a_view(free_host_bytes=31))
    with pytest.raises(ValueError, match="r1 with 32 bytes of KV cannot be swapped out: 31 bytes"):
        draft.preempt(view.requests[R1], SWAP)
    assert not draft.preempts(view.requests[R1])


def test_a_batch_recomputes_whom_host_memory_has_no_room_for() -> None:
    """r3 needs 5 blocks and r1 holds 2 of the 6: it goes, to host memory if that has 32 bytes."""
    for free_host_bytes, how in ((32, SWAP), (31, PreemptionMode.RECOMPUTE)):
        scene = FakeScene(capacity_blocks=6)
        scene.decoding(32)
        scene.add(80)
        view = scene.view()
        view.free_host_bytes = free_host_bytes
        draft = Draft(view)
        run_in_order(draft, by_id(view)[::-1], how=SWAP)
        assert draft.decision().preempt == {1: how}


def _batch(tokens: dict[RequestId, int]) -> tuple[Batch, ...]:
    return (Batch(CHAT, tokens),)


@pytest.mark.parametrize(
    ("decision", "sentences"),
    [
        (Decision({R1: SWAP}, wake_s=11.0), []),
        (Decision(launch=_batch({R2: 1}), swap_in={R2}), []),
        (Decision(launch=_batch({R2: 1})), ["r2 is run while its KV is in host memory"]),
        (Decision({R2: SWAP}), ["r2 is swapped out but holds no KV"]),
        (Decision({R2: PreemptionMode.RECOMPUTE}), []),
        (Decision(swap_in={R1}), ["r1 is swapped in but has no KV in host memory"]),
        (
            Decision({R2: PreemptionMode.RECOMPUTE}, swap_in={R2}),
            ["r2 is preempted and swapped in by one decision"],
        ),
        (
            Decision(launch=_batch({R1: 1, R3: 20}), swap_in={R2}),
            ["32 bytes over the KV capacity of 96"],
        ),
        (
            Decision(priority_order=PriorityOrder(None, rule(), Displaced.PAUSE)),
            ["a priority order that does not swap, with the KV of 1 in host memory"],
        ),
        (Decision(priority_order=PriorityOrder(None, rule(), Displaced.SWAP)), []),
        (Decision(priority_order=PriorityOrder(None, rule(), gives_way=SWAP)), []),
    ],
)
def test_what_is_refused(decision: Decision, sentences: list[str]) -> None:
    assert check(decision, a_view(), supports=ALL) == sentences


def test_more_than_host_memory_takes_is_refused_also_where_as_much_comes_back() -> None:
    view = a_view(free_host_bytes=31)
    decision = Decision({R1: SWAP}, launch=_batch({R2: 1}), swap_in={R2})
    assert check(decision, view, supports=ALL) == [
        "32 bytes of KV are swapped out, 31 bytes of host memory are free"
    ]


GIVES_WAY = PriorityOrder(None, rule(chunked_prefill=True), gives_way=SWAP)


def filled(view: FakeGroup, order: PriorityOrder) -> Decision:
    """One batch of the order, which must be legal."""
    decision = ToldKeys().batch(view, order, Heard())
    assert check(decision, view, supports=ALL) == []
    return decision


@pytest.mark.parametrize("chunked", [True, False])
def test_the_last_holder_is_swapped_out_where_kv_is_short_by_hand(chunked: bool) -> None:
    """r1 and r2 hold 2 blocks of 4 each and need a third: r2 goes, to host memory if it fits."""
    order = PriorityOrder(None, rule(chunked_prefill=chunked), gives_way=SWAP)
    for free_host_bytes, how in ((32, SWAP), (31, PreemptionMode.RECOMPUTE)):
        scene = FakeScene(capacity_blocks=4)
        scene.decoding(32)
        scene.decoding(32)
        view = scene.view()
        view.free_host_bytes = free_host_bytes
        decision = filled(view, order)
        assert (launched(decision), decision.preempt) == ({1: 1}, {2: how})


@pytest.mark.parametrize("chunked", [True, False])
def test_no_newcomer_is_admitted_while_kv_is_in_host_memory_by_hand(chunked: bool) -> None:
    """r1 takes 3 blocks for 33 tokens, r2 would take 3 for 41, r3 2: of 6 blocks r2 gets the rest.

    Of 5 blocks r2 finds none, and r3, which would fit, waits behind it. Slots bound both.
    """
    order = PriorityOrder(None, rule(chunked_prefill=chunked), gives_way=SWAP)
    decision = filled(a_view(), order)
    assert (launched(decision), decision.swap_in) == ({1: 1, 2: 1}, {2})
    decision = filled(a_view(capacity_blocks=5), order)
    assert (launched(decision), decision.swap_in) == ({1: 1}, frozenset())
    one_slot = replace(order, rule=rule(chunked_prefill=chunked, max_num_seqs=1))
    assert launched(filled(a_view(), one_slot)) == {1: 1}


def test_a_request_that_comes_back_has_its_allocation_set_aside_again() -> None:
    """r2 comes back with 41 tokens, and KV for 48 is promised to it."""
    decision = filled(a_view(), replace(GIVES_WAY, reserve_tokens=48))
    assert (decision.swap_in, decision.reserve) == ({2}, {2: Reservation(48)})


@pytest.mark.parametrize(
    ("order", "supports", "sentence"),
    [
        (GIVES_WAY, ALL - {Capability.SWAP}, "gives way by swapping, which the engine does not su"),
        (
            PriorityOrder(None, rule(), Displaced.SWAP),
            ALL - {Capability.SWAP},
            "displaces by swapping, which the engine does not su",
        ),
        (
            PriorityOrder(None, rule(), Displaced.SWAP, gives_way=SWAP),
            ALL,
            "gives way by swapping and displaces (swap), which says itself",
        ),
        (
            PriorityOrder(
                None,
                StaticBatching(max_num_seqs=2, max_wait_s=0.0, refills=False, pads_prompts=True),
                gives_way=SWAP,
            ),
            ALL,
            "gives way by swapping under static batching, which never lacks KV",
        ),
    ],
)
def test_orders_that_cannot_give_way_by_swapping_are_refused(
    order: PriorityOrder, supports: frozenset[Capability], sentence: str
) -> None:
    (problem,) = check(
        Decision(priority_order=order), FakeScene(capacity_blocks=4).view(), supports=supports
    )
    assert sentence in problem
