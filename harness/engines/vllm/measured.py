"""What timed iterations add up to: times of every request, busy intervals and the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.engines.recorder import GpuUse, Recorder, record, row_of
from harness.engines.state import Floats, RequestArrays
from harness.engines.token_gaps import note_batch
from harness.engines.vllm.step import Iteration
from harness.interface.entities import Group
from harness.workloads.workload import Workload


@dataclass(slots=True)
class Life:
    """When a group was asked for, had loaded and ended, in seconds of the run."""

    group: Group
    asked_s: float
    ready_s: float = np.inf
    ended_s: float = np.inf


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
        self._busy_s: dict[Group, list[tuple[float, float]]] = {}

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
        if sampled is None:
            for group, busy_s in self._busy_s.items():
                self._recorder.intervals(group, GpuUse.BUSY, np.array(busy_s, np.float64))
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
        for request in iteration.decision.preempt:
            arrays.preemptions[request] += 1
            arrays.preempted_at_s[request] = iteration.start_s
            arrays.kv[request] = 0
        self._recorder.decided("schedule", iteration.decided_s - iteration.start_s)
        if self._recorder.keep_times:
            self._recorder.times.append(iteration.times)
        seconds = iteration.end_s - iteration.start_s
        busy_s = iteration.scheduled_s, iteration.computed_s
        self._busy_s.setdefault(group, []).append(busy_s)
        work = iteration.work(arrays.kv)
        row = row_of(iteration.start_s, seconds, 1, work, iteration.use)
        self._recorder.iteration(group, row)
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
