"""Shortest prompt first: a policy outside the tree, for `make rank`."""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView


def prompt_length(table: RequestTable) -> Floats:
    """The lower, the earlier."""
    return table.prompt_tokens.astype(np.float64)


class ShortestPrompt:
    """Scheduling policy: a priority order."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching) -> None:
        """Fill batches by `rule`."""
        self._decision = Decision(priority_order=PriorityOrder(prompt_length, rule))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same order for every group."""
        return self._decision
