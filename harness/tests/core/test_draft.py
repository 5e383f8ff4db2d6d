"""Drafts: what fits into a decision, line by line, by hand."""

from dataclasses import replace

import pytest

from harness.core.checks import check
from harness.core.draft import Draft
from harness.interface.decisions import (
    Batch,
    Decision,
    PreemptionMode,
    Reservation,
    Until,
)
from harness.interface.entities import RequestId
from harness.tests.support.fakes import (
    ALL,
    CHAT,
    CODE,
    FakeScene,
    launched,
)


def test_tokens_max_num_seqs_and_kv_bound_a_batch() -> None:
    scene = FakeScene(capacity_blocks=4)
    first, second, third, fourth = scene.add(10), scene.add(40), scene.add(16), scene.add(16)
    view = scene.view()
    view.max_num_seqs = 2
    view.max_num_batched_tokens = 42
    draft = Draft(view)
    assert not draft.try_run(first, 0)
    assert not draft.try_run(first, 11)
    assert draft.try_run(first, 10)
    assert not draft.try_run(first, 1)
    assert not draft.try_run(second, 33)
    assert draft.tokens_left == 32
    assert draft.try_run(second, 32)
    assert draft.kv.free_blocks(CHAT) == 1
    assert not draft.try_run(third, 1)
    assert launched(draft.decision()) == {1: 10, 2: 32}
    draft = Draft(view)
    assert draft.try_run(second, 40)
    assert not draft.try_run(third, 16)
    draft = Draft(replace(view, max_num_batched_tokens=1000))
    assert draft.try_run(second, 40)
    draft.requests_left = 9
    assert draft.try_run(third, 16)
    assert not draft.try_run(fourth, 16)
    assert view.kv.holding(RequestId(2)) == 0


def test_two_services_share_the_sms_in_two_batches() -> None:
    scene = FakeScene(capacity_blocks=9, services=(CHAT, CODE))
    chat, code = scene.add(16), scene.add(16, service=CODE)
    draft = Draft(scene.view())
    draft.open_batch(CHAT, 0.6)
    assert not draft.try_run(code, 16)
    assert draft.try_run(chat, 16)
    draft.open_batch(CODE, 0.4)
    assert draft.try_run(code, 16)
    with pytest.raises(ValueError, match=r"share 0.1 of the SMs asked, 0 is free"):
        draft.open_batch(CODE, 0.1)
    decision = draft.decision(until=Until.ALL, wake_s=12.0, steady=True)
    assert decision == Decision(
        launch=(
            Batch(CHAT, {RequestId(1): 16}, 0.6, Until.ALL),
            Batch(CODE, {RequestId(2): 16}, 0.4, Until.ALL),
        ),
        wake_s=12.0,
        steady=True,
    )


def test_what_is_preempted_neither_runs_nor_keeps_its_promise() -> None:
    scene = FakeScene(capacity_blocks=4)
    holder, newcomer = scene.decoding(48), scene.add(64)
    view = scene.view()
    draft = Draft(view)
    assert draft.try_reserve(holder, Reservation(64))
    draft.preempt(holder, PreemptionMode.SWAP)
    assert not draft.try_run(holder, 1)
    assert draft.try_run(newcomer, 64)
    with pytest.raises(ValueError, match="r2 is running and cannot be preempted"):
        draft.preempt(newcomer)
    decision = draft.decision()
    assert (decision.preempt, decision.reserve) == ({RequestId(1): PreemptionMode.SWAP}, {})
    assert check(decision, view, supports=ALL) == []


def test_one_decision_cannot_lend_and_preempt_the_lender() -> None:
    scene = FakeScene(capacity_blocks=4)
    host, guest = scene.decoding(16), scene.add(16)
    host.reservation = Reservation(64)
    draft = Draft(scene.view())
    assert draft.try_reserve(guest, Reservation(0, 32, RequestId(1)))
    with pytest.raises(ValueError, match="r1 has just lent to r2"):
        draft.preempt(host)
    with pytest.raises(ValueError, match="r2 borrows from two lenders"):
        draft.try_reserve(guest, Reservation(16))


