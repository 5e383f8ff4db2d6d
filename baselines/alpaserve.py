"""AlpaServe's placement as SeaLLM compares with it: shared groups, first come first served.

Paper      Li et al., AlpaServe: Statistical Multiplexing with Model Parallelism for Deep Learning
           Serving, OSDI 2023; its sections below. As a baseline: arXiv 2504.15720, section 6.1.
Idea       Split the GPUs into equal groups and fill these model by model: the model with the most
           unserved requests in a simulation goes to the group with the lowest load. Of all group
           sizes, keep the one with the highest SLO attainment.
Map        4.2 Algorithm 1, its fast heuristic  -> harness.planning.group_search
           4.2 Algorithm 2, group partition     -> harness.planning.partition
           most unserved requests               -> late_requests
Constants  two services per group, SLO 5 times the seconds alone (both of arXiv 2504.15720, 6.1)
Differs    Requests are generated token by token, on a KV cache that the services of a group share
           (2504.15720, 6.1). No pipeline parallelism and no buckets of models of like size. Placed
           once, from the history. As in SeaLLM, so that they differ in nothing else: groups are
           merged where a service does not fit, services without a group come first
Checked    baselines/tests/test_alpaserve.py::test_latency_does_not_count
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import Deployment
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.tables import Floats
from harness.interface.views import ClusterView
from harness.planning.forecast import Window
from harness.planning.group_search import Estimate, GroupSearch
from harness.planning.in_place import placed_in_place


def late_requests(estimate: Estimate) -> Floats:
    """How much each service needs another group."""
    return estimate.late.astype(np.float64)


def attainment(estimate: Estimate) -> tuple[float]:
    """What plans are compared by."""
    return (estimate.attainment,)


class AlpaServe:
    """Placement policy: by SLO attainment alone, once, from the requests of a history."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, search: GroupSearch, history: Window, costs: CostModel) -> None:
        """`search` simulates with the order of the run, which is first come first served."""
        self._search, self._history, self._load_s = search, history, costs.load_s

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same at all times. ValueError where the services do not fit the GPUs."""
        if view.deployment.groups:
            return view.deployment
        found = self._search.best(
            self._search.forecast(self._history),
            view.services,
            view.cluster,
            need=late_requests,
            score=attainment,
        )
        return Deployment(placed_in_place(found.placement, (), view.cluster, self._load_s))
