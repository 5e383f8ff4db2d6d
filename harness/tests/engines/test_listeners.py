"""An object in two roles is one listener."""

from dataclasses import dataclass, field
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.interface.decisions import Decision, Deployment
from harness.interface.events import Arrived, Event, Finished
from harness.interface.policies import Capability
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.serving import a_group, serve, workload


@dataclass
class Both:
    """Schedules and places."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Finished})
    told: list[Event] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        """Keep it."""
        self.told.append(event)

    def schedule(self, view: GroupView) -> Decision:
        """First come first served."""
        draft = Draft(view)
        run_in_order(draft, list(view.requests.values()))
        return draft.decision()

    def place(self, view: ClusterView) -> Deployment:
        """One group of each service."""
        return Deployment(tuple(a_group(s, gpu) for gpu, s in enumerate(view.services)))


def test_an_object_in_two_roles_observes_once() -> None:
    both = Both()
    serve(workload([9, 9], [3, 4], services=2), both, both)
    kinds = [type(event) for event in both.told]
    assert kinds.count(Arrived) == kinds.count(Finished) == 2
