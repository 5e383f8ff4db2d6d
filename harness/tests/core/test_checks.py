"""Every rule broken once; each sentence names who and how many."""

from collections.abc import Callable
from dataclasses import replace
from math import nan

import numpy as np
import pytest

from harness.core.checks import check
from harness.core.ledger_problems import problems
from harness.interface.decisions import (
    Batch,
    ContinuousBatching,
    Decision,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    Until,
)
from harness.interface.entities import RequestId, ServiceId
from harness.interface.policies import Capability
from harness.tests.support.fakes import ALL, CHAT, CODE, FakeGroup, FakeScene

R1, R2, R3, R4, R99 = (RequestId(number) for number in (1, 2, 3, 4, 99))
RULE = ContinuousBatching(
    chunked_prefill=True,
    pads_prompts=False,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    max_padding_tokens=0,
    watermark=0.0,
)
BY_ARRIVAL = PriorityOrder(lambda table: table.arrival_s.astype(np.float64), RULE)


def a_view(services: tuple[ServiceId, ...] = (CHAT,)) -> FakeGroup:
    """r1 decodes on 32 tokens, r2 misses a prompt of 20, r3 runs, r4 misses 100; 10 blocks."""
    scene = FakeScene(capacity_blocks=10, services=services)
    scene.decoding(32)
    scene.add(20)
    scene.decoding(16).is_running = True
    scene.add(100)
    view = scene.view()
    view.in_flight = (Batch(CHAT, {R3: 1}, 0.25),)
    view.free_share = 0.75
    view.max_num_seqs = 3
    view.max_num_batched_tokens = 64
    return view


def run(tokens: dict[RequestId, int], gpu_share: float = 0.75) -> Decision:
    return Decision(launch=(Batch(CHAT, tokens, gpu_share),))


LEGAL = [
    Decision(),
    run({R1: 1, R2: 20}),
    run({R2: 5}),
    Decision(
        preempt={R1: PreemptionMode.SWAP},
        reserve={R2: Reservation(120)},
        launch=(Batch(CHAT, {R2: 20}, 0.5, until=Until.ALL),),
    ),
    Decision(reserve={R2: Reservation(20)}, wake_s=10.5),
    Decision(preempt={R1: PreemptionMode.RECOMPUTE}, reserve={R1: Reservation(33)}),
    Decision(launch=(Batch(CHAT, {R1: 1}, 0.5), Batch(CHAT, {R2: 20}, 0.25))),
]


@pytest.mark.parametrize("decision", LEGAL)
def test_legal_decisions_have_no_sentence(decision: Decision) -> None:
    view = a_view()
    assert check(decision, view, supports=ALL) == []
    assert problems(view.kv) == []


ILLEGAL: list[tuple[Decision, str]] = [
    (run({R99: 1}), "r99 is run but is not an unfinished request of this group"),
    (
        Decision(preempt={R99: PreemptionMode.RECOMPUTE}),
        "r99 is preempted but is not an unfinished request of this group",
    ),
    (
        Decision(reserve={R99: Reservation(1)}),
        "r99 is promised KV but is not an unfinished request of this group",
    ),
    (
        Decision(launch=(Batch(CODE, {R1: 1}, 0.75),)),
        "a batch of code, which is not loaded here; r1 of chat is in a batch of code",
    ),
    (run({R3: 1}), "r3 is run while it is running"),
    (
        Decision(launch=(Batch(CHAT, {R2: 2}, 0.25), Batch(CHAT, {R2: 3}, 0.25))),
        "r2 is in two batches",
    ),
    (run({R1: 0}), "r1 would compute 0 tokens"),
    (run({R2: -2}), "r2 would compute -2 tokens"),
    (run({R1: 12}), "r1 would compute 12 tokens but misses only 1"),
    (run({}), "a batch of chat with 0 requests"),
    (
        Decision(
            preempt={R1: PreemptionMode.RECOMPUTE},
            reserve={R2: Reservation(120)},
            launch=(Batch(CHAT, {R2: 5}, 0.75, until=Until.FIRST),),
        ),
        "r2 runs until answered but computes 5 of 20 tokens first",
    ),
    (
        Decision(launch=(Batch(CHAT, {R2: 20}, 0.75, until=Until.ALL),)),
        "r2 runs until answered with KV promised for 0 tokens, not for 120",
    ),
    (run({R1: 1}, 0.0), "a batch of chat on share 0 of the SMs"),
    (run({R1: 1}, nan), "a batch of chat on share nan of the SMs"),
    (run({R1: 1}, 0.8), "batches take share 0.8 of the SMs but 0.75 is free"),
    (
        run({R1: 1, R2: 20, R4: 1}),
        "1 requests running and 3 more, at most 3 may run at the same time",
    ),
    (run({R4: 65}), "a batch of 65 tokens, at most 64 are allowed"),
    (Decision(preempt={R3: PreemptionMode.RECOMPUTE}), "r3 is preempted while it is running"),
    (
        Decision(preempt={R1: PreemptionMode.RECOMPUTE}, launch=(Batch(CHAT, {R1: 1}, 0.75),)),
        "r1 is preempted and run by one decision",
    ),
    (Decision(reserve={R2: Reservation(16 * 9)}), "32 bytes over the KV capacity of 160"),
    (
        Decision(reserve={R2: Reservation(16 * 6)}, launch=(Batch(CHAT, {R1: 1, R4: 16}, 0.75),)),
        "16 bytes over the KV capacity of 160",
    ),
    (Decision(reserve={R2: Reservation(0, 16)}), "r2 borrows 16 tokens without a lender"),
    (
        Decision(reserve={R2: Reservation(0, 16, R99)}),
        "r2 borrows from r99, which is not here",
    ),
    (
        Decision(reserve={R1: Reservation(48), R2: Reservation(0, 64, R1)}),
        "r1 lends 4 of 3 blocks",
    ),
    (Decision(wake_s=9.5), "wake_s 9.5 s is not after now, 10.0 s"),
    (Decision(wake_s=10.0), "wake_s 10.0 s is not after now, 10.0 s"),
    (Decision(wake_s=nan), "wake_s nan s is not after now, 10.0 s"),
    (Decision(priority_order=BY_ARRIVAL), "a priority order with 1 batches in flight"),
]


