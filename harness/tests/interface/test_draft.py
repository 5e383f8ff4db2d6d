"""Drafts: each rule of filling a batch by hand, then properties over random groups."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.checks import check
from harness.interface.decisions import (
    Batch,
    ContinuousBatching,
    Decision,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    Until,
)
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.events import Event
from harness.interface.filling import (
    continuous_batch,
    fill_continuous,
    in_priority_order,
    is_decode,
    next_tokens,
)
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView
from harness.tests.support.fakes import (
    CHAT,
    CODE,
    FakeGroup,
    FakeRequest,
    FakeScene,
    launched,
    numbers,
)
from harness.tests.support.serving import LinearCosts, serve, workload

ALL = frozenset(Capability)
PROMPTS_FIRST = ContinuousBatching(
    chunked_prefill=False,
    pads_prompts=False,
    max_num_seqs=8,
    max_num_batched_tokens=100,
    max_padding_tokens=0,
    watermark=0.0,
)
PADDED = replace(PROMPTS_FIRST, pads_prompts=True, max_padding_tokens=20)
CHUNKED = replace(PROMPTS_FIRST, chunked_prefill=True, max_num_batched_tokens=40)


def by_id(view: FakeGroup) -> list[RequestView]:
    """Every request not running, in order of id: what most orders in these tests are."""
    return [view.requests[name] for name in sorted(view.requests) if not runs(view, name)]


def runs(view: FakeGroup, name: RequestId) -> bool:
    return view.requests[name].is_running


def filled(scene: FakeScene, rule: ContinuousBatching) -> Decision:
    """Fill by the rule, oldest first; the result must be legal."""
    view = scene.view()
    draft = Draft(view)
    fill_continuous(draft, by_id(view), rule)
    decision = draft.decision()
    assert check(decision, view, supports=ALL) == []
    return decision


# ---- the draft ----


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


def test_batches_in_flight_count_in_max_num_seqs_and_share() -> None:
    scene = FakeScene(capacity_blocks=9)
    scene.decoding(16).is_running = True
    newcomer, other = scene.add(5), scene.add(5)
    view = scene.view()
    view.in_flight = (Batch(CHAT, {RequestId(1): 1}, 0.6),)
    view.free_share = 0.4
    view.max_num_seqs = 2
    draft = Draft(view)
    assert not draft.try_run(scene.requests[RequestId(1)], 1)
    assert draft.try_run(newcomer, 5)
    assert not draft.try_run(other, 5)
    assert draft.decision().launch == (Batch(CHAT, {RequestId(2): 5}, 0.4),)
    assert not Draft(replace(view, free_share=0.0)).try_run(newcomer, 5)


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


def test_every_batch_has_its_own_tokens() -> None:
    scene = FakeScene(capacity_blocks=9, services=(CHAT, CODE))
    chat, code = scene.add(30), scene.add(30, service=CODE)
    view = scene.view()
    view.max_num_batched_tokens = 40
    draft = Draft(view)
    draft.open_batch(CHAT, 0.5)
    assert draft.try_run(chat, 30)
    draft.open_batch(CODE, 0.5)
    assert draft.try_run(code, 30)
    assert check(draft.decision(), view, supports=ALL) == []


def test_an_orphan_is_left_by_the_promise_that_was_in_force() -> None:
    """r2 has 1 own and 2 borrowed blocks and lends 2; the draft first moves it to 3 own ones.

    The decision preempts before it promises: r2's orphaned reservation still borrows, so no 3
    blocks are taken.
    """
    scene = FakeScene(capacity_blocks=7)
    host, middle, guest = scene.add(16), scene.add(16), scene.add(16)
    host.reservation = Reservation(48)
    middle.reservation = Reservation(16, 32, host.facts.id)
    guest.reservation = Reservation(0, 32, middle.facts.id)
    view = scene.view()
    draft = Draft(view)
    assert draft.try_reserve(middle, Reservation(48, 0, host.facts.id))
    assert draft.kv.free_blocks(CHAT) == 1
    draft.preempt(middle)
    assert draft.kv.free_blocks(CHAT) == 3
    decision = draft.decision()
    assert (dict(decision.preempt), decision.reserve) == ({2: PreemptionMode.RECOMPUTE}, {})
    assert check(decision, view, supports=ALL) == []


def test_an_opened_batch_without_requests_is_not_launched() -> None:
    draft = Draft(FakeScene(capacity_blocks=1).view())
    draft.open_batch(CHAT, 1.0)
    assert draft.decision() == Decision()


def test_a_promise_is_kept_against_later_runs() -> None:
    scene = FakeScene(capacity_blocks=4)
    promised, other = scene.add(16), scene.add(32)
    draft = Draft(scene.view())
    assert not draft.try_reserve(promised, Reservation(65))
    assert draft.try_reserve(promised, Reservation(48))
    assert not draft.try_run(other, 32)
    assert draft.try_run(promised, 16)
    assert draft.decision().reserve == {RequestId(1): Reservation(48)}


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


def test_what_is_preempted_does_not_run_with_all() -> None:
    scene = FakeScene(capacity_blocks=3)
    holder, one = scene.decoding(20), scene.add(40)
    draft = Draft(scene.view())
    draft.preempt(holder)
    assert not draft.try_run_all([holder, one], 100)
    assert draft.try_run_all([one], 100)
    assert (draft.kv.holding(RequestId(1)), draft.kv.free_blocks(CHAT)) == (0, 0)


def test_the_scratch_ledger_is_the_same_whenever_it_is_looked_at() -> None:
    """It is made when first asked for: before the batch, after it, or between two of them."""
    scene = FakeScene(capacity_blocks=9)
    order = [scene.decoding(20), scene.add(16), scene.add(5)]
    view = scene.view()
    early, late = Draft(view), Draft(view)
    assert early.kv.free_blocks(CHAT) == 7
    for draft in (early, late):
        assert draft.try_run_all(order[:2], 100)
        assert draft.try_run(order[2], 5)
    for draft in (early, late):
        assert [draft.kv.holding(r.facts.id) for r in order] == [21, 16, 5]
        assert draft.kv.free_blocks(CHAT) == 5
        assert draft.kv.problems() == []
    assert view.kv.free_blocks(CHAT) == 7


def test_next_tokens_are_the_missing_ones_up_to_the_chunk() -> None:
    request = FakeScene(capacity_blocks=1).add(20, 5)
    assert (next_tokens(request, 100), next_tokens(request, 4)) == (15, 4)


# ---- continuous batching ----


def test_holders_first_means_a_newcomer_waits() -> None:
    """3 of 4 blocks are held; the newcomer needs 2 and has nobody behind it."""
    scene = FakeScene(capacity_blocks=4)
    holder, newcomer = scene.decoding(40), scene.add(20)
    draft = Draft(scene.view())
    continuous_batch(draft, [holder, newcomer])
    assert draft.decision() == Decision(launch=(Batch(CHAT, {RequestId(1): 1}),))


def test_a_preemptive_order_preempts_from_behind() -> None:
    """r4 needs 3 blocks of 4: r3 goes first, then r2; r1, which stands before it, is kept."""
    scene = FakeScene(capacity_blocks=4)
    first, second, third = scene.decoding(10), scene.decoding(16), scene.decoding(16)
    urgent = scene.add(48)
    draft = Draft(scene.view())
    continuous_batch(draft, [first, urgent, second, third], how=PreemptionMode.SWAP)
    decision = draft.decision()
    assert launched(decision) == {1: 1, 4: 48}
    assert list(decision.preempt.items()) == [(3, PreemptionMode.SWAP), (2, PreemptionMode.SWAP)]


def test_a_budget_cuts_the_last_prompt() -> None:
    scene = FakeScene(capacity_blocks=9)
    order = [scene.decoding(16), scene.add(20), scene.add(20), scene.add(20)]
    draft = Draft(scene.view())
    continuous_batch(draft, order, budget=30)
    assert launched(draft.decision()) == {1: 1, 2: 20, 3: 9}


def test_other_services_and_running_requests_are_passed_over() -> None:
    scene = FakeScene(capacity_blocks=9, services=(CHAT, CODE))
    order = [scene.add(8), scene.add(8, service=CODE), scene.add(8), scene.add(8)]
    order[2].is_running = True
    view = scene.view()
    view.in_flight = (Batch(CHAT, {RequestId(3): 8}, 0.5),)
    draft = Draft(replace(view, free_share=0.5))
    continuous_batch(draft, order)
    assert launched(draft.decision()) == {1: 8, 4: 8}


@dataclass
class CountedRequest(FakeRequest):
    """Counts how often it is asked for its context."""

    asked: int = 0

    @property
    def context_tokens(self) -> int:
        self.asked += 1
        return self.facts.prompt_tokens + self.generated_tokens


def test_every_request_is_looked_at_a_few_times_however_many_there_are() -> None:
    scene = FakeScene(capacity_blocks=400)
    for _ in range(400):
        facts = scene.decoding(16).facts
        scene.requests[facts.id] = CountedRequest(facts, kv_tokens=16, generated_tokens=1)
    draft = Draft(scene.view())
    order = list(scene.requests.values())
    continuous_batch(draft, order)
    decision = draft.decision()
    assert (len(launched(decision)), len(decision.preempt)) == (200, 200)
    assert all(r.asked <= 5 for r in order if isinstance(r, CountedRequest))


# ---- filling by a priority order: prompts or decodes ----


def test_prompts_go_before_decodes() -> None:
    scene = FakeScene(capacity_blocks=20)
    scene.decoding(30)
    scene.add(60)
    scene.add(40)
    assert launched(filled(scene, PROMPTS_FIRST)) == {2: 60, 3: 40}


def test_decodes_run_when_no_prompt_can_be_admitted() -> None:
    scene = FakeScene(capacity_blocks=20)
    scene.decoding(30)
    scene.add(101)
    scene.decoding(7)
    assert launched(filled(scene, PROMPTS_FIRST)) == {1: 1, 3: 1}


def test_nobody_overtakes_the_first_that_does_not_fit() -> None:
    scene = FakeScene(capacity_blocks=20)
    scene.add(60)
    scene.add(41)
    scene.add(1)
    assert launched(filled(scene, PROMPTS_FIRST)) == {1: 60}


def test_holders_and_admitted_share_the_request_limit() -> None:
    scene = FakeScene(capacity_blocks=20)
    for _ in range(6):
        scene.decoding(4)
    for _ in range(3):
        scene.add(4)
    assert launched(filled(scene, PROMPTS_FIRST)) == {7: 4, 8: 4}


def test_a_preempted_request_is_computed_whole_again() -> None:
    scene = FakeScene(capacity_blocks=20)
    scene.add(20, generated=5)
    assert launched(filled(scene, PROMPTS_FIRST)) == {1: 25}


def test_padded_tokens_are_counted_against_the_batch() -> None:
    """30 + 34 + 33 are 97 tokens, but 3 x 34 padded ones are more than 100."""
    scene = FakeScene(capacity_blocks=20)
    scene.add(30)
    scene.add(34)
    scene.add(33)
    assert launched(filled(scene, PADDED)) == {1: 30, 2: 34}
    assert launched(filled(scene, PROMPTS_FIRST)) == {1: 30, 2: 34, 3: 33}


@pytest.mark.parametrize(("longest", "admitted"), [(30, 2), (31, 1)])
def test_padding_is_bounded(longest: int, admitted: int) -> None:
    """10 beside 30 wastes 20 tokens, which is allowed; beside 31 it wastes 21."""
    scene = FakeScene(capacity_blocks=20)
    scene.add(10)
    scene.add(longest)
    assert len(launched(filled(scene, PADDED))) == admitted


@pytest.mark.parametrize("rule", [PROMPTS_FIRST, CHUNKED])
def test_admission_leaves_the_watermark_free(rule: ContinuousBatching) -> None:
    """Of 10 blocks floor(0.25 x 10) = 2 stay free: prompts of 4 and 4 blocks fit, no third."""
    scene = FakeScene(capacity_blocks=10)
    for prompt_tokens in (64, 49, 1):
        scene.add(prompt_tokens)
    watermark = replace(rule, watermark=0.25, max_num_batched_tokens=200)
    assert launched(filled(scene, watermark)) == {1: 64, 2: 49}


def test_decodes_may_use_the_watermark() -> None:
    scene = FakeScene(capacity_blocks=2)
    scene.decoding(16)
    assert launched(filled(scene, replace(PROMPTS_FIRST, watermark=1.0))) == {1: 1}


def test_the_last_holder_gives_way() -> None:
    """3 blocks, all full: r1 takes r3's, r2 can only give way to itself."""
    scene = FakeScene(capacity_blocks=3)
    for _ in range(3):
        scene.decoding(16)
    decision = filled(scene, PROMPTS_FIRST)
    assert launched(decision) == {1: 1}
    assert list(decision.preempt.items()) == [
        (3, PreemptionMode.RECOMPUTE),
        (2, PreemptionMode.RECOMPUTE),
    ]


