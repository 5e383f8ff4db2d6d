"""PLAS and ATLAS of Autellix: calls of the programs that have had the least service run first.

Paper      Luo et al., Autellix: An Efficient Serving Engine for LLM Agents as General Programs,
           arXiv 2502.13965; sections below are its sections.
Idea       A program is an application. Its first calls enter the first of some queues, and its
           later calls the queue that the service of its calls so far belongs to. A call moves down
           one queue when it has used its quantum up, and programs that have waited for long in
           comparison with their service are promoted.
Map        4.2.1 PLAS, process table     -> `_Program`, `service: total`
           4.2.1 ATLAS                   -> `service: critical_path`
           4.2.2 discretized priorities  -> `_enter`, `_run`
           4.2.2 anti-starvation         -> `_promote`
Constants  `quantum_s` of the first queue, `ratio` between two queues, `queues` and `starves_ratio`
           (beta): our choice, the paper states none; see scenarios/policy/plas.yaml
Differs    written from the paper, the authors' program is not public. A queue's range of service is
           as wide as its quantum. The scheduler runs before every iteration, there every N. KV that
           loses its slot is swapped out as a whole; cost and number of swaps are those of this
           engine, so that claims about its swap kernel cannot be tested. Its load balancer (4.3) is
           a dispatch policy and not built. As Algorithm 1 has it, the run time of a promoted call
           up to then does not count as service. No compiled code follows the order. What is
           claimed of the latency of programs in one engine can be tested on applications
Checked    baselines/tests/test_plas.py::test_queues_by_hand
           baselines/tests/test_plas.py::test_a_starved_call_is_promoted_by_hand
           baselines/tests/test_plas.py::test_a_new_program_runs_before_a_served_one_by_hand
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import AppId, Request, RequestId
from harness.interface.events import AppFinished, Arrived, Event, Finished, Iterated
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_PER_QUEUE = 2.0**44
"""Added to the key for each queue further down: microseconds of half a year."""


@dataclass(slots=True)
class _Program:
    """Entry of the process table; microseconds, which add up alike in every engine."""

    service_us: int = 0
    wait_us: int = 0


@dataclass(slots=True)
class _Call:
    """A call that has not ended: since when it waits and how long it has run since.

    `inherited_us` is the service of its program when it came.
    """

    program: AppId
    inherited_us: int
    since_us: int
    entered_us: int
    queue: int
    quantum_us: int
    ran_us: int = 0


class Plas:
    """Scheduling policy: a priority order by queue, then by when a call has entered it."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset(
        {Arrived, Iterated, Finished, AppFinished}
    )

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        service: str,
        quantum_s: float,
        ratio: float,
        queues: int,
        starves_ratio: float | None,
        displaces: str | None,
    ) -> None:
        """`service`: total or critical_path; `displaces`: pause, recompute, swap or None.

        `starves_ratio`: waiting time over service from which on a call is promoted, None: never.
        ValueError for other words and for numbers that cannot be.
        """
        if service not in ("total", "critical_path"):
            raise ValueError(f"policy.service is {service}, not total or critical_path")
        for name, value in (("quantum_s", quantum_s), ("starves_ratio", starves_ratio)):
            if value is not None and not value > 0:
                raise ValueError(f"policy.{name} is {value}, it must be above 0")
        if ratio < 1 or queues < 1:
            raise ValueError(f"policy.ratio {ratio} and policy.queues {queues} must be at least 1")
        how = None if displaces is None else Displaced(displaces)
        self.requires = frozenset({Capability.SWAP} if how is Displaced.SWAP else ())
        self._is_total, self._starves_ratio = service == "total", starves_ratio
        self._quanta_us = [_us(quantum_s * ratio**queue) for queue in range(queues)]
        self._ends_us = list(accumulate(self._quanta_us))
        self._programs: defaultdict[AppId, _Program] = defaultdict(_Program)
        self._calls: dict[RequestId, _Call] = {}
        self._promotions = 0
        order = PriorityOrder(self._key, rule, how, renews=True)
        self._decision = Decision(priority_order=order)

    def observe(self, event: Event) -> None:
        """Keep the process table and the queues."""
        match event:
            case Arrived():
                self._enter(event.request, _us(event.now_s))
            case Iterated():
                now_us, ran_us = _us(event.now_s), _us(event.duration_s)
                for request in event.batch.tokens.keys() & self._calls.keys():
                    self._run(self._calls[request], ran_us, now_us)
                if self._starves_ratio is not None:
                    self._promote(self._starves_ratio, now_us)
            case Finished() if event.request.id in self._calls:
                self._end(self._calls.pop(event.request.id), _us(event.now_s))
            case AppFinished():
                self._programs.pop(event.app, None)

    def counts(self) -> dict[str, int]:
        """How often calls were promoted."""
        return {"promotions": self._promotions}

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group: the process table is of all."""
        return self._decision

    def _enter(self, request: Request, now_us: int) -> None:
        """A call comes: its queue is that of its program's service."""
        service_us = self._programs[request.app].service_us
        last = len(self._ends_us) - 1
        queue = min(int(np.searchsorted(self._ends_us, service_us, side="right")), last)
        self._calls[request.id] = _Call(
            request.app, service_us, now_us, now_us, queue, self._quanta_us[queue]
        )

    def _run(self, call: _Call, ran_us: int, now_us: int) -> None:
        """A call has run; if its quantum is used up, it goes to the end of the next queue."""
        call.ran_us += ran_us
        call.quantum_us -= ran_us
        if call.quantum_us <= 0 and call.queue + 1 < len(self._quanta_us):
            call.queue += 1
            call.quantum_us, call.entered_us = self._quanta_us[call.queue], now_us

    def _promote(self, starves_ratio: float, now_us: int) -> None:
        """Calls of programs that wait for too long go to the end of the first queue."""
        for call in self._calls.values():
            program = self._programs[call.program]
            wait_us = program.wait_us + now_us - call.since_us - call.ran_us
            service_us = program.service_us + call.ran_us
            if call.queue > 0 and wait_us >= starves_ratio * service_us:
                call.queue, call.quantum_us = 0, self._quanta_us[0]
                call.entered_us = call.since_us = now_us
                call.ran_us = 0
                self._promotions += 1

    def _end(self, call: _Call, now_us: int) -> None:
        """A call has ended: its program's entry is updated."""
        program = self._programs[call.program]
        program.wait_us += now_us - call.since_us - call.ran_us
        if self._is_total:
            program.service_us += call.ran_us
        else:
            program.service_us = max(program.service_us, call.inherited_us + call.ran_us)

    def _key(self, table: RequestTable) -> Floats:
        """Queues, and in each the time of entry."""
        calls = map(self._calls.get, map(RequestId, table.id.tolist()))
        # Requests that have not come yet may be asked about ahead, and are then asked again.
        places = (np.inf if it is None else _PER_QUEUE * it.queue + it.entered_us for it in calls)
        return np.fromiter(places, np.float64, len(table.id))


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
