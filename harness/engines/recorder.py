"""Collects what an engine reports, as columns ready for the run folder."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.engines.iteration_log import LogRow
from harness.engines.state import BRIEF, LOG_COLUMNS
from harness.engines.token_gaps import BINS
from harness.interface.entities import Group, ServiceId
from harness.interface.events import Arrived, Event, Finished


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
    gaps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
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
    _intervals: list[tuple[Group, GpuUse, NDArray[np.float64]]] = field(default_factory=list)
    _iterations: list[tuple[Group, NDArray[np.float64]]] = field(default_factory=list)
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

    def intervals(self, group: Group, use: GpuUse, spans_s: NDArray[np.float64]) -> None:
        """(start, end) rows, in seconds, during which all GPUs of a group were in use."""
        if len(spans_s):
            self._intervals.append((group, use, spans_s))

    def iterations(self, group: Group, rows: NDArray[np.float64]) -> None:
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
