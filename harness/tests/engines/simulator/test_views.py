"""What policies may see: windows that tell nothing of what answers will be."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from baselines.fcfs import Fcfs
from harness.interface.decisions import (
    Decision,
    Deployment,
)
from harness.interface.policies import SchedulingPolicy
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.policies import Moving, ShortestFirst, SteadyFcfs
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    UnevenCosts,
    rule,
    serve,
    workload,
)
from harness.tests.support.telltale import TELLTALE, Nosy, Walk

Floats = NDArray[np.float64]


class NosyPlacement(Moving):
    """Walks the cluster, every table included."""

    visited = 0

    def place(self, view: ClusterView) -> Deployment:
        """Look, then move."""
        walk = Walk()
        walk.assert_silent(view, "view")
        for service in view.services:
            walk.assert_silent(view.unfinished(service), f"view.unfinished({service})")
        self.visited += walk.visited
        return replace(super().place(view), wake_s=view.now_s + 7.7)


@pytest.mark.parametrize(
    "inner",
    [Fcfs(rule=rule(tokens=4096)), SteadyFcfs(rotates=False), ShortestFirst(max_num_seqs=2)],
)
def test_no_view_tells_how_long_an_answer_will_be(inner: SchedulingPolicy) -> None:
    load = workload([1100] * 8, [TELLTALE] * 8, [0.0] * 4 + [0.7] * 4, services=3)

    nosy, placement = Nosy(inner), NosyPlacement()
    serve(load, nosy, placement, costs=UnevenCosts(load=0.11, blocks=4096), predictor=Guess(0.4))
    assert nosy.visited > 200
    assert placement.visited > 200


def test_the_walk_would_find_a_length() -> None:
    """What the test above rests on: it looks into objects, mappings, arrays and properties."""

    class Leaky:
        @property
        def deep(self) -> dict[str, list[Floats]]:
            return {"x": [np.array([1.0, TELLTALE])]}

    with pytest.raises(AssertionError, match=r"view.deep\[x\]\[0\]"):
        Walk().assert_silent(Leaky(), "view")


def test_views_are_windows() -> None:
    """Nothing of a group or cluster can be set through its view."""
    refused = []

    class Vandal(Fcfs):
        def schedule(self, view: GroupView) -> Decision:
            for name in ("now_s", "group", "requests", "in_flight"):
                with pytest.raises((AttributeError, TypeError)):
                    setattr(view, name, None)
                refused.append(name)
            assert not hasattr(view.requests, "clear")
            return super().schedule(view)

    serve(workload([9], [3]), Vandal(rule=rule()))
    assert len(refused) == 4
