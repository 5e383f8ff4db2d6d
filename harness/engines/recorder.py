"""Collects what an engine reports and what a run leaves, as columns ready for the run folder."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from harness.core.kv_ledger import ledger_of
from harness.engines.state import (
    BRIEF,
    LOG_COLUMNS,
    SWAP_BYTES,
    SWAP_S,
    SWAPS,
    Floats,
    Ints,
    KvUse,
    RequestArrays,
)
from harness.engines.token_gaps import BINS
from harness.interface.apps import Apps
from harness.interface.entities import Group, RequestId, ServiceId, Work
from harness.interface.events import Arrived, Event, Finished
from harness.interface.views import GroupView
from harness.workloads.workload import Workload

LogRow = tuple[float, ...]
"""A run of equal iterations; see `LOG_COLUMNS`."""
_computed = attrgetter(*Work.__slots__)


class GpuUse(Enum):
    """What a GPU is doing in an interval; not listed means idle."""

    BUSY = "busy"
    LOADING = "loading"


TIMES = (
    *("start_s", "decided_s", "scheduled_s", "computed_s", "end_s"),
    *("prompts", "prompt_tokens", "decodes"),
)
"""Of an iteration of a real engine: its five times, and what it computed."""


@dataclass(slots=True)
class Recorder:
    """One run. `keep_iterations` and `keep_events` are off by default: they can be large.

    With `briefly` requests that held KV or waited need not be kept of iterations. With `keep_times`
    a real engine keeps the times of every iteration, in the columns of `TIMES`.
    `counts` are the policy's own, by name, `promotions` where its orders promote, and `groups_lost`
    where processes of groups have died.
    `timed_iterations` is how many iterations the seconds of `schedule` in `decision_s` decided
    where all of them were timed, 0 otherwise.
    `apps` and `units` are there where the workload has applications, `backends` where these have.
    `gaps` counts the gaps between tokens of all answers by length (`token_gaps`).
    `engines` says of engines that were measured, by group and service, how they were configured,
    and `speed` how fast the machine was before and after (`vllm.timed_batches`), where asked.
    `cut_off_s` is when the run was ended with requests unfinished, None where all were answered.
    """

    keep_iterations: bool = False
    briefly: bool = False
    keep_events: bool = False
    keep_times: bool = False
    cut_off_s: float | None = None
    gaps: Ints = field(default_factory=lambda: np.zeros(BINS, np.int64))
    requests: pd.DataFrame = field(default_factory=pd.DataFrame)
    apps: pd.DataFrame | None = None
    units: pd.DataFrame | None = None
    backends: pd.DataFrame | None = None
    engines: Mapping[str, Mapping[ServiceId, Mapping[str, Any]]] = field(default_factory=dict)
    speed: pd.DataFrame | None = None
    events: list[Event] = field(default_factory=list)
    times: list[LogRow] = field(default_factory=list)
    decision_s: dict[str, list[float]] = field(default_factory=dict)
    timed_iterations: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _intervals: list[tuple[Group, GpuUse, Floats]] = field(default_factory=list)
    _iterations: list[tuple[Group, Floats]] = field(default_factory=list)
    _rows: dict[Group, list[LogRow]] = field(default_factory=dict)

    @property
    def log_columns(self) -> int:
        """How many columns of `LOG_COLUMNS` are wanted of iterations, the first."""
        return (BRIEF if self.briefly else len(LOG_COLUMNS)) if self.keep_iterations else 0

    def event(self, event: Event) -> None:
        """Keep an event, if asked to."""
        if self.keep_events:
            self.events.append(event)

    def decided(self, what: str, seconds: float) -> None:
        """Wall-clock seconds that a policy took for one decision."""
        self.decision_s.setdefault(what, []).append(seconds)

    def intervals(self, group: Group, use: GpuUse, spans_s: Floats) -> None:
        """(start, end) rows, in seconds, during which all GPUs of a group were in use."""
        if len(spans_s):
            self._intervals.append((group, use, spans_s))

    def iterations(self, group: Group, rows: Floats) -> None:
        """Runs of equal iterations, one row each, in the first columns of `LOG_COLUMNS`."""
        if self.keep_iterations and len(rows):
            self._iterations.append((group, rows))

    def iteration(self, group: Group, row: LogRow) -> None:
        """One run of equal iterations, in the columns of `LOG_COLUMNS`."""
        if self.keep_iterations:
            self._rows.setdefault(group, []).append(row)

    def groups(self) -> dict[str, Group]:
        """Groups that have computed or loaded, by name."""
        return {group.id: group for group, _, _ in self._intervals}

    def deployed(self) -> set[tuple[ServiceId, int]]:
        """Services that have computed, each with the tensor-parallel degrees at which it has."""
        return {
            (service, group.tensor_parallel)
            for group, use, spans in self._intervals
            if use is GpuUse.BUSY and len(spans)
            for service in group.services
        }

    def gpu_frame(self) -> pd.DataFrame:
        """Columns gpu, group, use, start_s, end_s; ascending by gpu and start."""
        uses = [
            (gpu, group.id, use.value, spans)
            for group, use, spans in self._intervals
            for gpu in group.gpus
        ]
        if not uses:
            return pd.DataFrame({"gpu": [], "group": [], "use": [], "start_s": [], "end_s": []})
        spans_s = np.concatenate([spans for *_, spans in uses])
        row = np.repeat(np.arange(len(uses)), [len(spans) for *_, spans in uses])
        gpu, group, use = (np.array(names)[row] for names in list(zip(*uses, strict=True))[:3])
        order = np.lexsort((spans_s[:, 0], gpu))
        return pd.DataFrame(
            {
                "gpu": gpu[order],
                "group": group[order],
                "use": use[order],
                "start_s": spans_s[order, 0],
                "end_s": spans_s[order, 1],
            }
        )

    def iteration_frame(self) -> pd.DataFrame | None:
        """Every run of equal iterations by start, or None when they were not kept.

        A column that is not wanted of some groups is NaN there.
        """
        logs = [(group, np.array(rows, np.float64)) for group, rows in self._rows.items()]
        logs += self._iterations
        if not logs:
            return None
        table = np.full(
            (sum(len(rows) for _, rows in logs), max(rows.shape[1] for _, rows in logs)), np.nan
        )
        first = 0
        for _, rows in logs:
            table[first : first + len(rows), : rows.shape[1]] = rows
            first += len(rows)
        number, names = pd.factorize(np.array([group.id for group, _ in logs], object))
        codes = np.repeat(number, [len(rows) for _, rows in logs])
        order = np.argsort(table[:, 0], kind="stable")
        frame = pd.DataFrame(table[order], columns=list(LOG_COLUMNS[: table.shape[1]]))
        frame["group"] = pd.Categorical.from_codes(codes[order], categories=pd.Index(names))
        return frame


def area_under_number_s(recorder: Recorder) -> float:
    """Integral over time of the number of requests that have arrived and not finished.

    The recorder must have kept its events.
    """
    steps = [
        (event.now_s, 1 if isinstance(event, Arrived) else -1)
        for event in recorder.events
        if isinstance(event, Arrived | Finished)
    ]
    at_s, change = np.array(sorted(steps)).T
    return float((change.cumsum()[:-1] * np.diff(at_s)).sum())


# ---- a row of the log of iterations ----


def use_of(group: GroupView, service: ServiceId, running: Collection[RequestId]) -> KvUse:
    """Of a group whose ledger has the batch that is `running`."""
    kv = ledger_of(group)
    holders = kv.holders
    # An orphaned reservation is of no request.
    promises = [promise for name, promise in kv.promises.items() if name >= 0]
    promised = sum([promise.own_tokens for promise in promises])
    lent = sum([promise.loan_tokens for promise in promises])
    paused = len([name for name, held in holders.items() if held and name not in running])
    waiting = len(group.requests) - len(running) - paused
    free = kv.uncommitted_tokens(service)
    held = sum(holders.values()) - kv.shared_tokens
    return KvUse(held, promised, lent, free, waiting, paused)


def row_of(start_s: float, duration_s: float, iterations: int, work: Work, use: KvUse) -> LogRow:
    """A run of equal iterations, of which `work` and `use` are the first's; see `LOG_COLUMNS`."""
    return (start_s, duration_s, iterations, *_computed(work), *use)


