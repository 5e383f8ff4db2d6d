"""Orders that displace, keys that move, and KV that is set aside, each rule by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from harness.core.checks import check
from harness.engines.told_keys import Heard, ToldKeys
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
)
from harness.interface.moving import MovingKey, Progress
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.fakes import ALL, FakeScene, launched
from harness.tests.support.serving import SERVICE, rule

CHUNKED = ContinuousBatching(
    chunked_prefill=True,
    pads_prompts=False,
    max_num_seqs=3,
    max_num_batched_tokens=40,
    max_padding_tokens=0,
    watermark=0.0,
)
WHOLE = replace(CHUNKED, chunked_prefill=False, max_num_batched_tokens=100)


def latest_first(table: RequestTable) -> Floats:
    return -table.arrival_s


def filled(scene: FakeScene, order: PriorityOrder) -> Decision:
    """One batch of the order, which must be legal."""
    view = scene.view()
    decision = ToldKeys().batch(view, order, Heard())
    assert check(decision, view, supports=ALL) == []
    return decision


@pytest.mark.parametrize("rule", [CHUNKED, WHOLE])
@pytest.mark.parametrize("how", Displaced)
def test_who_comes_first_has_a_slot_and_holders_behind_lose_theirs(
    rule: ContinuousBatching, how: Displaced
) -> None:
    """Four decode, three have slots: r1, the last in order, pauses, is preempted or swapped out."""
    scene = FakeScene(capacity_blocks=20)
    for _ in range(4):
        scene.decoding(20)
    decision = filled(scene, PriorityOrder(latest_first, rule, how))
    assert launched(decision) == {4: 1, 3: 1, 2: 1}
    by = {Displaced.RECOMPUTE: PreemptionMode.RECOMPUTE, Displaced.SWAP: PreemptionMode.SWAP}
    assert decision.preempt == ({1: by[how]} if how in by else {})


def test_a_newcomer_ahead_takes_the_kv_of_the_last_in_order() -> None:
    """r2 (3 blocks) and r1 (2) fill five blocks; r3 (2) comes before both, so r1 must go."""
    scene = FakeScene(capacity_blocks=5)
    scene.decoding(31)
    scene.decoding(40)
    scene.add(20)
    decision = filled(scene, PriorityOrder(latest_first, CHUNKED, Displaced.PAUSE))
    assert decision.preempt == {1: PreemptionMode.RECOMPUTE}
    assert launched(decision) == {2: 1, 3: 20}


def test_the_paused_keep_their_kv_while_there_is_room() -> None:
    """Slots: r5 to r3 at 2 blocks each. Of 9 blocks 3 are left: r2 (2) keeps its KV, r1 (2) not."""
    scene = FakeScene(capacity_blocks=9)
    for _ in range(5):
        scene.decoding(20)
    decision = filled(scene, PriorityOrder(latest_first, CHUNKED, Displaced.PAUSE))
    assert launched(decision) == {5: 1, 4: 1, 3: 1}
    assert decision.preempt == {1: PreemptionMode.RECOMPUTE}


def test_the_watermark_stays_free_before_newcomers_alone() -> None:
    """Of 10 blocks floor(0.25 x 10) = 2 stay free: the decode of 8 blocks runs, no prompt of 1."""
    order = PriorityOrder(latest_first, replace(CHUNKED, watermark=0.25), Displaced.RECOMPUTE)
    scene = FakeScene(capacity_blocks=10)
    scene.decoding(127)
    assert launched(filled(scene, order)) == {1: 1}
    scene.add(5)
    assert launched(filled(scene, PriorityOrder(None, order.rule, Displaced.RECOMPUTE))) == {1: 1}


def test_chunks_share_what_decodes_leave_in_order() -> None:
    """40 tokens: one decode, 30 of r3's prompt, 9 of r2's."""
    scene = FakeScene(capacity_blocks=20)
    scene.decoding(20)
    scene.add(50)
    scene.add(30)
    decision = filled(scene, PriorityOrder(latest_first, CHUNKED, Displaced.PAUSE))
    assert launched(decision) == {1: 1, 3: 30, 2: 9}


@pytest.mark.parametrize("how", [None, *Displaced])
def test_what_is_reserved_is_promised_at_admission_and_bounds_it(how: Displaced | None) -> None:
    """Of 10 blocks 4 each for 64 tokens: two are admitted, the third waits."""
    scene = FakeScene(capacity_blocks=10)
    for _ in range(3):
        scene.add(10)
    decision = filled(scene, PriorityOrder(None, CHUNKED, how, 64))
    assert launched(decision) == {1: 10, 2: 10}
    assert decision.reserve == {1: Reservation(64), 2: Reservation(64)}


def test_nothing_is_reserved_where_the_policy_has_no_number() -> None:
    scene = FakeScene(capacity_blocks=10)
    scene.add(10)
    scene.add(10)
    order = PriorityOrder(None, CHUNKED, None, lambda t: np.where(t.id == 1, np.nan, 20.5))
    assert filled(scene, order).reserve == {2: Reservation(21)}


# ---- keys that move ----


def progressed(scene: FakeScene, *, generated: list[int], gpu_s: list[float]) -> RequestTable:
    for tokens, seconds in zip(generated, gpu_s, strict=True):
        scene.add(10, generated=tokens).gpu_s = seconds
    return scene.view().table


def test_a_moving_key_goes_by_its_piece() -> None:
    """Up to 4 tokens, or seconds, 10 - p; then 3 + 2 p."""
    table = progressed(FakeScene(9), generated=[0, 3, 4, 8], gpu_s=[4.5, 4.0, 3.75, 0.0])
    columns = np.array([[10.0, 3.0]] * 4), np.array([[-1.0, 2.0]] * 4), np.array([[4.0, 9.0]] * 4)
    assert MovingKey(*columns).at(table).tolist() == [10.0, 7.0, 11.0, 19.0]
    assert MovingKey(*columns, Progress.GPU_S).at(table).tolist() == [12.0, 11.0, 6.25, 10.0]


def by_generated(table: RequestTable) -> MovingKey:
    one = np.ones((len(table.id), 1))
    return MovingKey(value=0.0 * one, slope=one, until=5.0 * one)


def test_a_key_that_has_ended_is_refused() -> None:
    scene = FakeScene(capacity_blocks=9)
    scene.add(10, generated=5)
    with pytest.raises(ValueError, match="the key of r1 ends at 5 tokens generated, it has 5"):
        ToldKeys().ordered(scene.view(), PriorityOrder(by_generated, CHUNKED), Heard())


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ((np.zeros((2, 1)), np.zeros((2, 2)), np.ones((2, 1))), "each needs a row per request"),
        ((np.zeros(2), np.zeros(2), np.ones(2)), "each needs a row per request"),
        ((np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2))), "must ascend"),
    ],
)
def test_pieces_that_make_no_key_are_refused(
    columns: tuple[Floats, Floats, Floats], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        MovingKey(*columns)


# ---- what checks refuse ----


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (PriorityOrder(None, CHUNKED, None, 0), "a priority order reserves 0 tokens, at least 1"),
        (
            PriorityOrder(
                None,
                StaticBatching(max_num_seqs=2, max_wait_s=0.0, refills=False, pads_prompts=False),
                Displaced.PAUSE,
            ),
            "a priority order displaces or reserves under static batching",
        ),
    ],
)
def test_an_order_that_cannot_be_followed_is_told(order: PriorityOrder, sentence: str) -> None:
    view = FakeScene(capacity_blocks=9).view()
    (problem,) = check(Decision(priority_order=order), view, supports=ALL)
    assert problem.startswith(sentence)


def test_a_piece_must_end_at_a_number() -> None:
    one = np.zeros((3, 1))
    with pytest.raises(ValueError, match="until must be numbers, inf for never"):
        MovingKey(value=one, slope=one, until=one * np.nan)


RESERVED: dict[str, Callable[[RequestTable], Floats]] = {
    "reserve_tokens of shape": lambda table: table.arrival_s[:1],
    "reserve_tokens of r1 are inf": lambda table: table.arrival_s + np.inf,
    "reserve_tokens of r1 are 1e.18, not below": lambda table: table.arrival_s + 1e18,
}


@pytest.mark.parametrize("said", RESERVED)
def test_what_is_set_aside_is_a_number_per_request(said: str) -> None:
    order = PriorityOrder(None, rule(), reserve_tokens=RESERVED[said])
    with pytest.raises(ValueError, match=said):
        order.reserved_tokens(_table())


def _table() -> RequestTable:
    two = np.array([1, 2], np.int64)
    none = np.zeros(2)
    return RequestTable(
        two, none, two, 0 * two, 0 * two, none, two, none, none, 0 * two, (SERVICE,)
    )
