"""The quick look at the commonest decisions against the rules one by one."""

from math import nan
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.checks import _broken_rules, check
from harness.core.ledger_problems import problems
from harness.interface.decisions import (
    Batch,
    Decision,
    PreemptionMode,
    Reservation,
    Until,
)
from harness.interface.entities import RequestId
from harness.tests.support.fakes import ALL, CHAT, CODE, FakeGroup, FakeScene

R1, R2, R3, R4, R99 = (RequestId(number) for number in (1, 2, 3, 4, 99))


def an_idle_view(*, promises: bool, away: bool = False) -> FakeGroup:
    """r1 and r3 decode on 32 and 16 tokens, r2 misses 20, r4 misses 100; 9 blocks.

    With promises, r2 borrows of r1. Where KV is `away`, 36 tokens of r4 are in host memory, which
    takes 20 more.
    """
    scene = FakeScene(capacity_blocks=9)
    scene.decoding(32).reservation = Reservation(48) if promises else None
    scene.add(20).reservation = Reservation(0, 16, R1) if promises else None
    scene.decoding(16)
    scene.add(100).swapped_tokens = 36 if away else 0
    view = scene.view()
    view.free_host_bytes = 20
    view.max_num_seqs = 3
    view.max_num_batched_tokens = 118
    return view


LIKELY = {R1: [1], R2: [20, 20, 4], R3: [1], R4: [100, 64, 3], R99: [1]}
"""Tokens that a batch might well compute."""


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """About one in three is legal; the others break a rule or two."""

    def oddly(usual: object, *odd: object) -> Any:
        return draw(st.sampled_from([usual] * 12 + list(odd)))

    names = st.sampled_from([R1, R2, R3, R4] * 4 + [R99])
    batches = []
    for _ in range(oddly(1, 0, 2)):
        tokens = {
            name: oddly(draw(st.sampled_from(LIKELY[name])), -1, 0, 101)
            for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))
        }
        batches.append(
            Batch(
                oddly(CHAT, CODE),
                oddly(tokens, {}),
                oddly(1.0, 0.5, nan),
                oddly(Until.ITERATION, Until.ALL),
            )
        )
    preempted = draw(st.lists(names, max_size=2, unique=True))
    return Decision(
        {name: oddly(PreemptionMode.RECOMPUTE, PreemptionMode.SWAP) for name in preempted},
        oddly({}, {R3: Reservation(32)}),
        tuple(batches),
        oddly(None, 11.0, 9.0, nan),
        swap_in=oddly(frozenset(), frozenset({R4}), frozenset({R4}), frozenset({R1})),
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(decisions(), st.booleans(), st.booleans(), st.booleans())
def test_the_quick_look_passes_nothing_that_breaks_a_rule(
    decision: Decision, promises: bool, swaps: bool, away: bool
) -> None:
    view = an_idle_view(promises=promises, away=away)
    supports = ALL if swaps else frozenset()
    assert check(decision, view, supports=supports) == _broken_rules(decision, view, supports)
    assert problems(view.kv) == []
