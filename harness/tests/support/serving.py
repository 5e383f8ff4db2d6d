"""Small machines, costs and workloads that tests serve."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.core.kv_ledger import KvLedger
from harness.costs.iteration import IterationTable, work_seconds
from harness.costs.profiles import Received
from harness.engines.host_memory import HostMemory
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.apps import OUTSIDE
from harness.interface.decisions import ContinuousBatching, Deployment
from harness.interface.entities import Cluster, GpuId, Group, GroupId, Service, ServiceId, Work
from harness.interface.events import Event
from harness.interface.policies import (
    Capability,
    DispatchPolicy,
    LengthPredictor,
    PlacementPolicy,
    PrewarmPolicy,
    SchedulingPolicy,
    System,
)
from harness.interface.tables import Floats, Ints
from harness.interface.views import ClusterView
from harness.workloads.workload import Workload

SERVICE = ServiceId("m")
SOME_HOST_MEMORY = HostMemory(kv_bytes=20_000, bytes_per_s=1e6)
"""Room for 200 tokens of a service of `workload`, 0.1 ms each there or back."""


def rule(
    *,
    chunked_prefill: bool = False,
    pads: bool = False,
    max_num_seqs: int = 8,
    tokens: int = 256,
    padding: int = 10**9,
    spare: float = 0.0,
    prompts_first: bool = True,
) -> ContinuousBatching:
    """A batch rule with room for eight."""
    return ContinuousBatching(
        chunked_prefill=chunked_prefill,
        pads_prompts=pads,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        max_padding_tokens=padding,
        watermark=spare,
        prompts_first=prompts_first,
    )


@dataclass(frozen=True)
class LinearCosts:
    """Made-up linear costs: the same for every service."""

    blocks: int = 64
    block: int = 16
    load: float = 1.0
    replica_start_s: float = 0.0
    base_s: float = 0.01
    intake_s_per_request: float = 0.0
    intake_s_per_prompt_token: float = 0.0
    received_s_per_request: float = 0.0
    received_more: float = 0.4

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Coefficients that do not depend on the number of requests, but for the base."""
        n = np.arange(1025).astype(np.float64)
        one = np.ones(1025) / tensor_parallel
        return IterationTable(
            self.base_s + 1e-4 * n,
            1e-4 * one,
            1e-7 * one,
            1e-5 * one,
            self.base_s / 2 + 2e-4 * n,
            1e-6 * one,
            5e-7 * one,
            np.array([self.base_s / 2]),
        )

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration."""
        return work_seconds(self.table(service, tensor_parallel), work)

    def intake_s(self, service: ServiceId, prompt_tokens: Ints) -> Floats:
        """Seconds before a scheduler has each request."""
        seconds = self.intake_s_per_request + self.intake_s_per_prompt_token * prompt_tokens
        return np.asarray(seconds, np.float64)

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        """Seconds between two iterations for the requests that have come."""
        first_s = self.received_s_per_request
        return Received(first_s, self.received_more * first_s)

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """Seconds of a load, more beside others."""
        return self.load + self.replica_start_s * (replicas - 1)

    def start_s(self, service: ServiceId, tensor_parallel: int) -> float:
        """A quarter of a load."""
        return self.load_s(service, tensor_parallel) / 4

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """Blocks of a group."""
        return self.blocks

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """What the fewest blocks take: 100 bytes a token, as the services of `workload`."""
        blocks = min(self.kv_blocks(service, tensor_parallel) for service in services)
        return blocks * self.block * 100

    def block_tokens(self, service: ServiceId) -> int:
        """Tokens of a block."""
        return self.block


@dataclass(frozen=True)
class FlatCosts(LinearCosts):
    """Half a second for any prefill, a quarter for any decode: times that a hand can add up."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Bases only."""
        none = np.zeros(1025)
        half, quarter = np.full(1025, 0.5), np.full(1025, 0.25)
        return IterationTable(half, none, none, none, quarter, none, none, np.zeros(1))


