"""What timed iterations add up to: times of every request, busy intervals and the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness.engines.frames import record
from harness.engines.iteration_log import LogRow, row_of
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.state import LOG_COLUMNS, RequestArrays
from harness.engines.token_gaps import note_batch
from harness.engines.vllm.step import Iteration
from harness.interface.entities import Group, Work
from harness.workloads.workload import Workload

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Life:
    """When a group was asked for, had loaded and ended, in seconds of the run."""

    group: Group
    asked_s: float
    ready_s: float = np.inf
    ended_s: float = np.inf


@dataclass(slots=True)
class _Account:
    """What a group's iterations add up to."""

    busy_s: list[tuple[float, float]] = field(default_factory=list)
    rows: list[LogRow] = field(default_factory=list)


class Measured:
    """Keeps iterations while a run goes on, and works them out when no reader waits any more.

    With `at_once` they are worked out as they come: the arrays are always up to date.
    """

    def __init__(
        self, workload: Workload, arrays: RequestArrays, recorder: Recorder, *, at_once: bool
    ) -> None:
        """Times go into the arrays, everything to the recorder."""
        self._workload, self._arrays, self._recorder = workload, arrays, recorder
        self._at_once = at_once
        self._kept: list[tuple[Group, Iteration]] = []
        self._accounts: dict[Group, _Account] = {}

    def keep(self, group: Group, iterations: Sequence[Iteration]) -> None:
        """A group has computed these."""
        self._kept.extend((group, iteration) for iteration in iterations)
        if self._at_once:
            self.work_out()

    def withdrawn(self, requests: Sequence[int], now_s: float) -> None:
        """These have left their group, and their KV with it."""
        for request in requests:
            if self._arrays.kv[request] > 0:
                self._arrays.preemptions[request] += 1
                self._arrays.preempted_at_s[request] = now_s
                self._arrays.kv[request] = 0

    def work_out(self) -> None:
        """Bring the arrays up to date."""
        for kept in self._kept:
            self._note(*kept)
        self._kept.clear()

    def write(
        self,
        lives: Sequence[Life],
        sampled: Mapping[int, Floats] | None,
        lag_s: Floats,
    ) -> None:
        """Everything to the recorder.

        Busy intervals are those that the driver of each GPU counted while a group lived on it,
        where they were `sampled`. `lag_s` is how late each request was taken in (`Client`).
        """
        self.work_out()
        for life in lives:
            if sampled is not None:
                self._write_sampled(life, sampled)
            loading_s = np.array([[life.asked_s, life.ready_s]])
            if life.ready_s > life.asked_s:
                self._recorder.intervals(life.group, GpuUse.LOADING, loading_s)
        for group, account in self._accounts.items():
            if sampled is None:
                busy_s = np.array(account.busy_s, np.float64).reshape(-1, 2)
                self._recorder.intervals(group, GpuUse.BUSY, busy_s)
            rows = np.array(account.rows, np.float64).reshape(-1, len(LOG_COLUMNS))
            self._recorder.iterations(group, rows)
        record(self._workload, self._arrays, self._recorder)
        requests = self._recorder.requests
        requests["lag_s"] = lag_s[requests["request"]]

    def _write_sampled(self, life: Life, sampled: Mapping[int, Floats]) -> None:
        for gpu in life.group.gpus:
            alone = replace(life.group, gpus=(gpu,))
            busy_s = sampled[int(gpu)].clip(life.ready_s, life.ended_s)
            self._recorder.intervals(alone, GpuUse.BUSY, busy_s[busy_s[:, 0] < busy_s[:, 1]])

    def _note(self, group: Group, iteration: Iteration) -> None:
        arrays = self._arrays
        account = self._accounts.setdefault(group, _Account())
        for request in iteration.decision.preempt:
            arrays.preemptions[request] += 1
            arrays.preempted_at_s[request] = iteration.start_s
            arrays.kv[request] = 0
        self._recorder.decided("schedule", iteration.decided_s - iteration.start_s)
        if self._recorder.keep_times:
            self._recorder.times.append(iteration.times)
        seconds = iteration.end_s - iteration.start_s
        account.busy_s.append((iteration.scheduled_s, iteration.computed_s))
        account.rows.append(self._row(iteration))
        for request, tokens in iteration.batch.tokens.items():
            if np.isnan(arrays.started_s[request]):
                arrays.started_s[request] = iteration.start_s
            elif not np.isnan(arrays.preempted_at_s[request]):
                arrays.preempted_s[request] += iteration.start_s - arrays.preempted_at_s[request]
                arrays.preempted_at_s[request] = np.nan
            arrays.kv[request] += tokens
            arrays.gpu_s[request] += seconds
            if request in iteration.prompts:
                arrays.prefill_s[request] += seconds
            made = iteration.made.get(request, 0)
            if made and arrays.generated[request] == 0:
                arrays.first_token_s[request] = iteration.end_s
            arrays.generated[request] += made
        making = np.array([request for request, made in iteration.made.items() if made], np.int64)
        note_batch(arrays.rows, arrays.gaps, making, iteration.end_s, 0.0, iteration.end_s, 1)
        for request in iteration.finished:
            arrays.finished_s[request] = iteration.end_s
            arrays.kv[request] = 0

    def _row(self, iteration: Iteration) -> LogRow:
        """The iteration as a row of the log."""
        kv = self._arrays.kv
        tokens = iteration.batch.tokens
        chunks = [(int(kv[r]), n) for r, n in tokens.items() if r in iteration.prompts]
        contexts = [int(kv[r]) + 1 for r in tokens if r not in iteration.prompts]
        total = sum(n for _, n in chunks)
        work = Work(
            prefill_requests=len(chunks),
            prefill_tokens=total,
            prefill_padded_tokens=total,
            prefill_attended=sum(n * (2.0 * (held + n) - n) for held, n in chunks),
            decode_requests=len(contexts),
            context_tokens=sum(contexts),
            longest_tokens=max(contexts, default=0),
        )
        seconds = iteration.end_s - iteration.start_s
        return row_of(iteration.start_s, seconds, 1, work, iteration.use)