def test_a_holder_with_room_in_its_block_runs_behind_a_preemption() -> None:
    """r4 gives way to r1; r2 and r3 still have room in their blocks."""
    scene = FakeScene(capacity_blocks=4)
    for kv_tokens in (16, 5, 6, 7):
        scene.decoding(kv_tokens)
    decision = filled(scene, PROMPTS_FIRST)
    assert launched(decision) == {1: 1, 2: 1, 3: 1}
    assert set(decision.preempt) == {4}


def test_a_lone_holder_that_cannot_grow_is_preempted() -> None:
    scene = FakeScene(capacity_blocks=1)
    scene.decoding(16)
    decision = filled(scene, PROMPTS_FIRST)
    assert decision == Decision(preempt={RequestId(1): PreemptionMode.RECOMPUTE})


# ---- filling by a priority order: chunked prefill ----


def test_decodes_and_chunks_share_the_budget() -> None:
    scene = FakeScene(capacity_blocks=20)
    scene.add(30, 10)
    scene.add(30)
    scene.decoding(9)
    scene.add(30)
    assert launched(filled(scene, CHUNKED)) == {1: 20, 3: 1, 2: 19}


def test_a_long_prompt_is_cut_to_what_decodes_leave_and_ends_the_batch() -> None:
    scene = FakeScene(capacity_blocks=20)
    scene.add(200, 100)
    scene.decoding(9)
    scene.add(30, 10)
    scene.add(5)
    assert launched(filled(scene, CHUNKED)) == {2: 1, 1: 39}


