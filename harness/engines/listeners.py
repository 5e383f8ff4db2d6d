"""Which policies are told of which events."""

from dataclasses import dataclass, field

from harness.engines.recorder import Recorder
from harness.engines.told_keys import Heard
from harness.interface.events import Event
from harness.interface.policies import System


@dataclass(frozen=True, slots=True)
class Listeners:
    """The recorder, and the policies of a system, each of which hears what it subscribes to.

    `heard` counts what the scheduling policy has observed.
    """

    system: System
    recorder: Recorder
    heard: Heard = field(default_factory=Heard)

    @property
    def subscribes(self) -> frozenset[type[Event]]:
        """What any policy hears."""
        every = (policy.subscribes for policy in self.system.listeners)
        return frozenset().union(*every)

    def tell(self, event: Event) -> None:
        """Report an event."""
        self.recorder.event(event)
        for policy in self.system.listeners:
            if type(event) in policy.subscribes:
                policy.observe(event)
                if policy is self.system.scheduling:
                    self.heard.note(event)

    def wants(self, kind: type[Event]) -> bool:
        """Whether an event of this type is worth building."""
        return self.recorder.keep_events or kind in self.subscribes
