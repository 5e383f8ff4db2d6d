"""AlpaServe's placement as SeaLLM compares with it: shared groups, first come first served.

Paper      Li et al., AlpaServe: Statistical Multiplexing with Model Parallelism for Deep Learning
           Serving, OSDI 2023; its sections below. As a baseline: arXiv 2504.15720, section 6.1.
Idea       Split the GPUs into equal groups and fill these model by model: the model with the most
           unserved requests in a simulation goes to the group with the lowest load. Of all group
           sizes, keep the one with the highest SLO attainment.
Map        4.2 Algorithm 1, its fast heuristic  -> harness.planning.group_search
           4.2 Algorithm 2, group partition     -> harness.planning.partition
           most unserved requests               -> late_requests
           4.2, the simulator of the program    -> harness.planning.serial_forecast
Constants  two services per group, SLO 5 times the seconds alone (both of arXiv 2504.15720, 6.1)
Two ways   What placements are compared by is not stated in 2504.15720. `alpaserve` simulates the
           continuous batches that are run. `alpaserve_program` simulates as the program does
           (alpa-projects/mms, dba47b1: replica_placement_fast_greedy in base_policy.py:329-400,
           simulate_requests_mixed in simulator/controller.py:562-628): batches of one, first come
           first served; a request goes to the group of its model that is free first, and is
           dropped, at no cost to the group, where its answer would come later than its SLO after
           it. Dropped requests are the unserved ones. Both run the same engines
Differs    Requests are generated token by token, on a KV cache that the services of a group share
           (2504.15720, 6.1). No pipeline parallelism and no buckets of models of like size. Placed
           once, from the history. As in SeaLLM, so that they differ in nothing else: groups are
           merged where a service does not fit, services without a group come first, a group holds
           two services, and its load is the rate of its requests if each service's are spread
           evenly over its groups (the program counts what it has dispatched there).
           The program drops late requests also while it serves; here all are served. It adds 11 ms
           to a request and 0.9% to a stage, and its SLO goes by model, not by request. Of plans it
           takes that of the highest goodput less 1e-4 of the mean latency in seconds (0 of a
           dropped request) plus 1e-6 a replica; here only attainment counts
Checked    baselines/tests/test_alpaserve.py::test_the_program_drops_what_would_be_late
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import Deployment
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.tables import Floats
from harness.interface.views import ClusterView
from harness.planning.forecast import Window
from harness.planning.group_search import GroupSearch, PlacementEstimate
from harness.planning.in_place import placed_in_place


def late_requests(estimate: PlacementEstimate) -> Floats:
    """How much each service needs another group."""
    return estimate.late.astype(np.float64)


def attainment(estimate: PlacementEstimate) -> tuple[float]:
    """What plans are compared by."""
    return (estimate.attainment,)


class AlpaServe:
    """Placement policy: by SLO attainment alone, once, from the requests of a history."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, search: GroupSearch, history: Window, costs: CostModel) -> None:
        """`search` simulates batches in the order of the run, or one request at a time."""
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
