"""SRTF: shortest predicted remaining time first, preempting requests with more left.

Paper      Schrage, A Proof of the Optimality of the Shortest Remaining Processing Time Discipline,
           Operations Research 16(3), 1968; on predicted lengths as in arXiv 2411.06364 sec. 4.
Idea       The requests with the fewest predicted tokens left run. A request that loses its slot to
           a newcomer drops its KV and is recomputed later.
Map        shortest remaining time first -> `_left`, a key that moves with the tokens generated
           preemption                    -> `displaces` is recompute
Constants  `rule`, of the scenario: requests that run at once, tokens of an iteration
Differs    many run at once: the first ones with a slot and KV for their whole contexts. Who has
           generated more than predicted comes before all others, who is furthest beyond first;
           without a prediction the limit stands in for the length
Checked    baselines/tests/test_srtf.py::test_a_short_newcomer_takes_a_slot_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.events import Event
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView


class Srtf:
    """Scheduling policy: a priority order by predicted tokens left."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching) -> None:
        """Fill batches by `rule`."""
        order = PriorityOrder(_left, rule, Displaced.RECOMPUTE)
        self._decision = Decision(priority_order=order)

    def observe(self, event: Event) -> None:
        """Nothing to learn: predictions are in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision


def _left(table: RequestTable) -> MovingKey:
    """Tokens left: the predicted length, one less with each token, below 0 beyond it."""
    known = table.predicted_mean_tokens
    length = np.where(np.isnan(known), table.max_output_tokens, known)[:, None]
    return MovingKey(length, np.full_like(length, -1.0), np.full_like(length, np.inf))
