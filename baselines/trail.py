"""TRAIL: shortest predicted remainder first, with preemption early in an answer only.

Paper      Shahout et al., Don't Stop Me Now: Embedding Based Scheduling for LLMs, ICLR 2025,
           arXiv 2410.01035; its program is harvard-cns/TRAIL-llm-scheduling, a patch of SGLang.
Idea       The requests with the fewest predicted tokens left run. A request may be preempted for a
           shorter one only during the first `c` of its predicted answer, while it holds little KV.
Map        limited preemption            -> `_key`, two pieces by tokens generated
           discard and recompute         -> `displaces` is recompute
Constants  `c` 0.8, as its program says of the paper; the batch rule: of the scenario, see
           scenarios/policy/trail.yaml
Differs    the paper's predictor reads an embedding at every token and refines the prediction; here
           a request has one prediction, which counts down. What is claimed of limited preemption
           can be tested here, what is claimed of refined predictions cannot. Without a prediction
           the limit stands in for the length, as in its program. With `c` 0 no request is preempted
           for another, as in its program. Its program puts a request that is past `c` and was
           preempted for lack of KV last; here such a request comes first. It keeps the KV of a
           preempted request in the prefix cache
Checked    baselines/tests/test_trail.py::test_a_request_is_preempted_early_only_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.events import Event
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView

_FIRST = 2.0**40
"""Taken off the key of requests that are no longer preempted: more tokens than any answer has."""


class Trail:
    """Scheduling policy: a priority order by predicted remainder."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, c: float) -> None:
        """Fill batches by `rule`; `c` is the share of an answer in which it may be preempted.

        ValueError for a negative share.
        """
        if not c >= 0:
            raise ValueError(f"policy.c is {c}, it must be at least 0")
        self._c = c
        displaces = Displaced.RECOMPUTE if c > 0 else None
        self._decision = Decision(priority_order=PriorityOrder(self._key, rule, displaces))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision

    def _key(self, table: RequestTable) -> MovingKey:
        """Predicted tokens left; from floor(c * predicted) tokens on, before all others."""
        known = table.predicted_mean_tokens
        length = np.where(np.isnan(known), table.max_output_tokens.astype(np.float64), known)
        # A request that has generated nothing yet has not begun: it takes no place of another.
        limit = np.maximum(np.floor(self._c * length), 1.0)
        return MovingKey(
            value=np.stack([length, length - _FIRST], axis=1),
            slope=np.full((len(length), 2), -1.0),
            until=np.stack([limit, np.full_like(limit, np.inf)], axis=1),
        )
