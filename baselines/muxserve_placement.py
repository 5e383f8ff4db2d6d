"""MuxServe's placement: meshes of GPUs filled service by service for the most throughput.

Paper      Duan et al., MuxServe: Flexible Spatial-Temporal Multiplexing for Multiple LLM Serving,
           ICML 2024; sections below are its sections. Program: hao-ai-lab/MuxServe@2231480
Idea       Every partition of the GPUs into meshes is tried. Services are placed from the one that
           needs most computation on, each on the mesh whose estimated throughput grows most. The
           partition with the highest throughput is kept.
Map        3.2 Algorithm 1, partitions and greedy placement -> `MuxServePlacement.place`
           3.2 Algorithm 2, SMs of a service on a mesh      -> `ShareEstimates.decode_share`
           program: requests of a decode, by halving        -> `fewest_requests`
           3.3 eq. 3, throughput of a unit                  -> `ShareEstimates.throughput_per_s`
Constants  of the program: decodes get 30 to 90% of the SMs, and may fall short of a rate by a tenth
           of theirs, at most by half a request a second
Differs    Meshes are powers of two of GPUs in an island, and islands of a size are partitioned
           alike. Of equal throughputs the mesh that is busy the least is taken, and the partition
           whose busiest mesh is busy the least: the paper does not say. Every service gets a mesh;
           a partition that leaves one out is not kept. Placed once, from the history; the program
           takes 161 tokens of prompts and 337 of answers for all. It bounds decodes by KV and what
           was measured, here by 256 requests, and adds 0.07 to 0.1 ms a request to each
Checked    baselines/tests/test_muxserve_placement.py::test_the_fewest_requests_that_keep_up_by_hand
           baselines/tests/test_muxserve_placement.py::test_throughput_of_a_service_alone_by_hand
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import ClassVar

from harness.interface.decisions import Deployment
from harness.interface.entities import Service, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.views import ClusterView
from harness.planning.forecast import ForecastGroup, Window
from harness.planning.gpu_assignment import islands_of
from harness.planning.in_place import placed_in_place
from harness.planning.partition import GroupMemory
from harness.planning.sm_shares import ShareEstimates, demands

_Meshes = tuple[ForecastGroup, ...]


class MuxServePlacement:
    """Placement policy: by estimated throughput, once, from the requests of a history."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, history: Window, costs: CostModel) -> None:
        """Rates and mean lengths of services are those of the history."""
        self._estimates, self._costs = ShareEstimates(costs, demands(history)), costs
        self._services: Mapping[ServiceId, Service] = {}

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same at all times. ValueError where no partition holds all services."""
        if view.deployment.groups:
            return view.deployment
        self._services = view.services
        sizes = sorted({len(island) for island in islands_of(view.cluster)})
        memory = GroupMemory(self._costs, view.services, len(view.services))
        order = self._by_computation(memory, sizes[-1])
        found: tuple[tuple[float, float], _Meshes] | None = None
        for chosen in product(*map(partitions, sizes)):
            of_size = dict(zip(sizes, chosen, strict=True))
            meshes = [s for island in islands_of(view.cluster) for s in of_size[len(island)]]
            filled = self._filled(order, meshes, memory)
            if filled is not None and (found is None or filled[0] > found[0]):
                found = filled
        if found is None:
            raise ValueError(
                f"MuxServe finds no placement of {len(order)} services on"
                f" {len(view.cluster.gpus)} GPUs"
            )
        return Deployment(placed_in_place(found[1], (), view.cluster, self._costs.load_s))

    def _by_computation(self, memory: GroupMemory, most: int) -> Sequence[ServiceId]:
        """Services by the share of the GPUs that hold them alone which their requests need."""
        least = {name: memory.least_size(name, most) for name in memory.services}
        need = {s: size * self._estimates.busy_share([s], size) for s, size in least.items()}
        return sorted(need, key=lambda service: (-need[service], service))

    def _filled(
        self, order: Sequence[ServiceId], sizes: Sequence[int], memory: GroupMemory
    ) -> tuple[tuple[float, float], _Meshes] | None:
        """Throughput and least idle share, and the meshes; None where a service finds no place."""
        meshes = [ForecastGroup(services=frozenset(), tensor_parallel=size) for size in sizes]
        for service in order:
            tried: dict[ForecastGroup, tuple[float, float, int]] = {}
            for at, mesh in enumerate(meshes):
                names, size = mesh.services | {service}, mesh.tensor_parallel
                if mesh not in tried and memory.holds(names, size):
                    gain = self._throughput_per_s(names, size)
                    gain -= self._throughput_per_s(mesh.services, size)
                    tried[mesh] = round(gain, 9), -self._busy_share(names, size), -at
            if not tried:
                return None
            at = -max(tried.values())[2]
            names = meshes[at].services | {service}
            meshes[at] = replace(meshes[at], services=names)
        used = tuple(mesh for mesh in meshes if mesh.services)
        total = sum(self._throughput_per_s(it.services, it.tensor_parallel) for it in used)
        busiest = max(self._busy_share(it.services, it.tensor_parallel) for it in used)
        return (round(total, 9), -busiest), used

    def _busy_share(self, services: frozenset[ServiceId], size: int) -> float:
        return self._estimates.busy_share(sorted(services), size)

    def _throughput_per_s(self, services: frozenset[ServiceId], size: int) -> float:
        kv_bytes = self._costs.kv_bytes(services, size) if services else 0
        facts = [self._services[service] for service in sorted(services)]
        return self._estimates.throughput_per_s(facts, size, kv_bytes)


def partitions(gpus: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Ways to split GPUs into meshes of powers of two, largest first."""
    if not gpus:
        yield ()
    size = 1 << (gpus if largest is None else min(gpus, largest)).bit_length() - 1 if gpus else 0
    while size:
        yield from ((size, *rest) for rest in partitions(gpus - size, size))
        size //= 2