def test_all_run_or_none() -> None:
    """Three prompts of 16 in 3 blocks, 2 of which one holder takes: two of them are too many."""
    scene = FakeScene(capacity_blocks=3)
    holder, one, two = scene.decoding(20), scene.add(16), scene.add(16)
    view = scene.view()
    draft = Draft(view)
    refused = [
        draft.try_run_all([], 100),
        draft.try_run_all([one, two], 100),
        draft.try_run_all([one, one], 100),
        draft.try_run_all([holder, one], 16),
        Draft(replace(view, max_num_seqs=1)).try_run_all([holder, one], 100),
        Draft(replace(view, max_num_batched_tokens=16)).try_run_all([holder, one], 100),
        Draft(replace(view, free_share=0.0)).try_run_all([one], 100),
    ]
    assert not any(refused)
    assert draft.decision() == Decision()
    assert draft.try_run_all([holder, one], 17)
    assert (draft.requests_left, draft.kv.free_blocks(CHAT)) == (998, 0)
    assert not draft.try_run_all([two], 100)
    assert not draft.try_run(one, 1)
    assert draft.decision() == Decision(launch=(Batch(CHAT, {RequestId(1): 1, RequestId(2): 16}),))


def test_all_run_in_an_open_batch_beside_one_in_flight() -> None:
    scene = FakeScene(capacity_blocks=8)
    holder, one, two = scene.decoding(20), scene.add(16), scene.add(16)
    in_flight = (Batch(CHAT, {RequestId(3): 16}, 0.5),)
    view = replace(scene.view(), in_flight=in_flight, free_share=0.5)
    draft = Draft(view)
    draft.open_batch(CHAT, 0.5)
    assert not draft.try_run_all([two], 100)
    assert draft.try_run_all([holder], 100)
    assert not draft.try_run_all([one], 100)
    decision = draft.decision()
    assert decision.launch == (Batch(CHAT, {RequestId(1): 1}, 0.5),)
    assert check(decision, view, supports=ALL) == []
    wide = replace(view, in_flight=(Batch(CHAT, {RequestId(3): 16}, 0.6),), free_share=0.4)
    assert check(decision, wide, supports=ALL) == [
        "batches take share 0.5 of the SMs but 0.4 is free"
    ]


def test_a_promise_of_the_draft_is_taken_back() -> None:
    scene = FakeScene(capacity_blocks=4)
    first, second = scene.add(16), scene.add(16)
    view = scene.view()
    view.kv.reserve(first.facts.id, Reservation(16))
    draft = Draft(view)
    assert draft.is_empty
    assert draft.try_reserve(first, Reservation(64))
    assert not draft.try_reserve(second, Reservation(16))
    draft.cancel_reserve(first)
    assert draft.kv.reservation(first.facts.id) == Reservation(16)
    assert draft.try_reserve(second, Reservation(16))
    assert draft.try_run(second, 16)
    assert not draft.is_empty
    decision = draft.decision()
    assert decision.reserve == {2: Reservation(16)}
    assert check(decision, view, supports=ALL) == []


def test_a_promise_in_use_or_of_another_decision_is_not_taken_back() -> None:
    scene = FakeScene(capacity_blocks=4)
    host, guest = scene.add(16), scene.add(16)
    draft = Draft(scene.view())
    with pytest.raises(ValueError, match="r1 has no promise of this draft to cancel"):
        draft.cancel_reserve(host)
    assert draft.try_reserve(host, Reservation(64))
    assert draft.try_reserve(guest, Reservation(0, 32, host.facts.id))
    with pytest.raises(ValueError, match="r1 or its borrowers use the promise"):
        draft.cancel_reserve(host)
    draft.cancel_reserve(guest)
    draft.cancel_reserve(host)
    assert not draft.decision().reserve
