"""Small machines, costs and workloads that tests serve."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.costs.iteration import IterationTable, work_seconds
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import ContinuousBatching, Deployment
from harness.interface.entities import Cluster, GpuId, Group, GroupId, Service, ServiceId, Work
from harness.interface.events import Event
from harness.interface.policies import (
    Capability,
    DispatchPolicy,
    LengthPredictor,
    PlacementPolicy,
    SchedulingPolicy,
    System,
)
from harness.interface.views import ClusterView
from harness.planning.plans import Plan, Stage
from harness.planning.preview import StagePreview
from harness.workloads.workload import Workload

SERVICE = ServiceId("m")


def rule(
    *,
    chunked_prefill: bool = False,
    pads: bool = False,
    max_num_seqs: int = 8,
    tokens: int = 256,
    padding: int = 10**9,
    spare: float = 0.0,
) -> ContinuousBatching:
    """A batch rule with room for eight."""
    return ContinuousBatching(
        chunked_prefill=chunked_prefill,
        pads_prompts=pads,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        max_padding_tokens=padding,
        watermark=spare,
    )


@dataclass(frozen=True)
class LinearCosts:
    """Made-up linear costs: the same for every service."""

    blocks: int = 64
    block: int = 16
    load: float = 1.0
    replica_start_s: float = 0.0
    base_s: float = 0.01

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

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """The load times the pace."""
        return self.load * self.pace(service, tensor_parallel)


def a_group(service: str, *gpus: int, name: str = "") -> Group:
    """One copy of a service; named after its GPUs where no name is given."""
    return Group(
        GroupId(name or f"{service}@{'-'.join(map(str, gpus))}"),
        frozenset({ServiceId(service)}),
        tuple(GpuId(gpu) for gpu in gpus),
    )


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
    return Cluster(tuple(GpuId(i) for i in range(gpus)), pairs, 80 * 10**9)


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
) -> Recorder:
    """Run a workload on the simulator and return what was recorded."""
    engine = Simulator(
        cluster=cluster(gpus),
        costs=costs or LinearCosts(),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        fast_forward=fast_forward,
        hand_over_s=hand_over_s,
    )
    system = System(
        "test",
        scheduling or Fcfs(rule=rule()),
        dispatch or RoundRobin(),
        placement or Everywhere(*((str(s.id), (i,)) for i, s in enumerate(load.services))),
        predictor=predictor,
    )
    engine.run(load, system, recorder := recorder or Recorder())
    return recorder


class RatePreview:
    """Stands in for a `StagePreview` in tests of planners: no loads, work is done at fixed rates.

    `rates` gives, per service, the plans it may use and what each does per second.
    """

    def __init__(
        self,
        work: Mapping[str, float],
        rates: Mapping[str, Mapping[Plan, float]],
        *,
        preemption: bool = True,
    ) -> None:
        self._left = {ServiceId(service): amount for service, amount in work.items()}
        self._rates = {ServiceId(service): dict(plans) for service, plans in rates.items()}
        self._preemption = preemption
        self._running: dict[ServiceId, Plan] = {}
        self.passed_s = 0.0

    @property
    def unfinished(self) -> tuple[ServiceId, ...]:
        """Services with work left."""
        return tuple(self._left)

    def startable(self, beside: Iterable[ServiceId]) -> tuple[ServiceId, ...]:
        """All: nobody waits for anybody."""
        return tuple(self._left)

    @property
    def held(self) -> dict[ServiceId, Plan]:
        """Plans that may not change."""
        return {} if self._preemption else dict(self._running)

    def plans(self, service: ServiceId) -> list[Plan]:
        """All those with a rate."""
        return list(self._rates[service])

    def finish_s(self, service: ServiceId, plan: Plan, beside: Stage) -> float:
        """What is left over the rate."""
        return self._left[service] / self._rates[service][plan]

    def throughput(self, stage: Stage) -> float:
        """The sum of the rates."""
        return sum(self._rates[service][plan] for service, plan in stage.items())

    def pass_stage(self, stage: Stage) -> float:
        """Until the first service has ended."""
        duration_s = min(self.finish_s(service, plan, stage) for service, plan in stage.items())
        self.passed_s += duration_s
        ended = [s for s, p in stage.items() if self.finish_s(s, p, stage) <= duration_s]
        for service, plan in stage.items():
            self._left[service] -= duration_s * self._rates[service][plan]
        for service in ended:
            del self._left[service]
        self._running = {s: p for s, p in stage.items() if s in self._left}
        return duration_s


def rate_preview(
    work: Mapping[str, float],
    rates: Mapping[str, Mapping[Plan, float]],
    *,
    preemption: bool = True,
) -> StagePreview:
    """A `RatePreview` where a `StagePreview` is asked for."""
    return cast(StagePreview, RatePreview(work, rates, preemption=preemption))
