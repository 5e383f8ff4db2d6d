"""Batches of one service and one phase, each rule by hand.

KV is in bytes: a token of `chat` takes 1, of `code` 3, so that blocks of 16 tokens take 16 and 48.
"""

from dataclasses import replace

import numpy as np
import pytest

from harness.core.checks import check
from harness.engines.told_keys import Heard, ToldKeys
from harness.interface.decisions import (
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.entities import RequestId, ServiceId
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.fakes import ALL, CHAT, CODE, FakeScene, launched
from harness.tests.support.serving import rule

RULE = rule(max_num_seqs=4, tokens=100)
DECODES_FIRST = replace(RULE, prompts_first=False)
RECOMPUTE = PreemptionMode.RECOMPUTE
SLOTS = (Displaced.PAUSE, Displaced.RECOMPUTE)


def a_scene(blocks: int = 100) -> FakeScene:
    """A group of both services with KV for so many blocks of `chat`, a third of `code`."""
    return FakeScene(blocks, services=(CHAT, CODE), kv_bytes_per_token={CODE: 3})


def filled(scene: FakeScene, order: PriorityOrder, wake_s: float | None = None) -> Decision:
    """One batch of the order, which is legal, as what it means is."""
    view = scene.view()
    assert check(Decision(priority_order=order), view, supports=ALL) == []
    decision = ToldKeys().batch(view, order, Heard(), wake_s)
    assert check(decision, view, supports=ALL) == []
    return decision


def latest_first(table: RequestTable) -> Floats:
    return -table.arrival_s


def code_first(table: RequestTable) -> Floats:
    return np.where(table.service == table.services.index(CODE), 0.0, 1.0)


# ---- which service, which phase ----


@pytest.mark.parametrize("displaces", [None, *SLOTS])
def test_a_batch_is_of_the_service_of_the_first_request(displaces: Displaced | None) -> None:
    """r1 and r3 of `chat` decode; by the key of its service, r2 of `code` does."""
    scene = a_scene()
    for service in (CHAT, CODE, CHAT):
        scene.decoding(20, service=service)
    assert launched(filled(scene, PriorityOrder(None, RULE, displaces))) == {1: 1, 3: 1}
    assert launched(filled(scene, PriorityOrder(code_first, RULE, displaces))) == {2: 1}


@pytest.mark.parametrize("displaces", [None, *SLOTS])
@pytest.mark.parametrize(("first", "batch"), [(True, {3: 30}), (False, {1: 1, 4: 1})])
def test_which_phase_comes_first(
    displaces: Displaced | None, first: bool, batch: dict[int, int]
) -> None:
    """Of `chat` r1 decodes, r3 is a prompt and r4 decodes; r2 of `code` has to wait."""
    scene = a_scene()
    scene.decoding(20)
    scene.add(10, service=CODE)
    scene.add(30)
    scene.decoding(20)
    order = PriorityOrder(None, replace(RULE, prompts_first=first), displaces)
    assert launched(filled(scene, order)) == batch


@pytest.mark.parametrize("services", [(CHAT,), (CHAT, CODE)])
@pytest.mark.parametrize("displaces", [None, *SLOTS])
def test_a_prompt_that_is_first_runs_with_those_behind_it(
    services: tuple[ServiceId, ...], displaces: Displaced | None
) -> None:
    """Latest first, r4 and r2 are prompts; the decode of r3 between them waits."""
    scene = FakeScene(100, services=services)
    scene.decoding(20)
    scene.add(40)
    scene.decoding(20)
    scene.add(30)
    order = PriorityOrder(latest_first, DECODES_FIRST, displaces)
    assert launched(filled(scene, order)) == {4: 30, 2: 40}


# ---- without displacing ----


def test_a_service_that_can_run_nothing_is_passed_over() -> None:
    """r1 of `code` needs 2 x 48 of 80 free bytes: r2 of `chat`, behind it, is admitted."""
    scene = a_scene(blocks=7)
    scene.add(20, service=CODE)
    scene.add(20)
    scene.decoding(20)
    decision = filled(scene, PriorityOrder(None, RULE))
    assert launched(decision) == {2: 20}
    assert decision.preempt == {}


@pytest.mark.parametrize(("tokens", "batch"), [(16, {1: 16}), (17, {2: 16})])
def test_the_watermark_is_in_whole_blocks_of_the_newcomers_service(
    tokens: int, batch: dict[int, int]
) -> None:
    """Of 10 blocks of `chat`, floor(0.3 x 10) = 3 stay free; of 3 of `code`, floor(0.9) = 0.

    r3 leaves 160 - 96 = 64 bytes. r1 may take a block of `chat` and leave 48, but not two; then r2
    may take 48 and leave 16.
    """
    scene = a_scene(blocks=10)
    scene.add(tokens)
    scene.add(16, service=CODE)
    scene.decoding(20, service=CODE)
    assert launched(filled(scene, PriorityOrder(None, replace(RULE, watermark=0.3)))) == batch


def test_decodes_take_kv_from_the_end_of_the_order_whatever_the_service() -> None:
    """r1 and r3 (16 bytes each) and r2 (96) leave 16 of 144 bytes, and r1 and r2 need a block.

    r1 takes those 16. Where r2 comes first, it needs 48: r3 gives way, then r1.
    """
    scene = a_scene(blocks=9)
    scene.decoding(16)
    scene.decoding(32, service=CODE)
    scene.decoding(10)
    decision = filled(scene, PriorityOrder(None, RULE))
    assert (launched(decision), decision.preempt) == ({1: 1, 3: 1}, {})
    decision = filled(scene, PriorityOrder(code_first, RULE))
    assert launched(decision) == {2: 1}
    assert list(decision.preempt.items()) == [(3, RECOMPUTE), (1, RECOMPUTE)]
    scene.capacity_blocks = 8
    decision = filled(scene, PriorityOrder(None, RULE))
    assert (launched(decision), decision.preempt) == ({1: 1}, {3: RECOMPUTE})


def test_a_decode_at_the_end_gives_way_itself_and_nothing_is_admitted_in_its_place() -> None:
    """80 bytes: r2 holds 32, r3 48. r1 cannot be admitted, r3 needs 48 more, which r2 is not for.

    Then r2 decodes. r4 would fit what r3 has left, and is admitted in the next iteration.
    """
    scene = a_scene(blocks=5)
    scene.add(10, service=CODE)
    scene.decoding(20)
    scene.decoding(16, service=CODE)
    scene.add(5)
    decision = filled(scene, PriorityOrder(None, RULE))
    assert (launched(decision), decision.preempt) == ({2: 1}, {3: RECOMPUTE})
    scene.requests[RequestId(3)].kv_tokens = 0
    assert launched(filled(scene, PriorityOrder(None, RULE))) == {1: 10}


def test_each_service_has_max_num_seqs_holders() -> None:
    """Two of `chat` hold KV, which bars r4 and not r3."""
    scene = a_scene()
    scene.decoding(20)
    scene.decoding(20)
    scene.add(20, service=CODE)
    scene.add(20)
    two = replace(RULE, max_num_seqs=2)
    assert launched(filled(scene, PriorityOrder(None, two))) == {1: 1, 2: 1}
    assert launched(filled(scene, PriorityOrder(code_first, two))) == {3: 20}


# ---- displacing ----


@pytest.mark.parametrize(
    ("displaces", "preempted"), [(Displaced.PAUSE, [4]), (Displaced.RECOMPUTE, [3, 4])]
)
def test_slots_are_counted_in_bytes_over_all_services(
    displaces: Displaced, preempted: list[int]
) -> None:
    """Of 144 bytes r1's context takes 2 x 16 and r2's 2 x 48; r3's 2 x 16 are too many.

    r3 holds 16 bytes, which are left; r4 holds 16 more.
    """
    scene = a_scene(blocks=9)
    scene.decoding(20)
    scene.add(20, service=CODE)
    scene.decoding(16)
    scene.decoding(5)
    decision = filled(scene, PriorityOrder(None, RULE, displaces))
    assert (launched(decision), list(decision.preempt)) == ({1: 1}, preempted)
    decision = filled(scene, PriorityOrder(code_first, RULE, displaces))
    assert (launched(decision), list(decision.preempt)) == ({2: 20}, preempted)


@pytest.mark.parametrize(
    ("service", "held", "tokens", "batch"),
    [(CHAT, 80, 16, {2: 16}), (CHAT, 80, 17, {1: 1}), (CODE, 20, 16, {2: 16})],
)
def test_the_watermark_of_slots_is_in_blocks_of_the_newcomers_service(
    service: ServiceId, held: int, tokens: int, batch: dict[int, int]
) -> None:
    """Beside r1's 96 of 160 bytes 3 blocks of `chat` stay free, or none of `code`."""
    scene = a_scene(blocks=10)
    scene.decoding(held, service=service)
    scene.add(tokens, service=service)
    order = PriorityOrder(None, replace(RULE, watermark=0.3), Displaced.PAUSE)
    assert launched(filled(scene, order)) == batch


# ---- how long a batch stays ----


def two_decode(scene: FakeScene) -> None:
    """One of each service."""
    scene.decoding(20)
    scene.decoding(20, service=CODE)


# ---- services that starve ----


def starves(
    scene: FakeScene, ran_s: dict[ServiceId, float], displaces: Displaced | None
) -> Decision:
    """By arrival at 10 s, where `chat` is starved after 4 s and `code` after 6 s."""
    after_s = {CHAT: 4.0, CODE: 6.0}
    order = PriorityOrder(None, RULE, displaces, starves_after_s=after_s.__getitem__)
    told = ToldKeys(ran_s=ran_s)
    return told.batch(scene.view(), order, Heard())


@pytest.mark.parametrize("displaces", [None, *SLOTS])
@pytest.mark.parametrize(
    ("chat_s", "code_s", "batch", "wake_s"),
    [
        (9.0, 5.0, {1: 1}, 11.0),
        (9.0, 4.0, {2: 1}, None),
        (6.0, 3.0, {1: 1}, None),
        (9.0, 9.0, {1: 1}, 15.0),
    ],
)
def test_requests_of_starved_services_come_first(
    displaces: Displaced | None,
    chat_s: float,
    code_s: float,
    batch: dict[int, int],
    wake_s: float | None,
) -> None:
    """Services ran last at these times. Where r2 of `code` will be starved, r1 runs until then."""
    scene = a_scene()
    two_decode(scene)
    decision = starves(scene, {CHAT: chat_s, CODE: code_s}, displaces)
    assert launched(decision) == batch
    if displaces is None:
        assert decision.steady is (wake_s is not None)
        assert decision.wake_s == (wake_s and pytest.approx(wake_s, abs=1e-5))


def test_slots_and_kv_are_those_of_starved_services_first() -> None:
    """112 bytes: r1 and r2 of `chat` hold 64, r3 of `code` needs 96 and displaces both."""
    scene = a_scene(blocks=7)
    scene.decoding(20)
    scene.decoding(20)
    scene.add(20, service=CODE)
    assert launched(starves(scene, {CHAT: 9.0, CODE: 5.0}, Displaced.RECOMPUTE)) == {1: 1, 2: 1}
    decision = starves(scene, {CHAT: 9.0, CODE: 1.0}, Displaced.RECOMPUTE)
    assert (launched(decision), list(decision.preempt)) == ({3: 20}, [1, 2])


def test_a_service_that_is_starved_at_once_is_refused() -> None:
    decision = Decision(priority_order=PriorityOrder(None, RULE, starves_after_s=lambda _: 0.0))
    assert check(decision, a_scene().view(), supports=ALL) == [
        f"starves_after_s of {service} is 0.0, it must be above 0" for service in ("chat", "code")
    ]


# ---- what is refused ----

REFUSED = {
    "rule.chunked_prefill": PriorityOrder(None, rule(chunked_prefill=True)),
    "rule.pads_prompts": PriorityOrder(None, replace(DECODES_FIRST, pads_prompts=True)),
    "reserve_tokens": PriorityOrder(None, DECODES_FIRST, reserve_tokens=64),
    "displaces=swap": PriorityOrder(None, DECODES_FIRST, Displaced.SWAP),
    "gives_way=swap": PriorityOrder(None, DECODES_FIRST, gives_way=PreemptionMode.SWAP),
    "request-level batches": PriorityOrder(
        None, StaticBatching(max_num_seqs=2, max_wait_s=0.0, refills=False, pads_prompts=False)
    ),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_a_shared_group_does_not_offer_is_refused(field: str) -> None:
    decision = Decision(priority_order=REFUSED[field])
    assert check(decision, a_scene().view(), supports=ALL) == [
        f"a priority order with {field} in g (chat, code), which is not supported with 2 services"
    ]
    problems = check(decision, FakeScene(100).view(), supports=ALL)
    if field in ("rule.chunked_prefill", "request-level batches"):
        assert problems == []
    else:
        assert problems == [
            f"a priority order with {field} in g (chat), which is not supported with"
            " rule.prompts_first off"
        ]


def test_chunked_prefill_has_no_phases() -> None:
    with pytest.raises(ValueError, match=r"rule.prompts_first is False and rule.chunked_prefill"):
        replace(rule(chunked_prefill=True), prompts_first=False)
