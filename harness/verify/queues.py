"""Known queues as set-ups of the simulator, by costs that make the engine one.

A request is prompt of one token, whose prefill takes no time, and then one decode per tick of its
service time. First come first served: slots are servers, an iteration takes a tick whatever the
batch. Processor sharing: everybody has a slot, an iteration takes a tick per request. Shortest
remaining: one request at a time, the others pause. A tick is 1e-6 of the mean service time, so the
end of an iteration, for which arrivals wait, is as good as now.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np

from baselines.fcfs import Fcfs
from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.costs.iteration import MAX_REQUESTS, IterationTable
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import Cluster, GpuId, Service, ServiceId, Work
from harness.interface.policies import SchedulingPolicy, System
from harness.verify import formulas, recursions
from harness.verify.laws import TICK_S, Floats, Law, Sample, second_moment_s2
from harness.verify.shortest_remaining import ShortestRemaining
from harness.workloads.workload import Workload

SERVICE = ServiceId("queue")
UNLIMITED_TOKENS = 2**40


class Discipline(Enum):
    """Order of service."""

    FIRST_COME = "first come"
    SHARED = "processor sharing"
    SHORTEST_REMAINING = "shortest remaining"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCosts:
    """Costs of a queue: `share` makes an iteration take a tick per request, else it takes one."""

    share: bool

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Decodes take ticks, prefills no time."""
        none = np.zeros(MAX_REQUESTS + 1)
        requests = np.arange(MAX_REQUESTS + 1).astype(np.float64)
        decode_s = TICK_S * (requests if self.share else np.minimum(requests, 1.0))
        return IterationTable(none, none, none, none, decode_s, none, none, np.zeros(1))

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration."""
        return float(self.table(service, tensor_parallel).decode_base_s[work.decode_requests])

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """Loading takes no time."""
        return 0.0

    def start_s(self, service: ServiceId, tensor_parallel: int) -> float:
        """Nor does starting."""
        return 0.0

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """More than is ever needed."""
        return UNLIMITED_TOKENS

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """The same in bytes, one for each token."""
        return UNLIMITED_TOKENS * 16

    def block_tokens(self, service: ServiceId) -> int:
        """As vLLM's."""
        return 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """M/G/k with a mean service time of one second; `load` is rho, per slot."""

    discipline: Discipline
    law: Law
    load: float
    max_num_seqs: int = 1

    @property
    def name(self) -> str:
        """In the notation of Kendall, with the discipline where it is not first come."""
        letter = {Law.EXPONENTIAL: "M", Law.DETERMINISTIC: "D"}.get(self.law, "G")
        ending = {Discipline.SHARED: "-PS", Discipline.SHORTEST_REMAINING: "-SRPT"}
        return f"M/{letter}/{self.max_num_seqs}{ending.get(self.discipline, '')}"

    @property
    def rate_per_s(self) -> float:
        """Arrivals."""
        return self.load * self.max_num_seqs

    @property
    def is_wait(self) -> bool:
        """Whether the figure is the mean wait; else it is the mean response time.

        With one server first come first served waits are compared, which is stricter. With many,
        waits are so rare at low loads that no run is long enough to know their mean to 0.1%.
        """
        return self.discipline is Discipline.FIRST_COME and self.max_num_seqs == 1

    @property
    def expected_s(self) -> float:
        """The figure by its closed form."""
        if self.discipline is Discipline.SHARED:
            return formulas.processor_sharing_response_s(self.load)
        if self.discipline is Discipline.SHORTEST_REMAINING:
            return formulas.shortest_remaining_response_s(self.load)
        if self.max_num_seqs > 1:
            return formulas.multi_server_response_s(self.max_num_seqs, self.load)
        return formulas.pollaczek_khinchine_wait_s(self.load, second_moment_s2(self.law))

    def recursion_s(self, sample: Sample) -> tuple[Floats, Floats]:
        """Response times by the textbook, and the work found on arrival."""
        if self.discipline is Discipline.SHARED:
            return recursions.shared_s(sample)
        if self.discipline is Discipline.SHORTEST_REMAINING:
            return recursions.shortest_remaining_s(sample)
        return recursions.first_come_s(sample, self.max_num_seqs)

    def serve(self, sample: Sample) -> Recorder:
        """The sample on the simulator, with its events."""
        load = as_workload(sample)
        costs = QueueCosts(share=self.discipline is Discipline.SHARED)
        engine = Simulator(
            cluster=Cluster((GpuId(0),), (frozenset({GpuId(0)}),), 0),
            costs=costs,
            max_num_seqs=MAX_REQUESTS,
            max_num_batched_tokens=MAX_REQUESTS,
        )
        placement = FixedPlacement(data_parallel=1, tensor_parallel=1, costs=costs)
        recorder = Recorder(keep_events=True)
        engine.run(load, System("queue", self._policy(load), RoundRobin(), placement), recorder)
        return recorder

    def _policy(self, load: Workload) -> SchedulingPolicy:
        if self.discipline is Discipline.SHORTEST_REMAINING:
            return ShortestRemaining(load.output_tokens)
        rule = ContinuousBatching(
            chunked_prefill=False,
            pads_prompts=False,
            max_num_seqs=(
                self.max_num_seqs if self.discipline is Discipline.FIRST_COME else MAX_REQUESTS
            ),
            max_num_batched_tokens=MAX_REQUESTS,
            max_padding_tokens=0,
            watermark=0.0,
        )
        return Fcfs(rule=rule)


def as_workload(sample: Sample) -> Workload:
    """A token by prefill, then one per tick of service."""
    count = len(sample.gap_ticks)
    return Workload(
        services=(Service(SERVICE, 1, UNLIMITED_TOKENS),),
        service=np.zeros(count, np.int64),
        arrival_s=sample.arrival_s,
        prompt_tokens=np.ones(count, np.int64),
        output_tokens=sample.service_ticks + 1,
        max_output_tokens=sample.service_ticks + 1,
        app=np.arange(count),
        deadline_s=np.full(count, np.nan),
    )
