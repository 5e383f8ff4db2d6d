"""Designed batches through the loop of a run, every iteration timed.

Profiles are fitted to them, and a few of them say how fast a machine is at the moment.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd

from harness.engines.recorder import Recorder
from harness.engines.vllm.client import Client
from harness.engines.vllm.designed import (
    ANSWER_TOKENS,
    COLUMNS,
    SHORT_PROMPT,
    Designed,
    design,
    is_short,
)
from harness.engines.vllm.group import Report, VllmGroup
from harness.engines.vllm.options import VllmOptions
from harness.engines.vllm.run import VllmRun
from harness.engines.vllm.step import Iteration
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import Group, Service
from harness.interface.events import Event
from harness.interface.policies import Capability, System
from harness.interface.views import GroupView
from harness.workloads.workload import Workload

COMPUTED = (
    *("prefill_requests", "prefill_tokens", "prefill_attended"),
    *("decode_requests", "context_tokens", "longest_tokens"),
)
"""Fields of `Work` that are the first of `COLUMNS`."""
SHORT_S = 2.0
"""No round of these begins later than so many seconds after the first."""


class InOrder:
    """Requests in the order of their arrival, filled by one rule."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, budget: int, most_requests: int, *, cuts: bool = True) -> None:
        """Batches of at most so many tokens and requests; whether prompts are cut to fit."""
        rule = ContinuousBatching(
            chunked_prefill=cuts,
            pads_prompts=False,
            max_num_seqs=min(most_requests, budget),
            max_num_batched_tokens=budget,
            max_padding_tokens=0,
            watermark=0.0,
        )
        self._decision = Decision(priority_order=PriorityOrder(None, rule))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same order always."""
        return self._decision


class _ByIteration(Client):
    """Requests come by the number of iterations that have been computed, not by the clock."""

    def __init__(self, count: int, gap: int, computed: Callable[[], int]) -> None:
        self.lag_s = np.zeros(count)
        self._left = list(range(count))
        self._gap, self._computed = gap, computed

    def start(self) -> None:
        """Nothing to begin."""

    def was_busy(self) -> None:
        """It does not look at the clock."""

    @property
    def is_through(self) -> bool:
        """Whether all have come."""
        return not self._left

    def arrived(self) -> Iterator[list[int]]:
        """All at once, or one after so many iterations."""
        if self._left and self._computed() % max(1, self._gap) == 0:
            yield self._take()

    def _take(self) -> list[int]:
        count = 1 if self._gap else len(self._left)
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def wait(self, seconds: float) -> list[int]:
        """Nothing runs: the next one comes."""
        return self._take()


class _TimedRun(VllmRun):
    """A run that notes when each round of its loop begins and has taken requests in."""

    def __init__(
        self, options: VllmOptions, workload: Workload, system: System, *, gap: int
    ) -> None:
        self.gap = gap
        self.rounds: list[tuple[float, float, int]] = []
        self.timed: list[Iteration] = []
        super().__init__(options=options, workload=workload, system=system, recorder=Recorder())

    def new_client(self) -> Client:
        """One that counts iterations."""
        return _ByIteration(len(self.workload), self.gap, lambda: len(self.timed))

    def loop(self) -> None:
        """As every run's. ValueError for several groups, whose iterations no round tells apart."""
        if len(self.groups.live) != 1:
            raise ValueError(
                f"{len(self.groups.live)} groups: designed batches are timed in one group; set "
                "engine.speed_sweep=false"
            )
        super().loop()

    def _arrive(self) -> None:
        begin_s, before = self.clock(), len(self.prompts.submitted)
        super()._arrive()
        self.rounds.append((begin_s, self.clock(), len(self.prompts.submitted) - before))

    def _account(self, group: Group, report: Report) -> None:
        super()._account(group, report)
        self.timed.extend(report.iterations)

    def rows(self) -> pd.DataFrame:
        """`COLUMNS` of every iteration, in order."""
        kv = np.zeros(len(self.workload), np.int64)
        ends_s = [*(begin_s for begin_s, _, _ in self.rounds[1:]), self.timed[-1].end_s]
        rows = []
        for round_, iteration, end_s in zip(self.rounds, self.timed, ends_s, strict=True):
            begin_s, received_s, count = round_
            seconds = (
                received_s - begin_s,
                iteration.scheduled_s - received_s,
                iteration.computed_s - iteration.scheduled_s,
                end_s - iteration.computed_s,
            )
            work = iteration.work(kv)
            rows.append((*(getattr(work, name) for name in COMPUTED), count, *seconds))
            for request, tokens in iteration.batch.tokens.items():
                kv[request] += tokens
        return pd.DataFrame(rows, columns=list(COLUMNS))


def timed(
    options: VllmOptions,
    services: Sequence[Service],
    system: System,
    *,
    service: int,
    designed: Designed,
) -> pd.DataFrame:
    """`COLUMNS` of every iteration of one run, whose requests are all of one of the services.

    The engines stay in `options.loaded`. Answers differ in length, so that batches shrink. Where
    services share a group, prompts are not cut.
    """
    count = len(designed.prompts)
    numbers = np.arange(count, dtype=np.int64)
    workload = Workload(
        services=tuple(services),
        service=np.full(count, service, np.int64),
        arrival_s=np.zeros(count),
        prompt_tokens=np.array(designed.prompts, np.int64),
        output_tokens=ANSWER_TOKENS + numbers % ANSWER_TOKENS,
        max_output_tokens=np.full(count, 2 * ANSWER_TOKENS),
        app=numbers,
        deadline_s=np.full(count, np.nan),
    )
    policy = InOrder(designed.budget, options.max_num_seqs, cuts=len(services) == 1)
    own = replace(system, scheduling=policy, prewarm=None, predictor=None)
    plain = replace(options, horizon_s=None, loads_first=True, forces_lengths=True)
    plain = replace(plain, keep_answers=False, containers=None, texts=None)
    run = _TimedRun(plain, workload, own, gap=designed.gap)
    run.serve()
    return run.rows()


def how_fast(options: VllmOptions, services: Sequence[Service], system: System) -> pd.DataFrame:
    """`COLUMNS`, `service` and `round` of the few runs that say how fast the machine is now.

    All are run once, and again as long as `SHORT_S` are not over.

    Raises ValueError where the groups are not in this process.
    """
    found = []
    for number, service in enumerate(services):
        first = Designed((SHORT_PROMPT,), options.max_num_batched_tokens, 0)
        timed(options, services, system, service=number, designed=first)
        (group,) = (it for it in options.loaded.values() if service.id in it.by_service)
        runs = [*filter(is_short, fitting_design(group, options, service))]
        if len(services) > 1:
            runs = [run for run in runs if max(run.prompts) <= run.budget]
        started_s, rounds = time.monotonic(), 0
        while time.monotonic() - started_s < SHORT_S:
            for designed in runs:
                rows = timed(options, services, system, service=number, designed=designed)
                found.append(rows.assign(service=str(service.id), round=rounds))
            rounds += 1
    return pd.concat(found, ignore_index=True)


def fitting_design(group: VllmGroup, options: VllmOptions, service: Service) -> list[Designed]:
    """Every run of the design that one service of a group can serve."""
    tokens = group.kv_tokens(service.id)
    return design(tokens, options.max_num_seqs, options.max_num_batched_tokens)
