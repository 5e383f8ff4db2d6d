"""What a policy counts is part of the run; what it needs may depend on its settings."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from harness.interface.decisions import Decision
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView
from harness.tests.support.policies import SteadyFcfs
from harness.tests.support.serving import serve, workload


class Counting:
    """Counts the decisions about two requests; needs predictions where it is told to."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, predicts: bool = False) -> None:
        self.requires = frozenset({Capability.PREDICTIONS} if predicts else ())
        self._inner, self._pairs = SteadyFcfs(rotates=False), 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """As the other."""
        self._pairs += len(view.requests) == 2
        return self._inner.schedule(view)

    def counts(self) -> Mapping[str, int]:
        """How often two requests were there."""
        return {"pairs": self._pairs}


def test_counts_are_recorded() -> None:
    counts = serve(workload([9, 9], [4, 6]), Counting(), fast_forward=False).counts
    assert counts == {"pairs": 4}
    assert not serve(workload([9], [4])).counts


def test_needs_of_a_setting_are_checked_before_the_run() -> None:
    with pytest.raises(ValueError, match="Simulator lacks what Counting needs: predicted lengths"):
        serve(workload([9], [4]), Counting(predicts=True))
