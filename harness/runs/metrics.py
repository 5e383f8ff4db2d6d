"""Figures of a run from its recorded columns. Pure functions; unfinished requests are counted."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.model_facts import unknown_name
from harness.engines.recorder import GpuUse
from harness.engines.token_gaps import gap_quantile

Bools = NDArray[np.bool_]
Codes = NDArray[np.intp]
Floats = NDArray[np.float64]

FIGURES = (
    *("inference_s", "extra_s", "end_to_end_s"),
    *("load_s", "gpu_busy_s", "gpu_loading_s", "gpu_idle_s", "gpus_used"),
    *("requests", "unfinished", "waiting_s_max", "output_tokens", "preemptions"),
    *("swaps", "swapped_bytes", "swap_s", "cached_tokens", "prefix_hit_ratio"),
    *(
        f"{latency}_{figure}"
        for latency in ("jct_s", "ttft_s", "tpot_s", "normalized_s")
        for figure in ("mean", "p50", "p90", "p95", "p99", "count")
    ),
    *("itl_s_mean", "itl_s_p50", "itl_s_p90", "itl_s_p95", "itl_s_p99", "itl_s_max", "itl_s_count"),
    *("requests_per_s", "output_tokens_per_s", "tokens_per_s", "slo_attainment", "goodput_per_s"),
    *("service_difference_max", "fairness_jain", "outside_profile_share"),
    *("planned_inference_s", "planned_error", "load_s_min", "load_s_max", "kv_utilization"),
    *("scheduling_s_per_iteration", "scheduling_share"),
    *("applications", "applications_unfinished", "act_s_mean", "act_s_p95", "deadlines_met"),
    *("backend_hits", "backend_wait_s_mean", "backend_idle_s_mean"),
)
"""Every figure of a run's summary, but those of its classes, decisions and counts."""

NESTED = ("by.", "decisions.", "counts.")
"""How those begin: by.tenant.NAME.jct_s_mean, decisions.schedule.s_mean, counts.NAME."""


def check_shown(shows: Sequence[str], *, drawn: bool) -> None:
    """Raise ValueError for a figure that no run has; where costs are `drawn` it has intervals."""
    ends = [end for name in FIGURES for end in span_of(name)]
    known = dict.fromkeys((*FIGURES, *(ends if drawn else ())))
    if unknown := [name for name in shows if name not in known and not name.startswith(NESTED)]:
        raise ValueError(unknown_name("figure of a run", unknown[0], known))


def span_of(figure: str) -> tuple[str, str]:
    """Columns with the ends of a figure's interval, where costs were drawn."""
    return f"uncertainty.{figure}.low", f"uncertainty.{figure}.high"


LIVED = ("arrival_s", "first_token_s", "started_s", "finished_s", "output_tokens")
"""Columns of requests that latencies are made of."""
GAP = "longest_gap_s"
"""Column of the longest time between two tokens of a request."""
SUMMED = ("output_tokens", "preemptions", "swaps", "swapped_bytes", "swap_s")
"""Columns of requests that are added up."""
CACHED = ("prompt_tokens", "cached_tokens")
"""Columns of requests that a hit ratio is made of, where prefixes are cached."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Of latencies; one needs a sample beyond it: P99 a hundred, P95 twenty."""
CLASSES = ("service", "tenant", "kind")
"""Columns of requests by which figures are told apart."""
MOST_NAMES = 100
"""Names in such a column; more would make a summary longer than the table it sums up."""


def latencies(requests: pd.DataFrame, *, horizon_s: float) -> pd.DataFrame:
    """Seconds of each request: jct_s, ttft_s, waiting_s, tpot_s, normalized_s; `finished`.

    What has not happened by the horizon enters at its age there, a lower bound. Time per output
    token is NaN where there is none: of unfinished requests, of single tokens, and where all
    tokens came at once (request-level batches). Normalized latency is JCT per output token of what
    is finished (arXiv 2309.06180 sec. 6.1).
    """
    found = _latencies(_columns(requests), horizon_s=horizon_s)
    return pd.DataFrame(found, index=requests.index)


def _columns(requests: pd.DataFrame) -> dict[str, Floats]:
    """What figures of requests are made of: to take a table apart again and again is slow."""
    names = dict.fromkeys((*LIVED, *SUMMED, *CACHED, GAP))
    return {name: requests[name].to_numpy(np.float64) for name in names if name in requests}


def _latencies(requests: Mapping[str, Floats], *, horizon_s: float) -> dict[str, Floats | Bools]:
    arrival_s, first_s, started_s, ends_s, tokens = (requests[name] for name in LIVED)
    finished = ~np.isnan(ends_s)
    ends_s = np.where(finished, ends_s, horizon_s)
    streams = finished & (tokens > 1) & (ends_s > first_s)
    gaps = np.where(streams, tokens - 1, np.nan)
    answers = np.where(finished & (tokens > 0), tokens, np.nan)
    return {
        "jct_s": ends_s - arrival_s,
        "ttft_s": np.where(np.isnan(first_s), horizon_s, first_s) - arrival_s,
        "waiting_s": np.where(np.isnan(started_s), horizon_s, started_s) - arrival_s,
        "tpot_s": (ends_s - first_s) / gaps,
        "normalized_s": (ends_s - arrival_s) / answers,
        "finished": finished,
    }