# ---- requests, applications, units ----


def record(workload: Workload, arrays: RequestArrays, recorder: Recorder) -> None:
    """Give the recorder what the run leaves of requests, applications and units."""
    recorder.requests = request_frame(workload, arrays)
    recorder.gaps = arrays.gaps
    if (apps := workload.apps) is not None:
        recorder.requests = recorder.requests[~apps.outside].reset_index(drop=True)
        kind = apps.kind[recorder.requests["app"]]
        recorder.requests["kind"] = _names(apps.kinds, kind, len(kind))
        recorder.apps = app_frame(workload, apps, arrays)
        recorder.units = unit_frame(workload, apps, arrays)


def _names(names: Sequence[str], number: Ints, count: int) -> "pd.Categorical[str]":
    """A column of names; without numbers all have the first."""
    codes = number if len(number) else np.zeros(count, np.int64)
    return pd.Categorical.from_codes(codes, categories=pd.Index(names))


def request_frame(workload: Workload, arrays: RequestArrays) -> pd.DataFrame:
    """One row per request: times, tokens, preemptions, swaps; NaN where it did not come to that.

    A request waits until it starts, runs in iterations (`gpu_s`), is preempted, or pauses, holding
    KV: these seconds add up to its completion time. Of the preemptions, `swaps` sent its KV to host
    memory; `swapped_bytes` were copied there and back in `swap_s`, hidden or not. `longest_gap_s`
    is the longest time between two tokens of its answer, where they come one by one.
    `cached_tokens` of a prompt were cached as it began. Columns are not copied: there may be
    millions of rows.
    """
    count, waiting_s = len(workload), arrays.started_s - arrays.arrival_s
    swap = arrays.swap if len(arrays.swap) else np.zeros((count, arrays.swap.shape[1]))
    return pd.DataFrame(
        {
            "request": np.arange(count),
            "service": _names([str(s.id) for s in workload.services], workload.service, count),
            "app": workload.app,
            "tenant": _names(workload.tenants, workload.tenant, count),
            "deadline_s": workload.deadline_s,
            "arrival_s": arrays.arrival_s,
            "first_token_s": arrays.first_token_s,
            "finished_s": arrays.finished_s,
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": arrays.generated,
            "started_s": arrays.started_s,
            "longest_gap_s": _longest_gap_s(arrays),
            "gpu_s": arrays.gpu_s,
            "prefill_s": arrays.prefill_s,
            "waiting_s": waiting_s,
            "preempted_s": arrays.preempted_s,
            "paused_s": _paused_s(arrays),
            "preemptions": arrays.preemptions,
            "swaps": swap[:, SWAPS].astype(np.int64),
            "swapped_bytes": swap[:, SWAP_BYTES].astype(np.int64),
            "swap_s": swap[:, SWAP_S],
        }
        | ({"cached_tokens": arrays.cached} if len(arrays.cached) else {}),
        copy=False,
    )


