"""One group: all services share the same GPUs from start to end.

Paper      none; what a device without a placement policy does.
Idea       one group of all services over tp GPUs, the first of the cluster.
Map        -
Constants  tensor_parallel from the scenario
Differs    -
Checked    baselines/tests/test_one_group.py
"""

from typing import ClassVar

from harness.interface.decisions import Deployment
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.views import ClusterView
from harness.planning.gpu_assignment import assign


class OneGroup:
    """Placement policy that decides once."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, tensor_parallel: int, costs: CostModel) -> None:
        """A group of `tensor_parallel` GPUs."""
        self._tensor_parallel, self._costs = tensor_parallel, costs

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same deployment every time. ValueError where the GPUs do not suffice."""
        if view.deployment.groups:
            return view.deployment
        wanted = [(frozenset(view.services), 1, self._tensor_parallel)]
        return Deployment(assign(wanted, (), view.cluster, self._costs.load_s))
