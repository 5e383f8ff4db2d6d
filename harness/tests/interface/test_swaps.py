"""KV that goes to host memory and comes back: what a draft does, and what is refused, by hand."""

import pytest

from harness.interface.checks import check
from harness.interface.decisions import (
    Batch,
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
)
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.filling import continuous_batch, is_decode
from harness.interface.views import missing_tokens
from harness.tests.support.fakes import ALL, CHAT, FakeGroup, FakeScene, by_id, launched
from harness.tests.support.serving import rule

R1, R2, R3 = (RequestId(number) for number in (1, 2, 3))
SWAP = PreemptionMode.SWAP


def a_view(*, free_host_bytes: int = 40) -> FakeGroup:
    """r1 decodes on 32 tokens, r2 would on 40 that are in host memory, r3 is new; 6 blocks."""
    scene = FakeScene(capacity_blocks=6)
    scene.decoding(32)
    scene.add(40, generated=1).swapped_tokens = 40
    scene.add(20)
    view = scene.view()
    view.free_host_bytes = free_host_bytes
    return view


def test_who_has_its_kv_in_host_memory_misses_only_the_rest() -> None:
    r2 = a_view().requests[R2]
    assert missing_tokens(r2) == 1
    assert is_decode(r2)


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


def test_what_finds_no_blocks_stays_where_it_is() -> None:
    """r3 and r1 take 5 of the 6 blocks; r2 needs 3."""
    draft = Draft(view := a_view())
    r1, r2, r3 = by_id(view)
    assert draft.try_run(r3, 20)
    assert draft.try_run(r1, 1)
    assert not draft.try_run(r2, 1)
    assert not draft.try_swap_in(r2)
    assert draft.kv.holding(R2) == 0
    assert draft.decision().swap_in == frozenset()


def test_kv_may_come_back_ahead_of_its_turn() -> None:
    draft = Draft(view := a_view())
    r1, r2, _ = by_id(view)
    assert draft.try_swap_in(r2)
    assert not draft.try_swap_in(r2)
    assert not draft.try_swap_in(r1)
    assert draft.try_run(r1, 1)
    decision = draft.decision()
    assert (launched(decision), decision.swap_in) == ({1: 1}, {2})
    assert check(decision, view, supports=ALL) == []


def test_room_in_host_memory_is_seen_and_taken() -> None:
    """32 of 40 bytes; what r2 leaves there is not free yet."""
    draft = Draft(view := a_view())
    r1, r2, _ = by_id(view)
    assert draft.try_swap_in(r2)
    assert draft.host_bytes_left == 40
    assert draft.can_swap_out(r1)
    assert not draft.can_swap_out(r2)
    draft.preempt(r1, SWAP)
    assert draft.host_bytes_left == 8
    assert check(draft.decision(), view, supports=ALL) == []


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
        continuous_batch(draft, by_id(view)[::-1], how=SWAP)
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
