"""Whatever is drafted or filled on random groups is legal, and equals its naive form."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.checks import check
from harness.interface.decisions import (
    Batch,
    ContinuousBatching,
    PreemptionMode,
    Reservation,
)
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.filling import (
    continuous_batch,
    fill_continuous,
    is_decode,
)
from harness.interface.views import RequestView
from harness.tests.support.fakes import (
    ALL,
    CHAT,
    CODE,
    FakeGroup,
    FakeRequest,
    FakeScene,
    by_id,
    launched,
    numbers,
)

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
