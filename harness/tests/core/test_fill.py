"""Filling a batch as a priority order asks, each rule by hand."""

from dataclasses import replace

import numpy as np
import pytest

from harness.core.checks import check
from harness.core.draft import Draft
from harness.core.fill import fill, run_in_order
from harness.engines.told_keys import Heard, ToldKeys
from harness.interface.decisions import (
    Batch,
    ContinuousBatching,
    Decision,
    PreemptionMode,
    PriorityOrder,
)
from harness.interface.entities import RequestId
from harness.tests.support.fakes import (
    ALL,
    CHAT,
    CODE,
    FakeScene,
    by_id,
    launched,
    numbers,
)

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


def filled(scene: FakeScene, rule: ContinuousBatching) -> Decision:
    """Fill by the rule, oldest first; the result must be legal."""
    view = scene.view()
    draft = Draft(view)
    fill(draft, by_id(view), PriorityOrder(None, rule))
    decision = draft.decision()
    assert check(decision, view, supports=ALL) == []
    return decision


# ---- prompts or decodes ----


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


# ---- chunked prefill ----


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


def test_a_chunked_rule_that_pads_is_refused() -> None:
    with pytest.raises(ValueError, match="a chunked-prefill batch does not pad its prompts"):
        filled(FakeScene(capacity_blocks=1), replace(CHUNKED, pads_prompts=True))


# ---- priority orders ----


def test_a_key_must_give_one_number_per_request() -> None:
    scene = FakeScene(capacity_blocks=9)
    scene.add(1)
    broken = PriorityOrder(lambda table: np.zeros(3), CHUNKED)
    with pytest.raises(ValueError, match=r"key of shape \(3,\) for 1 requests"):
        ToldKeys().ordered(scene.view(), broken, Heard())


def test_who_has_no_key_yet_comes_last() -> None:
    """A NaN is as good as infinity: the ids of both decide."""
    scene = FakeScene(capacity_blocks=9)
    for _ in range(4):
        scene.add(1)
    partly = PriorityOrder(lambda table: np.array([np.nan, np.inf, np.nan, 3.0]), CHUNKED)
    assert numbers(ToldKeys().ordered(scene.view(), partly, Heard())) == [4, 1, 2, 3]


@pytest.mark.parametrize("rule", [PROMPTS_FIRST, CHUNKED])
def test_a_rule_needs_a_token_for_everybody(rule: ContinuousBatching) -> None:
    sentence = r"rule.max_num_batched_tokens is 7, it must be at least rule.max_num_seqs, 8: every"
    with pytest.raises(ValueError, match=sentence):
        replace(rule, max_num_batched_tokens=7)


# ---- by an order that a policy gives ----


def test_a_preemptive_order_preempts_from_behind() -> None:
    """r4 needs 3 blocks of 4: r3 goes first, then r2; r1, which stands before it, is kept."""
    scene = FakeScene(capacity_blocks=4)
    first, second, third = scene.decoding(10), scene.decoding(16), scene.decoding(16)
    urgent = scene.add(48)
    draft = Draft(scene.view())
    run_in_order(draft, [first, urgent, second, third], how=PreemptionMode.SWAP)
    decision = draft.decision()
    assert launched(decision) == {1: 1, 4: 48}
    assert list(decision.preempt.items()) == [(3, PreemptionMode.SWAP), (2, PreemptionMode.SWAP)]


def test_victims_give_way_in_place_of_the_order() -> None:
    """r4 needs 3 blocks, 1 is free: the last of the victims goes first; r3 is none and runs."""
    both = {4: 48, 3: 1}
    for victims, gone, runs in (([0, 1], [2, 1], both), ([0], [1], {}), ([], [], {})):
        scene = FakeScene(capacity_blocks=4)
        requests = [scene.decoding(10), scene.decoding(16), scene.decoding(15), scene.add(48)]
        draft = Draft(scene.view())
        order = [requests[3], requests[2]]
        run_in_order(draft, order, victims=[requests[i] for i in victims])
        assert (list(draft.decision().preempt), launched(draft.decision())) == (gone, runs)


def test_a_budget_cuts_the_last_prompt() -> None:
    scene = FakeScene(capacity_blocks=9)
    order = [scene.decoding(16), scene.add(20), scene.add(20), scene.add(20)]
    draft = Draft(scene.view())
    run_in_order(draft, order, budget=30)
    assert launched(draft.decision()) == {1: 1, 2: 20, 3: 9}


def test_other_services_and_running_requests_are_passed_over() -> None:
    scene = FakeScene(capacity_blocks=9, services=(CHAT, CODE))
    order = [scene.add(8), scene.add(8, service=CODE), scene.add(8), scene.add(8)]
    order[2].is_running = True
    view = scene.view()
    view.in_flight = (Batch(CHAT, {RequestId(3): 8}, 0.5),)
    draft = Draft(replace(view, free_share=0.5))
    run_in_order(draft, order)
    assert launched(draft.decision()) == {1: 8, 4: 8}