def test_who_is_in_mid_prompt_gives_way_to_who_decodes() -> None:
    """r1 is first in order, but r2 decodes: r1 loses its two blocks, and may not start again."""
    scene = FakeScene(capacity_blocks=3)
    scene.add(100, 32)
    scene.decoding(16)
    decision = filled(scene, CHUNKED)
    assert launched(decision) == {2: 1}
    assert set(decision.preempt) == {1}


def test_decoding_means_that_only_the_last_output_token_is_missing() -> None:
    scene = FakeScene(capacity_blocks=9)
    assert is_decode(scene.decoding(16))
    assert is_decode(scene.add(16, 18, generated=3))
    assert not is_decode(scene.add(17, 16))
    assert not is_decode(scene.add(16, 16, generated=2))
    assert not is_decode(scene.add(16))


def test_newcomers_wait_while_somebody_is_preempted() -> None:
    """r2 gives way to r1; afterwards a block is free, but the newcomer r3 is not admitted."""
    scene = FakeScene(capacity_blocks=4)
    scene.decoding(16)
    scene.decoding(48)
    scene.add(4)
    decision = filled(scene, CHUNKED)
    assert launched(decision) == {1: 1}
    assert set(decision.preempt) == {2}


def test_a_newcomer_must_fit_whole_even_if_only_a_chunk_runs() -> None:
    """3 blocks are free: a prompt of 49 tokens needs 4, though its chunk of 40 would fit."""
    scene = FakeScene(capacity_blocks=3)
    scene.add(49)
    scene.add(1)
    assert filled(scene, CHUNKED) == Decision()
    scene = FakeScene(capacity_blocks=4)
    scene.add(49)
    assert launched(filled(scene, CHUNKED)) == {1: 40}