def _paused_s(arrays: RequestArrays) -> Floats:
    """Seconds from start to end in which a request neither ran nor was preempted."""
    waiting_s = arrays.started_s - arrays.arrival_s
    paused_s = arrays.finished_s - arrays.arrival_s - waiting_s - arrays.gpu_s - arrays.preempted_s
    # What rounding leaves is no pause.
    np.multiply(paused_s, 0.0, out=paused_s, where=np.abs(paused_s) <= 1e-9)
    return paused_s


def _longest_gap_s(arrays: RequestArrays) -> Floats:
    """Longest time between two tokens of each request; NaN of none, and of what rounding leaves."""
    return np.where(arrays.longest_gap_s > 1e-9, arrays.longest_gap_s, np.nan)


def app_frame(workload: Workload, apps: Apps, arrays: RequestArrays) -> pd.DataFrame:
    """One row per application: when it came and was done, NaN where it is not."""
    count = len(apps.kind)
    arrived_s, deadline_s = np.zeros(count), np.zeros(count)
    arrived_s[workload.app], deadline_s[workload.app] = workload.arrival_s, workload.deadline_s
    return pd.DataFrame(
        {
            "app": np.arange(count),
            "kind": _names(apps.kinds, apps.kind, count),
            "arrived_s": arrived_s,
            "finished_s": _last_s(workload.app, arrays.finished_s, count),
            "deadline_s": deadline_s,
        }
    )


def unit_frame(workload: Workload, apps: Apps, arrays: RequestArrays) -> pd.DataFrame:
    """One row per run of a unit; NaN where it has not begun, or is not done."""
    calls = np.bincount(apps.instance)
    row = np.zeros(len(calls), np.int64)
    row[apps.instance] = np.arange(len(workload))
    started_s = arrays.arrival_s[row]
    return pd.DataFrame(
        {
            "app": workload.app[row],
            "unit": _names(apps.units, apps.unit[row], len(row)),
            "outside": apps.outside[row],
            "started_s": np.where(np.isfinite(started_s), started_s, np.nan),
            "finished_s": _last_s(apps.instance, arrays.finished_s, len(calls)),
            "calls": calls,
        }
    )


def _last_s(number: Ints, finished_s: Floats, count: int) -> Floats:
    """The last of the times of each number; NaN where one of them is."""
    last_s = np.full(count, -np.inf)
    np.maximum.at(last_s, number, finished_s)
    return last_s
