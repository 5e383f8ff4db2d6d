"""ORCA: iteration-level batching with KV set aside for the longest context.

Paper      Yu et al., Orca: A Distributed Serving System for Transformer-Based Generative Models,
           OSDI 2022; KV as EcoServe (arXiv 2411.06364 sec. 1) describes it: max-allocation.
Idea       Every iteration, prompts and decodes of all admitted requests run together. A request is
           admitted, in the order of arrival, only when KV for its longest context can be set aside,
           so that no request is preempted.
Map        4.1 iteration-level scheduling -> a priority order by arrival
           4.2 KV slots of max_tokens     -> `reserve_tokens`
Constants  `rule.max_num_seqs`: 8, and 16 for OPT-175B (arXiv 2411.06364 secs. 2.1 and 4);
           `longest`: what max_tokens is, the model's context (all of the KV where that is less)
           or the limit that a request states
Differs    without ORCA's pipelining between GPUs; prompts are never cut, so `rule` has a token
           budget that holds all prompts of a batch
Checked    baselines/tests/test_orca.py::test_kv_of_the_longest_context_admits_two_of_three_by_hand
"""

from typing import ClassVar

from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

LONGEST = ("context", "limit")


class Orca:
    """Scheduling policy: a priority order by arrival with max-allocation."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PROMISED_KV})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, longest: str) -> None:
        """Fill batches by `rule`; `longest` says for which context KV is set aside.

        ValueError where that is not one of `LONGEST`.
        """
        if longest not in LONGEST:
            raise ValueError(f"policy.longest is {longest}, it must be {' or '.join(LONGEST)}")
        self._rule, self._longest = rule, longest

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order always; a group has one service."""
        (service,) = view.services.values()
        kv_tokens = view.kv.capacity_blocks(service.id) * view.kv.block_tokens
        whole = min(service.max_context_tokens, kv_tokens)
        aside = whole if self._longest == "context" else _limit
        return Decision(priority_order=PriorityOrder(None, self._rule, reserve_tokens=aside))


def _limit(table: RequestTable) -> Floats:
    return (table.prompt_tokens + table.max_output_tokens).astype(float)
