"""Figures of a run from its recorded columns. Pure functions; unfinished requests are counted."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.costs.model_facts import unknown_name
from harness.engines.recorder import GpuUse

FIGURES = (
    *("inference_s", "extra_s", "end_to_end_s"),
    *("load_s", "gpu_busy_s", "gpu_loading_s", "gpu_idle_s"),
    *("requests", "unfinished", "jct_s_mean", "jct_s_p99", "ttft_s_mean", "ttft_s_p99"),
    *("tpot_s_mean", "tpot_s_p99", "waiting_s_max", "output_tokens", "preemptions"),
    *("planned_inference_s", "planned_error", "load_s_min", "load_s_max"),
)
"""Every figure of a run's summary."""


def check_shown(shows: Sequence[str], *, drawn: bool) -> None:
    """Raise ValueError for a figure that no run has; where costs are `drawn` it has intervals."""
    ends = [f"uncertainty.{name}.{end}" for name in FIGURES for end in ("low", "high")]
    known = dict.fromkeys((*FIGURES, *(ends if drawn else ())))
    if unknown := [name for name in shows if name not in known]:
        raise ValueError(unknown_name("figure of a run", unknown[0], known))


def request_figures(requests: pd.DataFrame, *, horizon_s: float) -> dict[str, float]:
    """Latencies over all requests that came; an unfinished one enters at its age, a lower bound.

    One that would have come after the horizon, or waits for others then, is only unfinished.
    """
    figures = {
        "requests": float(len(requests)),
        "unfinished": float(requests["finished_s"].isna().sum()),
    }
    requests = requests[requests["arrival_s"] <= horizon_s]
    finished = requests["finished_s"].notna()
    ends_s = requests["finished_s"].fillna(horizon_s)
    jct_s = ends_s - requests["arrival_s"]
    ttft_s = requests["first_token_s"].fillna(horizon_s) - requests["arrival_s"]
    waiting_s = requests["started_s"].fillna(horizon_s) - requests["arrival_s"]
    decoding = finished & (requests["output_tokens"] > 1)
    tpot_s = ((ends_s - requests["first_token_s"]) / (requests["output_tokens"] - 1))[decoding]
    for name, values in (("jct_s", jct_s), ("ttft_s", ttft_s), ("tpot_s", tpot_s)):
        figures[f"{name}_mean"] = float(values.mean()) if len(values) else np.nan
        figures[f"{name}_p99"] = float(values.quantile(0.99)) if len(values) else np.nan
    figures["waiting_s_max"] = float(waiting_s.max()) if len(waiting_s) else np.nan
    figures["output_tokens"] = float(requests["output_tokens"].sum())
    figures["preemptions"] = float(requests["preemptions"].sum())
    return figures


def gpu_figures(intervals: pd.DataFrame, *, gpus: int, horizon_s: float) -> dict[str, float]:
    """GPU seconds spent busy, loading and idle from 0 to the horizon, over all GPUs.

    `load_s` is when the first iteration begins: the loading that nothing hides.
    """
    length_s = intervals["end_s"] - intervals["start_s"]
    spent = {use: float(length_s[intervals["use"] == use.value].sum()) for use in GpuUse}
    begins_s = intervals["start_s"][intervals["use"] == GpuUse.BUSY.value]
    return {
        "load_s": float(begins_s.min()) if len(begins_s) else np.nan,
        "gpu_busy_s": spent[GpuUse.BUSY],
        "gpu_loading_s": spent[GpuUse.LOADING],
        "gpu_idle_s": gpus * horizon_s - sum(spent.values()),
    }


def offline_figures(
    requests: pd.DataFrame,
    decision_s: Mapping[str, list[float]],
    cut_off_s: float | None = None,
) -> dict[str, float]:
    """Inference time (last finish), extra time (wall-clock seconds of planning), and their sum.

    Where the run was cut off, inference took that long at least.
    """
    inference_s = float(requests["finished_s"].max()) if cut_off_s is None else cut_off_s
    extra_s = float(sum(decision_s.get("place", [])))
    return {"inference_s": inference_s, "extra_s": extra_s, "end_to_end_s": inference_s + extra_s}
