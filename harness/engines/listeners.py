"""Which policies are told of which events."""

from collections import defaultdict
from dataclasses import dataclass, field

from harness.engines.recorder import Recorder
from harness.engines.told_keys import Heard
from harness.interface.events import Event
from harness.interface.policies import PlacementPolicy, PrewarmPolicy, SchedulingPolicy, System

_Policies = list[SchedulingPolicy | PlacementPolicy | PrewarmPolicy]


@dataclass(slots=True)
class Listeners:
    """The recorder, and the policies of a system, each of which hears what it subscribes to.

    `heard` counts what the scheduling policy has observed, `subscribes` is what any policy hears.
    """

    system: System
    recorder: Recorder
    heard: Heard = field(default_factory=Heard)
    subscribes: frozenset[type[Event]] = field(init=False)
    _of: dict[type[Event], _Policies] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        """What policies subscribe to stays so."""
        for policy in self.system.listeners:
            for kind in policy.subscribes:
                self._of[kind].append(policy)
        self.subscribes = frozenset(self._of)

    def tell(self, event: Event, *, has_heard: bool = False) -> None:
        """Report an event, of which the scheduling policy has heard already where that is said."""
        self.recorder.event(event)
        for policy in self._of.get(type(event), ()):
            is_scheduling = policy is self.system.scheduling
            if is_scheduling and has_heard:
                continue
            policy.observe(event)
            if is_scheduling:
                self.heard.note(event)

    def wants(self, kind: type[Event]) -> bool:
        """Whether an event of this type is worth building."""
        return self.recorder.keep_events or kind in self.subscribes