def percentile(values: Floats, share: float) -> float:
    """The quantile of values, in their unit; NaN of fewer than 1 / (1 - share) values."""
    enough = len(values) * (1.0 - share) >= 1.0 - 1e-9
    return float(np.quantile(values, share)) if enough else np.nan


def spread(values: Floats) -> dict[str, float]:
    """Mean, percentiles and count of values without NaN, by the names of figures."""
    return {
        "mean": float(values.mean()) if len(values) else np.nan,
        **{name: percentile(values, share) for name, share in PERCENTILES.items()},
        "count": float(len(values)),
    }


def request_figures(
    requests: pd.DataFrame, *, horizon_s: float, begin_s: float | None = None
) -> dict[str, float]:
    """Means, percentiles and counts of latencies, throughput, tokens, preemptions and swaps.

    `itl_s_mean` is the mean gap between two tokens of an answer: that of requests, `tpot_s_mean`,
    with each counted as often as it has gaps; `itl_s_max` is the longest gap. A request that would
    have come after the horizon, or waits for others then, is only unfinished. Throughput is of what
    is finished, over the seconds from `begin_s` (None: the first arrival) to the horizon. Where
    prefixes are cached, `prefix_hit_ratio` is the part of the prompts of those that have begun
    which they found cached, else NaN.
    """
    begin_s = float(requests["arrival_s"].min()) if begin_s is None else begin_s
    return _figures(_columns(requests), begin_s=begin_s, horizon_s=horizon_s)


def _figures(
    requests: Mapping[str, Floats], *, begin_s: float, horizon_s: float
) -> dict[str, float]:
    figures = {
        "requests": float(len(requests["finished_s"])),
        "unfinished": float(np.isnan(requests["finished_s"]).sum()),
    }
    is_there = requests["arrival_s"] <= horizon_s
    if not is_there.all():
        requests = {name: values[is_there] for name, values in requests.items()}
    each = _latencies(requests, horizon_s=horizon_s)
    for name in ("jct_s", "ttft_s", "tpot_s", "normalized_s"):
        found = spread(each[name][~np.isnan(each[name])])
        figures |= {f"{name}_{figure}": value for figure, value in found.items()}
    tpot_s = each["tpot_s"]
    streams = ~np.isnan(tpot_s)
    gaps = requests["output_tokens"][streams] - 1
    count = float(gaps.sum())
    figures["itl_s_mean"] = float((tpot_s[streams] * gaps).sum()) / count if count else np.nan
    figures["itl_s_max"] = longest(requests.get(GAP, np.zeros(0)))
    waiting_s = each["waiting_s"]
    figures["waiting_s_max"] = float(np.nanmax(waiting_s)) if len(waiting_s) else np.nan
    for name in SUMMED:
        figures[name] = float(requests[name].sum())
    figures |= _throughput(requests, span_s=horizon_s - begin_s)
    figures["cached_tokens"] = figures["prefix_hit_ratio"] = np.nan
    if "cached_tokens" in requests:
        begun = ~np.isnan(requests["started_s"])
        prompts, cached = (float(requests[name][begun].sum()) for name in CACHED)
        figures["cached_tokens"] = cached
        figures["prefix_hit_ratio"] = cached / prompts if prompts else np.nan
    return figures


def longest(values: Floats) -> float:
    """The largest value that is not NaN; NaN of none."""
    there = values[~np.isnan(values)]
    return float(there.max()) if len(there) else np.nan


def gap_figures(gaps: NDArray[np.int64], *, longest_s: float) -> dict[str, float]:
    """Percentiles and count of the single gaps between tokens of all answers (inter-token latency).

    `gaps` are those of a whole run by length (`harness.engines.token_gaps`), to 1%; no percentile
    is above the longest of them, which is exact (NaN: not known).
    """
    count = int(gaps.sum())
    figures = {"itl_s_count": float(count)}
    for name, share in PERCENTILES.items():
        has_beyond = count * (1.0 - share) >= 1.0
        gap_s = float(np.fmin(gap_quantile(gaps, share), longest_s)) if has_beyond else np.nan
        figures[f"itl_s_{name}"] = gap_s
    return figures


def _throughput(requests: Mapping[str, Floats], *, span_s: float) -> dict[str, float]:
    """Finished requests, their answers' tokens, and those with their prompts', a second."""
    done = ~np.isnan(requests["finished_s"])
    outputs = float(requests["output_tokens"][done].sum())
    has_prompts = "prompt_tokens" in requests
    prompts = float(requests["prompt_tokens"][done].sum()) if has_prompts else np.nan
    totals = {"requests": done.sum(), "output_tokens": outputs, "tokens": outputs + prompts}
    return {
        f"{name}_per_s": float(total) / span_s if span_s > 0 else np.nan
        for name, total in totals.items()
    }


