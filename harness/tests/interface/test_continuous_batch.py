"""Filling a draft from an order, by hand, and that it looks at every request but a few times."""

from dataclasses import replace

from harness.interface.decisions import (
    Batch,
    PreemptionMode,
)
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.filling import (
    continuous_batch,
)
from harness.tests.support.fakes import (
    CHAT,
    CODE,
    FakeScene,
    launched,
)


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


def test_victims_give_way_in_place_of_the_order() -> None:
    """r4 needs 3 blocks, 1 is free: the last of the victims goes first; r3 is none and runs."""
    both = {4: 48, 3: 1}
    for victims, gone, runs in (([0, 1], [2, 1], both), ([0], [1], {}), ([], [], {})):
        scene = FakeScene(capacity_blocks=4)
        requests = [scene.decoding(10), scene.decoding(16), scene.decoding(15), scene.add(48)]
        draft = Draft(scene.view())
        order = [requests[3], requests[2]]
        continuous_batch(draft, order, victims=[requests[i] for i in victims])
        assert (list(draft.decision().preempt), launched(draft.decision())) == (gone, runs)


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
