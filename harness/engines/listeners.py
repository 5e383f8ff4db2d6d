"""Who is told of what happens."""

from dataclasses import dataclass

from harness.engines.recorder import Recorder
from harness.interface.events import Event
from harness.interface.policies import System


@dataclass(frozen=True, slots=True)
class Listeners:
    """The recorder, and the policies of a system, each of which hears what it subscribes to."""

    system: System
    recorder: Recorder

    @property
    def subscribes(self) -> frozenset[type[Event]]:
        """What any policy hears."""
        return self.system.scheduling.subscribes | self.system.placement.subscribes

    def tell(self, event: Event) -> None:
        """Report an event."""
        self.recorder.event(event)
        for policy in self.system.listeners:
            if type(event) in policy.subscribes:
                policy.observe(event)

    def wants(self, kind: type[Event]) -> bool:
        """Whether an event of this type is worth building."""
        return self.recorder.keep_events or kind in self.subscribes