def class_figures(
    requests: pd.DataFrame,
    met: "pd.Series[bool] | None",
    *,
    horizon_s: float,
    begin_s: float | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """The figures of requests by service, tenant and kind, where a column has several names.

    With `met`, whether each request met its objectives, those of objectives too. Throughput and
    goodput are over the same seconds for all classes.
    """
    begin_s = float(requests["arrival_s"].min()) if begin_s is None else begin_s
    span_s = horizon_s - begin_s
    found: dict[str, dict[str, dict[str, float]]] = {}
    numbers = _columns(requests)
    for column in CLASSES:
        if column in requests and 2 <= requests[column].nunique() <= MOST_NAMES:
            found[column] = {
                str(name): _figures(
                    {n: of[rows] for n, of in numbers.items()}, begin_s=begin_s, horizon_s=horizon_s
                )
                | ({} if met is None else objective_figures(met.iloc[rows], span_s=span_s))
                for name, rows in requests.groupby(column, observed=True).indices.items()
            }
    return found


def objective_figures(met: "pd.Series[bool] | None", *, span_s: float) -> dict[str, float]:
    """Share of requests that met their objectives, and how many of those a second (goodput).

    The seconds are from the first arrival to the last answer. NaN where there are no objectives.
    """
    if met is None:
        return {"slo_attainment": np.nan, "goodput_per_s": np.nan}
    return {
        "slo_attainment": float(met.mean()) if len(met) else np.nan,
        "goodput_per_s": float(met.sum() / span_s) if span_s > 0 else np.nan,
    }


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
    busy, loading = (of_use(intervals, use)[order] for use in (GpuUse.BUSY, GpuUse.LOADING))
    begins_s = intervals["start_s"].to_numpy(np.float64)[order][busy]
    return {
        "load_s": float(begins_s.min()) if len(begins_s) else np.nan,
        "gpu_busy_s": _covered_s(codes[busy], start_s[busy], end_s[busy]),
        "gpu_loading_s": _covered_s(codes[loading], start_s[loading], end_s[loading]),
        # What rounding leaves is no idle time.
        "gpu_idle_s": max(0.0, gpus * horizon_s - _covered_s(codes, start_s, end_s)),
        "gpus_used": float(intervals["gpu"].nunique()),
    }


def of_use(intervals: pd.DataFrame, use: GpuUse) -> Bools:
    """Which of a GPU's intervals are of this use."""
    found: Bools = intervals["use"].to_numpy(object) == use.value
    return found


def _covered_s(codes: Codes, start_s: Floats, end_s: Floats) -> float:
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


def kv_utilization(iterations: pd.DataFrame | None, capacity_tokens: Mapping[str, float]) -> float:
    """Share of the KV memory that requests hold, over the seconds of iterations and all groups.

    `iterations` is the log of a run, whose rows grow by a token for each decoding request and
    iteration; `capacity_tokens` what each group has room for. NaN where no log was kept.
    """
    if iterations is None:
        return np.nan
    columns = ("held_tokens", "decode_requests", "iterations", "duration_s")
    held, decodes, count, seconds = (iterations[name].to_numpy(np.float64) for name in columns)
    room = iterations["group"].map(capacity_tokens).to_numpy(np.float64)
    whole = float((room * seconds).sum())
    return float(((held + decodes * (count - 1) / 2) * seconds).sum()) / whole if whole else np.nan


def decision_figures(decision_s: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """How many decisions of every kind were made, and their wall-clock seconds: mean, p99, sum.

    An order that is compiled is asked for less often than batches are: compare policies by
    `scheduling_figures`.
    """
    return {
        what: {
            "count": float(len(seconds)),
            "s_mean": float(np.mean(seconds)),
            "s_p99": float(np.quantile(seconds, 0.99)),
            "s_sum": float(np.sum(seconds)),
        }
        for what, seconds in decision_s.items()
        if seconds
    }


def scheduling_figures(
    schedule_s: Sequence[float], *, iterations: int, groups: int, horizon_s: float
) -> dict[str, float]:
    """Wall-clock seconds of deciding and filling batches, per iteration and as a share of the run.

    `iterations` is how many were decided in these seconds, over all groups. The share is of the
    seconds of each group until the horizon, in which the decisions are if they were charged.
    NaN where decisions were not timed: fewer seconds are then logged for policies asked less often.
    """
    spent_s, all_s = float(sum(schedule_s)), groups * horizon_s
    return {
        "scheduling_s_per_iteration": spent_s / iterations if iterations else np.nan,
        "scheduling_share": spent_s / all_s if iterations and all_s > 0 else np.nan,
    }


def offline_figures(
    requests: pd.DataFrame,
    decision_s: Mapping[str, list[float]],
    cut_off_s: float | None = None,
) -> dict[str, float]:
    """Inference time (last finish), extra time (wall-clock seconds of planning), and their sum."""
    ends_s = inference_s(requests, cut_off_s)
    extra_s = float(sum(decision_s.get("place", [])))
    return {"inference_s": ends_s, "extra_s": extra_s, "end_to_end_s": ends_s + extra_s}


def inference_s(requests: pd.DataFrame, cut_off_s: float | None) -> float:
    """When the last request finished; where the run was cut off, it took that long at least."""
    return float(requests["finished_s"].max()) if cut_off_s is None else cut_off_s
