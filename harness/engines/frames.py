"""What a run leaves: one row per request, per application and per run of a unit."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.engines.recorder import Recorder
from harness.engines.state import SWAP_BYTES, SWAP_S, SWAPS, Floats, Ints, RequestArrays
from harness.interface.apps import Apps
from harness.workloads.workload import Workload


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
