"""How many tokens each request computed in which iteration, recorded."""

from typing import ClassVar

from harness.interface.decisions import Decision
from harness.interface.events import Event, Iterated
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.policy_checks import IterationStep
from harness.tests.support.serving import Everywhere


class Watched:
    """A policy whose batches are kept, in order; see `watched`."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    def __init__(self, inner: SchedulingPolicy) -> None:
        self._inner = inner
        self.steps: list[IterationStep] = []

    def observe(self, event: Event) -> None:
        """Keep the batch, and pass on what the policy hears."""
        if isinstance(event, Iterated):
            tokens = {int(request): n for request, n in event.batch.tokens.items()}
            self.steps.append((event.now_s - event.duration_s, tokens))
        if type(event) in self._inner.subscribes:
            self._inner.observe(event)

    def schedule(self, view: GroupView) -> Decision:
        """As the policy does."""
        return self._inner.schedule(view)


def watched(inner: SchedulingPolicy) -> Watched:
    """A policy that is watched, with its own needs and events."""

    class Same(Watched):
        requires = inner.requires
        subscribes = inner.subscribes | {Iterated}

    return Same(inner)


class Watching(Everywhere):
    """Keeps the batches, which the scheduling policy may not observe."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    def __init__(self, *groups: tuple[str, tuple[int, ...]]) -> None:
        super().__init__(*groups)
        self.steps: list[IterationStep] = []

    def observe(self, event: Event) -> None:
        """Keep the batch."""
        assert isinstance(event, Iterated)
        tokens = {int(request): n for request, n in event.batch.tokens.items()}
        self.steps.append((event.now_s - event.duration_s, tokens))
