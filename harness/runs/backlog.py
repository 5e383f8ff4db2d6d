"""What a machine serves of a backlog: requests a busy second, while it is full.

All requests are there at once. At last few of them run, so that seconds are counted until four in
five have ended; idle ones, which sessions have while users think, are left out. The seconds before
the first answer are in, so that of few requests it is less than a machine could serve for long.
"""

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.engines.recorder import GpuUse
from harness.runs.metrics import of_use

UNTIL = 0.8
"""Share of the requests that have ended then."""


def served_per_s(run: "pd.Series[Any]") -> float:
    """Requests that a run of a backlog, a row of `read_summaries`, served a busy second.

    Busy seconds are the mean over the GPUs that were.
    """
    folder = Path(str(run["folder"]))
    requests = pd.read_parquet(folder / "requests.parquet")
    gpu = pd.read_parquet(folder / "gpu.parquet")
    ends_s = np.sort(requests["finished_s"].dropna().to_numpy(np.float64))
    busy_s = _busy_s(gpu[of_use(gpu, GpuUse.BUSY)], ends_s)
    ended = ceil(UNTIL * len(ends_s))
    return float(ended / busy_s[ended - 1])


def _busy_s(busy: pd.DataFrame, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Busy seconds until each of these times, the mean over the GPUs with any."""
    found = []
    for _, intervals in busy.groupby("gpu"):
        rows = intervals.sort_values("start_s")
        start_s, end_s = rows["start_s"].to_numpy(float), rows["end_s"].to_numpy(float)
        times_s = np.stack([start_s, np.maximum(start_s, end_s)], axis=1).ravel()
        spent_s = np.stack([np.zeros(len(start_s)), end_s - start_s], axis=1).ravel().cumsum()
        found.append(np.interp(at_s, times_s, spent_s))
    mean: NDArray[np.float64] = np.mean(found, axis=0)
    return mean
