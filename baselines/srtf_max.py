"""SRTF with max-allocation: shortest predicted remaining time first, KV for the longest context.

Paper      EcoServe (arXiv 2411.06364) sec. 2.1: shortest-remaining-time-first in iteration-level
           scheduling using max-allocation.
Idea       The requests with the fewest predicted tokens left run; KV for the longest context (all
           of the KV where that is less) is set aside for each, so that KV limits how many.
Map        2.1 SRTF           -> a key that moves with the tokens produced
           2.1 max-allocation -> `reserve_tokens`
Constants  `rule`, and `displaces`: what becomes of a request that loses its place; of the scenario
Differs    a prediction that is overrun counts as one token left; without a prediction the limit
           stands in for the length
Checked    baselines/tests/test_srtf_max.py::test_a_short_newcomer_takes_the_place_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.events import Event
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView


class SrtfMax:
    """Scheduling policy: a priority order by tokens left."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, displaces: str) -> None:
        """`displaces`: pause, recompute or swap. ValueError for another word."""
        self._rule, self._displaces = rule, Displaced(displaces)
        needs = {Capability.PREDICTIONS, Capability.PROMISED_KV}
        if self._displaces is Displaced.SWAP:
            needs.add(Capability.SWAP)
        self.requires = frozenset(needs)

    def observe(self, event: Event) -> None:
        """Nothing to learn: predictions are in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order always; a group has one service."""
        (service,) = view.services.values()
        kv_tokens = view.kv.capacity_blocks(service.id) * view.kv.block_tokens
        longest = min(service.max_context_tokens, kv_tokens)
        return Decision(
            priority_order=PriorityOrder(_remaining, self._rule, self._displaces, longest)
        )


def _remaining(table: RequestTable) -> MovingKey:
    """Tokens left, one less with each token; from the predicted length on, one."""
    known = table.predicted_mean_tokens
    length = np.where(np.isnan(known), table.max_output_tokens, known)
    one, none = np.ones(len(length)), np.zeros(len(length))
    return MovingKey(
        value=np.stack([length, one], 1),
        slope=np.stack([-one, none], 1),
        until=np.stack([np.maximum(length - 1, 0.5), np.inf * one], 1),
    )
