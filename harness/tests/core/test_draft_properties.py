"""Whatever is drafted or filled on random groups is legal, and equals its naive form."""

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.checks import check
from harness.core.draft import Draft
from harness.core.fill import (
    fill,
    is_decode,
    run_in_order,
)
from harness.core.ledger_problems import problems
from harness.interface.decisions import (
    ContinuousBatching,
    PriorityOrder,
)
from harness.interface.policies import Capability
from harness.interface.views import RequestView
from harness.tests.support.drafts import one_line, scenes
from harness.tests.support.fakes import (
    ALL,
    FakeGroup,
    by_id,
    launched,
    numbers,
)

NOTHING: frozenset[Capability] = frozenset()
"""Supported by an engine that can do nothing in particular."""


@settings(max_examples=25, deadline=None, derandomize=True)
@given(scenes(promises=True), st.data())
def test_whatever_is_drafted_is_legal(view: FakeGroup, data: st.DataObject) -> None:
    draft = Draft(view)
    for _ in range(data.draw(st.integers(1, 12)) if view.requests else 0):
        one_line(data, draft, data.draw(st.sampled_from(list(view.requests.values()))))
        assert problems(draft.kv) == []
    decision = draft.decision()
    for supports in (ALL, NOTHING):
        assert check(decision, view, supports=supports) == check(
            replace(decision, draft=None), view, supports=supports
        )
    assert check(decision, view, supports=ALL) == []
    assert problems(view.kv) == []


RULES = st.builds(
    ContinuousBatching,
    chunked_prefill=st.just(False),
    pads_prompts=st.booleans(),
    max_num_seqs=st.integers(1, 12),
    max_num_batched_tokens=st.integers(60, 150),
    max_padding_tokens=st.integers(0, 60),
    watermark=st.sampled_from([0.0, 0.01, 0.2]),
)


@settings(max_examples=25, deadline=None, derandomize=True)
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
    fill(draft, order, PriorityOrder(None, rule))
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


def naive_run_in_order(draft: Draft, order: list[RequestView]) -> None:
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


@settings(max_examples=25, deadline=None, derandomize=True)
@given(scenes(), st.integers(1, 200), st.integers(1, 12), st.data())
def test_running_in_order_equals_its_naive_form(
    view: FakeGroup, max_num_batched_tokens: int, max_num_seqs: int, data: st.DataObject
) -> None:
    view.max_num_batched_tokens = max_num_batched_tokens
    view.max_num_seqs = max_num_seqs
    order = data.draw(st.permutations(by_id(view)))
    fast, slow = Draft(view), Draft(view)
    run_in_order(fast, order)
    naive_run_in_order(slow, list(order))
    assert fast.decision() == slow.decision()
    assert Counter(fast.decision().preempt) == Counter(slow.decision().preempt)