def test_chunked_batches_respect_the_request_limit() -> None:
    scene = FakeScene(capacity_blocks=20)
    for _ in range(7):
        scene.decoding(4)
    scene.add(2)
    scene.add(2)
    assert launched(filled(scene, CHUNKED)) == {**dict.fromkeys(range(1, 8), 1), 8: 2}


def test_a_chunked_rule_that_pads_is_refused() -> None:
    with pytest.raises(ValueError, match="a chunked-prefill batch does not pad its prompts"):
        filled(FakeScene(capacity_blocks=1), replace(CHUNKED, pads_prompts=True))


def test_filling_nothing_is_nothing() -> None:
    assert filled(FakeScene(capacity_blocks=1), CHUNKED) == Decision()


# ---- priority orders ----


def test_a_priority_order_sorts_by_key_then_id_and_leaves_out_the_running() -> None:
    scene = FakeScene(capacity_blocks=9)
    for prompt_tokens in (30, 10, 20, 10):
        scene.add(prompt_tokens)
    scene.requests[RequestId(3)].is_running = True
    shortest = PriorityOrder(lambda table: table.prompt_tokens.astype(np.float64), CHUNKED)
    assert numbers(in_priority_order(scene.view(), shortest)) == [2, 4, 1]


def test_a_key_must_give_one_number_per_request() -> None:
    scene = FakeScene(capacity_blocks=9)
    scene.add(1)
    broken = PriorityOrder(lambda table: np.zeros(3), CHUNKED)
    with pytest.raises(ValueError, match=r"key of shape \(3,\) for 1 requests"):
        in_priority_order(scene.view(), broken)


