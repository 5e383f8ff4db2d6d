"""A policy inside vLLM's scheduler that the run itself tells what happens."""

from typing import ClassVar

from harness.interface.decisions import Decision
from harness.interface.events import Event
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView


class Deaf:
    """A policy whose events come from elsewhere."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, inner: SchedulingPolicy) -> None:
        self._inner = inner

    def schedule(self, view: GroupView) -> Decision:
        """As the policy does."""
        return self._inner.schedule(view)

    def observe(self, event: Event) -> None:
        """Nothing: the run tells the policy itself."""
