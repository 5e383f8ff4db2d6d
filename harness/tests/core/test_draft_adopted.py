"""The ledger of a draft in place of the decision checked and applied once more."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.checks import check
from harness.core.draft import Draft, after
from harness.core.kv_ledger import KvLedger
from harness.core.ledger_problems import problems
from harness.interface.decisions import Decision, Reservation
from harness.interface.entities import RequestId
from harness.tests.support.drafts import one_line, scenes
from harness.tests.support.fakes import ALL, CHAT, FakeGroup, FakeScene, by_id


def _content(kv: KvLedger, view: FakeGroup) -> list[object]:
    """All that a ledger says of a group's requests."""
    each = [
        (kv.holding(r), kv.reservation(r), kv.borrowers(r), kv.guests(r)) for r in view.requests
    ]
    return [*each, *(kv.free_blocks(service) for service in view.services), problems(kv)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(scenes(promises=True), st.data())
def test_the_ledger_of_a_draft_is_the_one_that_its_decision_leads_to(
    view: FakeGroup, data: st.DataObject
) -> None:
    draft = Draft(view)
    for _ in range(data.draw(st.integers(1, 12)) if view.requests else 0):
        one_line(data, draft, data.draw(st.sampled_from(list(view.requests.values()))))
    decision = draft.decision()
    # On a copy the draft does not know itself again: there it is applied line by line.
    applied = after(decision, view.kv.copy(), view.requests)
    assert check(replace(decision, draft=None), view, supports=ALL) == []
    adopted = after(decision, view.kv, view.requests)
    assert _content(adopted, view) == _content(applied, view)
    request = next(iter(view.requests), None)
    if request is not None:
        for kv in (adopted, applied):
            kv.free(request)
        assert _content(adopted, view) == _content(applied, view)


def _two_decoding(*, generated: int = 1) -> FakeGroup:
    """r1 holds 16 tokens and r2 32; 9 blocks."""
    scene = FakeScene(capacity_blocks=9)
    scene.add(16, 16, generated=generated)
    scene.decoding(32)
    return scene.view()


def _written(view: FakeGroup) -> tuple[Draft, Decision]:
    draft = Draft(view)
    assert all(draft.try_run(request, 1) for request in by_id(view))
    return draft, draft.decision()


@pytest.mark.parametrize("change", ["tokens", "ledger", "request"])
def test_what_the_draft_has_not_seen_to_is_checked(change: str) -> None:
    """The decision says one thing too many; only a draft of this very state would be believed."""
    view = _two_decoding()
    draft, decision = _written(view)
    assert draft.wrote(decision, view.kv)
    expected: list[str] = []
    if change == "tokens":
        (batch,) = decision.launch
        decision = replace(decision, launch=(replace(batch, tokens={RequestId(1): 5}),))
        expected = ["r1 would compute 5 tokens but misses only 1"]
    elif change == "ledger":
        view.kv.reserve(RequestId(1), Reservation(16 * 7))
        expected = ["16 bytes over the KV capacity of 144"]
    else:
        view.requests = _two_decoding(generated=0).requests
        expected = ["r1 would compute 1 tokens but misses only 0"]
    assert check(decision, view, supports=ALL) == expected


def test_a_promise_leaves_spare_blocks() -> None:
    scene = FakeScene(capacity_blocks=6)
    first, second, third = scene.add(16), scene.add(16), scene.add(16)
    draft = Draft(scene.view())
    assert not draft.try_reserve(first, Reservation(48), spare_blocks=4)
    assert draft.kv.free_blocks(CHAT) == 6
    assert draft.try_reserve(first, Reservation(48), spare_blocks=3)
    # What takes nothing of the free space leaves as much as there was.
    assert draft.try_reserve(second, Reservation(0, 32, first.facts.id), spare_blocks=5)
    assert not draft.try_reserve(third, Reservation(16), spare_blocks=3)
    assert draft.kv.reservation(third.facts.id) is None
    assert set(draft.decision().reserve) == {1, 2}
