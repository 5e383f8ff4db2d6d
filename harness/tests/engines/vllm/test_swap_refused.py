"""vLLM recomputes what it preempts: whoever would have KV kept in host memory is told so."""

from typing import ClassVar

import pytest

from harness.benchmarks.moving_policies import Ordered
from harness.engines.vllm.served import ServedGroup
from harness.interface.checks import IllegalDecision
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.policies import Capability, SchedulingPolicy
from harness.tests.support.fakes import CHAT, FakeScene, a_request, a_service
from harness.tests.support.serving import a_ledger, rule

BY_SWAP = PriorityOrder(None, rule(), Displaced.SWAP)


class Swapping(Ordered):
    """Says what it needs."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SWAP})


class Waiting:
    """A request of the engine that has computed nothing."""

    num_tokens = 16
    num_computed_tokens = 0


def _served(policy: SchedulingPolicy) -> ServedGroup:
    service = a_service()
    return ServedGroup(
        policy=policy,
        group=FakeScene(capacity_blocks=4).view().group,
        services={service.id: service},
        kv=a_ledger(service, 4),
        max_num_seqs=8,
        max_num_batched_tokens=256,
        tell=lambda event: None,
    )


def test_a_policy_that_needs_swapping_is_refused_before_the_run() -> None:
    with pytest.raises(
        ValueError, match="Swapping needs what vLLM does not offer: preempted KV kept in host mem"
    ):
        _served(Swapping(BY_SWAP))


def test_an_order_that_displaces_by_swapping_is_refused_when_it_is_given() -> None:
    group = _served(Ordered(BY_SWAP))
    group.open(a_request(1, service=CHAT), Waiting())
    with pytest.raises(IllegalDecision, match="a priority order that displaces by swapp"):
        group.decide(1.0)
