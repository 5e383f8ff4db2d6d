"""Seconds in which GPUs are busy, load and are idle, and what a full machine serves in them."""

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.engines.recorder import GpuUse

Floats = NDArray[np.float64]

UNTIL = 0.8
"""Share of the requests of a backlog that have ended when few are left to run."""


def gpu_figures(intervals: pd.DataFrame, *, gpus: int, horizon_s: float) -> dict[str, float]:
    """GPU seconds spent busy, loading and idle from 0 to the horizon, over all GPUs.

    A second in which a GPU runs several batches is one busy second, and one in which it loads
    beside a batch is both busy and loading; idle is what is neither. `load_s` is when the first
    iteration begins: the loading that nothing hides. `gpus_used` counts the GPUs that were ever
    busy or loading.
    """
    if intervals.empty:
        idle = {"gpu_busy_s": 0.0, "gpu_loading_s": 0.0, "gpu_idle_s": gpus * horizon_s}
        return {"load_s": np.nan, **idle, "gpus_used": 0.0}
    codes = pd.factorize(intervals["gpu"])[0]
    start_s, end_s = (
        np.minimum(intervals[name].to_numpy(np.float64), horizon_s) for name in ("start_s", "end_s")
    )
    order = np.lexsort((start_s, codes))
    codes, start_s, end_s = codes[order], start_s[order], end_s[order]
    use = intervals["use"].to_numpy(object)[order]
    busy, loading = use == GpuUse.BUSY.value, use == GpuUse.LOADING.value
    begins_s = intervals["start_s"].to_numpy(np.float64)[order][busy]
    return {
        "load_s": float(begins_s.min()) if len(begins_s) else np.nan,
        "gpu_busy_s": _covered_s(codes[busy], start_s[busy], end_s[busy]),
        "gpu_loading_s": _covered_s(codes[loading], start_s[loading], end_s[loading]),
        # What rounding leaves is no idle time.
        "gpu_idle_s": max(0.0, gpus * horizon_s - _covered_s(codes, start_s, end_s)),
        "gpus_used": float(intervals["gpu"].nunique()),
    }


def _covered_s(codes: NDArray[np.intp], start_s: Floats, end_s: Floats) -> float:
    """Seconds in which any of a GPU's intervals lies, over all GPUs; by GPU and start."""
    total_s = 0.0
    for gpu in np.unique(codes):
        first, behind = np.searchsorted(codes, [gpu, gpu + 1])
        begins_s, ends_s = start_s[first:behind], end_s[first:behind]
        # What is covered already when an interval begins: the latest end of those before it.
        before_s = np.maximum.accumulate(ends_s)[:-1]
        twice_s = np.minimum(before_s, ends_s[1:]) - begins_s[1:]
        total_s += (ends_s - begins_s).sum() - np.maximum(twice_s, 0.0).sum()
    return float(total_s)


def served_per_s(run: "pd.Series[Any]") -> float:
    """Requests that a run of a backlog, a row of `read_summaries`, served a busy second.

    All requests are there at once. At last few of them run, so that seconds are counted until four
    in five have ended: the mean over the GPUs that were busy. Idle seconds, which sessions have
    while users think, are left out. The seconds before the first answer are in, so that of few
    requests it is less than a machine could serve for long.
    """
    folder = Path(str(run["folder"]))
    requests = pd.read_parquet(folder / "requests.parquet")
    gpu = pd.read_parquet(folder / "gpu.parquet")
    ends_s = np.sort(requests["finished_s"].dropna().to_numpy(np.float64))
    busy_s = _busy_s(gpu[gpu["use"] == GpuUse.BUSY.value], ends_s)
    ended = ceil(UNTIL * len(ends_s))
    return float(ended / busy_s[ended - 1])


def _busy_s(busy: pd.DataFrame, at_s: Floats) -> Floats:
    """Busy seconds until each of these times, the mean over the GPUs with any."""
    found = []
    for _, intervals in busy.groupby("gpu"):
        rows = intervals.sort_values("start_s")
        start_s, end_s = rows["start_s"].to_numpy(float), rows["end_s"].to_numpy(float)
        times_s = np.stack([start_s, np.maximum(start_s, end_s)], axis=1).ravel()
        spent_s = np.stack([np.zeros(len(start_s)), end_s - start_s], axis=1).ravel().cumsum()
        found.append(np.interp(at_s, times_s, spent_s))
    mean: Floats = np.mean(found, axis=0)
    return mean