@dataclass(frozen=True)
class UnevenCosts(LinearCosts):
    """A pace of its own for every service and degree: no two services end at one time."""

    def pace(self, service: ServiceId, tensor_parallel: int) -> float:
        """Times slower than `LinearCosts`."""
        return 1.0 + sum(map(ord, service)) % 97 / 71.3 / tensor_parallel

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Linear costs times the pace."""
        table = LinearCosts.table(self, service, tensor_parallel)
        return IterationTable(*(c * self.pace(service, tensor_parallel) for c in table))

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        """What the costs have of it times the pace."""
        first_s, more_s = LinearCosts.received_s(self, service, tensor_parallel)
        pace = self.pace(service, tensor_parallel)
        return Received(first_s * pace, more_s * pace)

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """The load times the pace."""
        return self.load * self.pace(service, tensor_parallel)


BYTES = {"m0": 100, "m1": 300, "m2": 100}
"""Of KV per token."""


@dataclass(frozen=True)
class TwoSizes(UnevenCosts):
    """`blocks` are of m0; those of m1 are three times as large."""

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """As many blocks as the bytes hold."""
        return self.blocks * 100 // BYTES[service]

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """What the blocks of the service with the fewest bytes in them take."""
        sizes = [self.kv_blocks(s, tensor_parallel) * BYTES[s] for s in services]
        return min(sizes) * self.block


def a_group(service: str, *gpus: int, name: str = "") -> Group:
    """One copy of a service; named after its GPUs where no name is given."""
    return Group(
        GroupId(name or f"{service}@{'-'.join(map(str, gpus))}"),
        frozenset({ServiceId(service)}),
        tuple(GpuId(gpu) for gpu in gpus),
    )


def a_ledger(service: Service, blocks: int) -> KvLedger:
    """An empty ledger of so many blocks of 16 tokens, of a service alone."""
    capacity_bytes = blocks * 16 * service.kv_bytes_per_token
    return KvLedger(capacity_bytes=capacity_bytes, services={service.id: service})


class Everywhere:
    """Placement for tests: these groups from the start, each (service, gpus)."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *groups: tuple[str, tuple[int, ...]]) -> None:
        self._deployment = Deployment(tuple(a_group(service, *gpus) for service, gpus in groups))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same every time."""
        return self._deployment


def cluster(gpus: int = 2) -> Cluster:
    """GPUs in NVLink pairs."""
    pairs = tuple(frozenset({GpuId(i), GpuId(i + 1)}) for i in range(0, gpus - 1, 2))
    return Cluster(tuple(GpuId(i) for i in range(gpus)), pairs)


def workload(
    prompts: list[int],
    outputs: list[int],
    arrivals_s: list[float] | None = None,
    services: int = 1,
    *,
    max_context_tokens: int = 4096,
) -> Workload:
    """One app per request, services in turn."""
    count = len(prompts)
    arrival_s = np.zeros(count) if arrivals_s is None else np.array(arrivals_s, float)
    names = [SERVICE] if services == 1 else [ServiceId(f"m{i}") for i in range(services)]
    return Workload(
        services=tuple(Service(n, 100, max_context_tokens) for n in names),
        service=np.arange(count, dtype=np.int64) % services,
        arrival_s=arrival_s,
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.array(outputs, np.int64),
        max_output_tokens=np.array(outputs, np.int64) + 5,
        app=np.arange(count, dtype=np.int64),
        deadline_s=np.full(count, np.nan),
    )


def of_tenants(load: Workload, seed: int, *, slack_s: float) -> Workload:
    """The workload with three tenants, and deadlines of up to so many seconds for most requests."""
    rng, count = np.random.default_rng([seed, 3]), len(load)
    deadline_s = load.arrival_s + rng.uniform(0, slack_s, count)
    deadline_s[rng.random(count) < 0.3] = np.nan
    tenant = rng.integers(0, 3, count)
    return replace(load, deadline_s=deadline_s, tenants=("a", "b", "c"), tenant=tenant)


def serve(
    load: Workload,
    scheduling: SchedulingPolicy | None = None,
    placement: PlacementPolicy | None = None,
    *,
    costs: LinearCosts | None = None,
    fast_forward: bool = True,
    gpus: int = 2,
    recorder: Recorder | None = None,
    predictor: LengthPredictor | None = None,
    dispatch: DispatchPolicy | None = None,
    max_num_seqs: int = 512,
    tokens: int = 8192,
    hand_over_s: float = 0.0,
    host_memory: HostMemory = SOME_HOST_MEMORY,
    swap_overlaps: bool = False,
    prefix_caching: bool = False,
    prewarm: PrewarmPolicy | None = None,
) -> Recorder:
    """Run a workload on the simulator and return what was recorded."""
    services = [str(s.id) for s in load.services if s.id != OUTSIDE]
    engine = Simulator(
        cluster=cluster(gpus),
        costs=costs or LinearCosts(),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        fast_forward=fast_forward,
        hand_over_s=hand_over_s,
        host_memory=host_memory,
        swap_overlaps=swap_overlaps,
        prefix_caching=prefix_caching,
    )
    everywhere = Everywhere(*((name, (i,)) for i, name in enumerate(services)))
    policies = scheduling or Fcfs(rule=rule()), dispatch or RoundRobin(), placement or everywhere
    system = System("test", *policies, prewarm=prewarm, predictor=predictor)
    engine.run(load, system, recorder := recorder or Recorder())
    return recorder
