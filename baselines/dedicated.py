"""Dedicated: every service has an even share of the GPUs for itself.

Paper      vLLM as arXiv 2504.15720, section 6.1, compares with it: "It cannot share services [...]
           We allocate the GPUs evenly to LLM services."
Idea       As many GPUs for each service: groups of a degree of tensor parallelism, and as many
           equal ones as the share has room for.
Map        6.1 vLLM  -> place
Constants  `tensor_parallel`, which the paper does not state: 1 and 2 both, or the fewest GPUs
Differs    A model that does not fit so many GPUs gets the fewest that hold it. GPUs over stay idle
Checked    baselines/tests/test_dedicated.py
"""

from typing import ClassVar

from harness.interface.decisions import Deployment
from harness.interface.entities import ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.views import ClusterView
from harness.planning.gpu_assignment import assign
from harness.planning.partition import GroupMemory, powers_of_two


class Dedicated:
    """Placement policy that decides once."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, tensor_parallel: int | None, costs: CostModel) -> None:
        """Groups of `tensor_parallel` GPUs, or where None of the fewest that hold the model."""
        if tensor_parallel is not None and tensor_parallel < 1:
            raise ValueError(f"tensor_parallel is {tensor_parallel}, it must be at least 1")
        self._degree, self._costs = tensor_parallel or 1, costs

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same at all times. ValueError where a share does not hold its service."""
        if view.deployment.groups:
            return view.deployment
        gpus, services = len(view.cluster.gpus), len(view.services)
        share = gpus // services
        memory = GroupMemory(self._costs, view.services, services_per_group=1)
        of_all = f"of {services} services on {gpus} GPUs"
        if share < self._degree:
            raise ValueError(f"each {of_all} has {share}, tensor_parallel is {self._degree}")

        def degree(service: ServiceId) -> int:
            for size in powers_of_two(share):
                if memory.holds(frozenset({service}), size):
                    return max(size, self._degree)
            raise ValueError(f"{service} does not fit {share} GPUs, the share of each {of_all}")

        sizes = {service: degree(service) for service in view.services}
        wanted = [(service, share // size, size) for service, size in sizes.items()]
        return Deployment(assign(wanted, (), view.cluster, self._costs.load_s))
