"""Priority: the most urgent requests first, as vLLM schedules with `--scheduling-policy priority`.

Paper      none; vLLM's documentation of `SchedulerConfig.policy`: "priority" handles requests in
           the order of a given priority (the lower, the earlier), then of arrival
Idea       Waiting requests are admitted by priority. A running request keeps its slot; when KV runs
           out, the least urgent one, and of these the latest, is preempted and recomputed.
Map        -                              -> `_key`
Constants  the batch rule: of the scenario, scenarios/policy/priority.yaml
Differs    among equal priorities the lower id goes first: the earlier arrival, but for calls of
           applications that wait for others
Checked    baselines/tests/test_priority.py::test_the_most_urgent_is_admitted_first_by_hand
           baselines/tests/test_priority.py::test_the_least_urgent_is_preempted_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView


class Priority:
    """Scheduling policy: a priority order by the priorities that requests come with."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    reads_priorities: ClassVar[bool] = True
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching) -> None:
        """Fill batches by `rule`."""
        self._decision = Decision(priority_order=PriorityOrder(_key, rule))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision


def _key(table: RequestTable) -> Floats:
    """Priorities, the lowest first."""
    return table.priority.astype(np.float64)