# ---- properties ----

PROMISES = st.one_of(
    st.builds(Reservation, st.integers(0, 80)),
    st.builds(
        Reservation, st.integers(0, 32), st.integers(0, 40), st.integers(1, 12).map(RequestId)
    ),
)


@st.composite
def scenes(draw: st.DrawFn, *, promises: bool = False) -> FakeGroup:
    """A group with up to 12 requests in sound states, some running."""
    services = (CHAT, CODE) if draw(st.booleans()) and promises else (CHAT,)
    scene = FakeScene(capacity_blocks=draw(st.integers(1, 24)), services=services)
    for _ in range(draw(st.integers(0, 12))):
        context = draw(st.integers(1, 60))
        held = draw(st.sampled_from([0, 0, context // 2, context]))
        generated = 1 if held == context else 0
        service = draw(st.sampled_from(services))
        request = scene.add(context, held, generated=generated, service=service)
        if scene.view().kv.problems():
            request.kv_tokens = 0
        elif promises:
            request.is_running = draw(st.integers(0, 4)) == 0
    view = scene.view()
    running = {name: 1 for name, r in scene.requests.items() if r.is_running}
    view.in_flight = (Batch(CHAT, running, 0.5),) if running else ()
    view.free_share = 0.5 if running else 1.0
    if promises:
        view.max_num_seqs = draw(st.integers(1, 8))
        view.max_num_batched_tokens = draw(st.integers(1, 120))
        promise_some(draw, view)
    return view


def promise_some(draw: st.DrawFn, view: FakeGroup) -> None:
    """Put promises that can be kept into the ledger."""
    for name, request in view.requests.items():
        promise = draw(st.one_of(st.none(), PROMISES))
        try:
            if promise and view.kv.try_reserve(name, promise):
                assert isinstance(request, FakeRequest)
                request.reservation = promise
        except ValueError:
            continue


def one_line(data: st.DataObject, draft: Draft, request: RequestView) -> None:
    """Try one random line of a decision; a refusal with a sentence is fine too."""
    move = data.draw(st.sampled_from(["run", "run", "reserve", "preempt", "batch", "fill"]))
    with suppress(ValueError):
        if move == "run":
            draft.try_run(request, data.draw(st.integers(-1, 70)))
        elif move == "reserve":
            draft.try_reserve(request, data.draw(PROMISES))
        elif move == "preempt":
            draft.preempt(request, data.draw(st.sampled_from(PreemptionMode)))
        elif move == "batch":
            draft.open_batch(request.facts.service, data.draw(st.sampled_from([0.2, 0.5, 1.0])))
        else:
            order = data.draw(st.permutations(list(draft.view.requests.values())))
            continuous_batch(draft, order, budget=data.draw(st.sampled_from([None, 7, 50])))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(scenes(promises=True), st.data())
def test_whatever_is_drafted_is_legal(view: FakeGroup, data: st.DataObject) -> None:
    draft = Draft(view)
    for _ in range(data.draw(st.integers(1, 12)) if view.requests else 0):
        one_line(data, draft, data.draw(st.sampled_from(list(view.requests.values()))))
        assert draft.kv.problems() == []
    decision = draft.decision()
    assert check(decision, view, supports=ALL) == []
    assert view.kv.problems() == []


RULES = st.builds(
    ContinuousBatching,
    chunked_prefill=st.just(False),
    pads_prompts=st.booleans(),
    max_num_seqs=st.integers(1, 12),
    max_num_batched_tokens=st.integers(60, 150),
    max_padding_tokens=st.integers(0, 60),
    watermark=st.sampled_from([0.0, 0.01, 0.2]),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(scenes(), RULES, st.booleans(), st.randoms(use_true_random=False))
def test_filling_is_legal_and_takes_from_the_front(
    view: FakeGroup, rule: ContinuousBatching, chunked_prefill: bool, rng: Random
) -> None:
    """Holders and newcomers run from the front; holders are preempted from the back."""
    rule = replace(
        rule,
        chunked_prefill=chunked_prefill,
        pads_prompts=rule.pads_prompts and not chunked_prefill,
    )
    order = by_id(view)
    rng.shuffle(order)
    draft = Draft(view)
    fill_continuous(draft, order, rule)
    decision = draft.decision()
    assert check(decision, view, supports=ALL) == []
    ran = launched(decision)
    holding = [r for r in order if r.kv_tokens > 0]
    if chunked_prefill:
        holding = sorted(holding, key=is_decode, reverse=True)
    holders = numbers(holding)
    newcomers = [r.facts.id for r in order if r.kv_tokens == 0]
    for group in (holders, newcomers):
        chosen = [name in ran for name in group]
        assert chosen == sorted(chosen, reverse=True)
    gone = [name in decision.preempt for name in holders]
    assert gone == sorted(gone)
    assert not (decision.preempt and any(name in ran for name in newcomers))


def naive_continuous_batch(draft: Draft, order: list[RequestView]) -> None:
    """The same by lists and searches."""
    waiting = [r for r in order if not r.is_running]
    while waiting:
        request = waiting.pop(0)
        if draft.tokens_left <= 0 or draft.requests_left <= 0:
            return
        tokens = min(request.context_tokens - request.kv_tokens, draft.tokens_left)
        while not draft.try_run(request, tokens):
            victims = [r for r in waiting if r.kv_tokens > 0]
            if not victims:
                return
            draft.preempt(victims[-1])
            waiting.remove(victims[-1])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(scenes(), st.integers(1, 200), st.integers(1, 12), st.data())
def test_continuous_batching_equals_its_naive_form(
    view: FakeGroup, max_num_batched_tokens: int, max_num_seqs: int, data: st.DataObject
) -> None:
    view.max_num_batched_tokens = max_num_batched_tokens
    view.max_num_seqs = max_num_seqs
    order = data.draw(st.permutations(by_id(view)))
    fast, slow = Draft(view), Draft(view)
    continuous_batch(fast, order)
    naive_continuous_batch(slow, list(order))
    assert fast.decision() == slow.decision()
    assert Counter(fast.decision().preempt) == Counter(slow.decision().preempt)


# ---- what a draft is written on, while it is served ----


class Suspicious:
    """Preempts and pauses at random by `Draft`; whenever asked, compares what it is shown twice."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.asked = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Any order, often cut short; steady where that is no more than a promise."""
        self.asked += 1
        table, requests = view.table, list(view.requests.values())
        assert numbers(requests) == table.id.tolist()
        assert [r.kv_tokens for r in requests] == table.kv_tokens.tolist()
        assert [r.generated_tokens for r in requests] == table.generated_tokens.tolist()
        assert [r.context_tokens for r in requests] == (
            table.prompt_tokens + table.generated_tokens
        ).tolist()
        assert [view.kv.holding(r.facts.id) for r in requests] == table.kv_tokens.tolist()
        assert view.kv.problems() == []
        for name in ("kv_tokens", "context_tokens", "facts"):
            with pytest.raises(AttributeError):
                setattr(requests[0], name, 7)
        draft = Draft(view)
        order = self._rng.sample(requests, len(requests))
        if self._rng.random() < 0.1 and order[0].kv_tokens:
            draft.preempt(order.pop(0))
        continuous_batch(draft, order, budget=self._rng.choice([None, None, 9]))
        steady = sum(map(draft.runs, requests)) == len(requests) and all(map(is_decode, requests))
        return draft.decision(steady=steady, wake_s=view.now_s + 0.7)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([12, 20, 200]))
def test_views_tables_and_ledger_tell_the_same(seed: int, blocks: int) -> None:
    """Requests hold their tokens as numbers of their own, through preemptions and long runs too."""
    rng = Random(seed)
    load = workload(
        [rng.randint(1, 60) for _ in range(12)],
        [rng.randint(1, 40) for _ in range(12)],
        sorted(rng.choice([0.0, 0.3, rng.random() * 3]) for _ in range(12)),
    )
    policy = Suspicious(seed)
    frame = serve(load, policy, costs=LinearCosts(blocks=blocks, load=0.0), tokens=64).requests
    assert frame["output_tokens"].tolist() == load.output_tokens.tolist()
    assert policy.asked > 12
