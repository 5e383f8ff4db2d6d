"""Fixed placement: every service keeps the same groups from start to end.

Paper      none; what a cluster without a placement policy does.
Idea       dp copies of every service, each over tp GPUs, on consecutive GPUs.
Map        -
Constants  data_parallel and tensor_parallel from the scenario
Differs    -
Checked    baselines/tests/test_fixed_placement.py
"""

from typing import ClassVar

from harness.interface.decisions import Deployment
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.views import ClusterView
from harness.planning.gpu_assignment import assign


class FixedPlacement:
    """Placement policy that decides once."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, data_parallel: int, tensor_parallel: int, costs: CostModel) -> None:
        """`data_parallel` groups of `tensor_parallel` GPUs for every service."""
        self._plan = (data_parallel, tensor_parallel)
        self._costs = costs

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same deployment every time. ValueError where the GPUs do not suffice."""
        if view.deployment.groups:
            return view.deployment
        wanted = [(service, *self._plan) for service in view.services]
        return Deployment(assign(wanted, (), view.cluster, self._costs.load_s))