@pytest.mark.parametrize(("decision", "sentence"), ILLEGAL)
def test_every_rule_has_its_sentence(decision: Decision, sentence: str) -> None:
    assert "; ".join(check(decision, a_view(), supports=ALL)) == sentence


@pytest.mark.parametrize(
    ("change", "decision", "sentence"),
    [
        (
            lambda view: view,
            Decision(priority_order=BY_ARRIVAL, launch=(Batch(CHAT, {R1: 1}),)),
            "a priority order comes with 1 batches launched",
        ),
        (
            lambda view: a_view(services=(CHAT, CODE)),
            Decision(priority_order=BY_ARRIVAL),
            "a priority order with 1 batches in flight; a priority order with rule.chunked_prefill"
            " in g (chat, code), which is not supported with 2 services",
        ),
    ],
)
def test_a_priority_order_stands_alone(
    change: Callable[[FakeGroup], FakeGroup], decision: Decision, sentence: str
) -> None:
    view = a_view()
    view.in_flight = ()
    view.free_share = 1.0
    assert "; ".join(check(decision, change(view), supports=ALL)) == sentence


def test_a_priority_order_cannot_pad_chunked_batches() -> None:
    view = a_view()
    view.in_flight = ()
    padding = replace(RULE, pads_prompts=True)
    decision = Decision(priority_order=PriorityOrder(BY_ARRIVAL.key, padding))
    assert check(decision, view, supports=ALL) == [
        "a priority order pads the prompts of chunked-prefill batches"
    ]


@pytest.mark.parametrize(
    ("lacking", "decision", "services", "sentence"),
    [
        (
            Capability.SWAP,
            Decision(preempt={R1: PreemptionMode.SWAP}),
            (CHAT,),
            "1 requests swapped out",
        ),
        (Capability.GPU_SHARE, run({R1: 1}), (CHAT,), "a batch on share 0.75 of the SMs"),
        (
            Capability.TO_COMPLETION,
            Decision(
                preempt={R1: PreemptionMode.RECOMPUTE},
                reserve={R2: Reservation(120)},
                launch=(Batch(CHAT, {R2: 20}, 0.75, until=Until.ALL),),
            ),
            (CHAT,),
            "1 batches run until answers are there",
        ),
        (Capability.SHARED_GROUP, Decision(), (CHAT, CODE), "2 services in a group"),
    ],
)
def test_only_supported_capabilities_are_used(
    lacking: Capability, decision: Decision, services: tuple[ServiceId, ...], sentence: str
) -> None:
    view = a_view(services)
    assert check(decision, view, supports=ALL) == []
    assert check(decision, view, supports=ALL - {lacking}) == [
        f"{sentence}, which the engine does not support"
    ]
