"""Known queues as set-ups of the simulator, by costs that make the engine one; their closed forms.

A request is prompt of one token, whose prefill takes no time, and then one decode per tick of its
service time. First come first served: slots are servers, an iteration takes a tick whatever the
batch. Processor sharing: every request has a slot, an iteration takes a tick per request. Shortest
remaining: one request at a time, the others pause. A tick is 1e-6 of the mean service time, so the
end of an iteration, for which arrivals wait, is as good as now.

In closed forms arrivals are Poisson, the mean service time is one second, and `load` is the share
of its capacity that a queue uses (rho), so the arrival rate per server.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from baselines.fcfs import Fcfs
from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.core.draft import Draft
from harness.costs.iteration import MAX_REQUESTS, IterationTable
from harness.costs.profiles import NOTHING_RECEIVED, Received
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision
from harness.interface.entities import Cluster, GpuId, RequestId, Service, ServiceId, Work
from harness.interface.events import Event
from harness.interface.policies import Capability, SchedulingPolicy, System
from harness.interface.views import GroupView
from harness.tools.benchmarks.reference_load import vllm_rule
from harness.tools.verify.samples import (
    ROOM,
    TICK_S,
    Floats,
    Law,
    Sample,
    by_rest,
    first_come,
    second_moment_s2,
)
from harness.workloads.workload import Workload

SERVICE = ServiceId("queue")
UNLIMITED_TOKENS = 2**40


def pollaczek_khinchine_wait_s(load: float, second_moment_s2: float) -> float:
    """Mean wait in M/G/1, first come first served: lambda E[S^2] / (2 (1 - rho)).

    Kleinrock, Queueing Systems vol. 1, ch. 5; M/M/1 and M/D/1 are special cases.
    """
    return load * second_moment_s2 / (2 * (1 - load))


def erlang_c(max_num_seqs: int, load: float) -> float:
    """Probability of waiting in M/M/k, by the recursion of Erlang's loss formula.

    Kleinrock, Queueing Systems vol. 1, ch. 3 (Erlang's B and C formulas).
    """
    offered, blocked = max_num_seqs * load, 1.0
    for slot in range(1, max_num_seqs + 1):
        blocked = offered * blocked / (slot + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def shortest_remaining_response_s(load: float) -> float:
    """Mean response time of M/M/1 under shortest remaining processing time.

    Schrage and Miller, The queue M/G/1 with the shortest remaining processing time discipline,
    1966; as in Wierman, Scheduling for Today's Computer Systems, 2007. For a size x, with
    r(x) = lambda int_0^x t f(t) dt and m(x) = int_0^x t^2 f(t) dt,

        T(x) = int_0^x dt / (1 - r(t)) + lambda (m(x) + x^2 (1 - F(x))) / (2 (1 - r(x))^2).

    Averaged over x, the first integral becomes int (1 - F(t)) / (1 - r(t)) dt. Gauss-Legendre
    quadrature of eight points on each of 400 panels up to 60 mean sizes.
    """
    panels = 400
    points, weights = np.polynomial.legendre.leggauss(8)
    half = 60.0 / panels / 2
    x = (half * (2 * np.arange(panels)[:, None] + 1 + points)).ravel()
    tail = np.exp(-x)
    idle = 1 - load * (1 - tail * (1 + x))
    second = 2 - tail * (2 + 2 * x + x**2)
    residence = tail / idle
    wait = tail * load * (second + x**2 * tail) / (2 * idle**2)
    return float(half * (np.tile(weights, panels) * (residence + wait)).sum())


class ShortestRemaining:
    """One request at a time, the shortest remaining by true lengths; an overtaken one keeps its KV.

    The prefill yields the first token and takes no time, so before it what remains is one decode
    less than the tokens to come. Of equals the older runs.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, output_tokens: NDArray[np.int64]) -> None:
        """`output_tokens` by request id."""
        self._output_tokens = output_tokens

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Run the first in order until something happens."""
        table = view.table
        decodes_left = self._output_tokens[table.id] - np.maximum(1, table.generated_tokens)
        first = view.requests[RequestId(int(table.id[np.argmin(decodes_left)]))]
        draft = Draft(view)
        draft.try_run(first, first.context_tokens - first.kv_tokens)
        return draft.decision(steady=True)


class Discipline(Enum):
    """Order of service."""

    FIRST_COME = "first come"
    SHARED = "processor sharing"
    SHORTEST_REMAINING = "shortest remaining"


@dataclass(frozen=True, slots=True)
class _QueueCosts:
    """With `share` an iteration takes a tick per request, else it takes one; all else is free."""

    share: bool

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        none = np.zeros(MAX_REQUESTS + 1)
        requests = np.arange(MAX_REQUESTS + 1).astype(np.float64)
        decode_s = TICK_S * (requests if self.share else np.minimum(requests, 1.0))
        return IterationTable(none, none, none, none, decode_s, none, none, np.zeros(1))

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        return float(self.table(service, tensor_parallel).decode_base_s[work.decode_requests])

    def intake_s(self, service: ServiceId, prompt_tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.zeros(len(prompt_tokens))

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        return NOTHING_RECEIVED

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        return 0.0

    def start_s(self, service: ServiceId, tensor_parallel: int) -> float:
        return 0.0

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        return UNLIMITED_TOKENS

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        return UNLIMITED_TOKENS * 16

    def block_tokens(self, service: ServiceId) -> int:
        return 16


TICK_COSTS = _QueueCosts(share=False)
"""An iteration takes a tick, whatever it computes."""


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
        """The figure by its closed form.

        M/M/k: E[S] + C(k, rho) / (k (1 - rho)). Processor sharing: E[S] / (1 - rho), whatever the
        law (Kleinrock, Queueing Systems vol. 2, ch. 4).
        """
        slots, load = self.max_num_seqs, self.load
        if self.discipline is Discipline.SHARED:
            return 1.0 / (1 - load)
        if self.discipline is Discipline.SHORTEST_REMAINING:
            return shortest_remaining_response_s(load)
        if slots > 1:
            return 1.0 + erlang_c(slots, load) / (slots * (1 - load))
        return pollaczek_khinchine_wait_s(load, second_moment_s2(self.law))

    def recursion_s(self, sample: Sample) -> tuple[Floats, Floats]:
        """Response times by the textbook, and the work found on arrival."""
        gap_s, service_s = sample.gap_s, sample.service_s
        response_s, work_s = np.zeros((2, len(gap_s)))
        if self.discipline is Discipline.FIRST_COME:
            first_come(gap_s, service_s, np.zeros(self.max_num_seqs), response_s, work_s)
        else:
            share, ids = self.discipline is Discipline.SHARED, np.zeros(ROOM, np.int64)
            by_rest(share, gap_s, service_s, np.zeros(ROOM), ids, response_s, work_s)
        return response_s, work_s

    def serve(self, sample: Sample) -> Recorder:
        """The sample on the simulator, with its events."""
        load = as_workload(sample)
        costs = _QueueCosts(self.discipline is Discipline.SHARED)
        engine = Simulator(
            cluster=Cluster((GpuId(0),), (frozenset({GpuId(0)}),)),
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
        slots = self.max_num_seqs if self.discipline is Discipline.FIRST_COME else MAX_REQUESTS
        words = {"max_num_seqs": slots, "max_num_batched_tokens": MAX_REQUESTS}
        return Fcfs(rule=vllm_rule(chunked_prefill=False, **words))


def as_workload(sample: Sample) -> Workload:
    """A token by prefill, then one per tick of service."""
    count = len(sample.gap_ticks)
    return Workload(
        services=(Service(SERVICE, 1, UNLIMITED_TOKENS),),
        service=np.zeros(count, np.int64),
        arrival_s=sample.gap_ticks.cumsum() * TICK_S,
        prompt_tokens=np.ones(count, np.int64),
        output_tokens=sample.service_ticks + 1,
        max_output_tokens=sample.service_ticks + 1,
        app=np.arange(count),
        deadline_s=np.full(count, np.nan),
    )
