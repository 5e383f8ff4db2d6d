"""Latencies, throughput and token gaps of requests, from their recorded columns. Pure functions.

Requests that have not finished are counted.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.engines.token_gaps import gap_quantile

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

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


def latencies(requests: pd.DataFrame, *, horizon_s: float) -> pd.DataFrame:
    """Seconds of each request: jct_s, ttft_s, waiting_s, tpot_s, normalized_s; `finished`.

    What has not happened by the horizon enters at its age there, a lower bound. Time per output
    token is NaN where there is none: of unfinished requests, of single tokens, and where all
    tokens came at once (request-level batches). Normalized latency is JCT per output token of what
    is finished (arXiv 2309.06180 sec. 6.1).
    """
    found = _latencies(columns_of(requests), horizon_s=horizon_s)
    return pd.DataFrame(found, index=requests.index)


def columns_of(requests: pd.DataFrame) -> dict[str, Floats]:
    """What figures of requests are made of, as arrays: to take a table apart again is slow."""
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
    requests: pd.DataFrame | Mapping[str, Floats],
    *,
    horizon_s: float,
    begin_s: float | None = None,
) -> dict[str, float]:
    """Means, percentiles and counts of latencies, throughput, tokens, preemptions and swaps.

    `requests` is a table, or its `columns_of`. `itl_s_mean` is the mean gap between two tokens of
    an answer: that of requests, `tpot_s_mean`, with each counted as often as it has gaps;
    `itl_s_max` is the longest gap. A request that would have come after the horizon, or waits for
    others then, is only unfinished. Throughput is of what is finished, over the seconds from
    `begin_s` (None: the first arrival) to the horizon. Where prefixes are cached,
    `prefix_hit_ratio` is the part of the prompts of those that have begun which they found cached,
    else NaN.
    """
    requests = columns_of(requests) if isinstance(requests, pd.DataFrame) else requests
    if begin_s is None:
        begin_s = float(requests["arrival_s"].min(initial=np.inf))
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
    figures |= _gaps_of_requests(requests, each["tpot_s"].astype(np.float64))
    waiting_s = each["waiting_s"]
    figures["waiting_s_max"] = float(np.nanmax(waiting_s)) if len(waiting_s) else np.nan
    for name in SUMMED:
        figures[name] = float(requests[name].sum())
    figures |= _throughput(requests, span_s=horizon_s - begin_s)
    return figures | _cached(requests)


def _gaps_of_requests(requests: Mapping[str, Floats], tpot_s: Floats) -> dict[str, float]:
    """The mean gap between two tokens, and the longest."""
    streams = ~np.isnan(tpot_s)
    gaps = requests["output_tokens"][streams] - 1
    count = float(gaps.sum())
    mean_s = float((tpot_s[streams] * gaps).sum()) / count if count else np.nan
    return {"itl_s_mean": mean_s, "itl_s_max": longest(requests.get(GAP, np.zeros(0)))}


def _cached(requests: Mapping[str, Floats]) -> dict[str, float]:
    """Prompt tokens found cached by what has begun, and their share."""
    if "cached_tokens" not in requests:
        return {"cached_tokens": np.nan, "prefix_hit_ratio": np.nan}
    begun = ~np.isnan(requests["started_s"])
    prompts, cached = (float(requests[name][begun].sum()) for name in CACHED)
    return {"cached_tokens": cached, "prefix_hit_ratio": cached / prompts if prompts else np.nan}


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


def met_objectives(
    requests: pd.DataFrame,
    slo: Mapping[str, float | None],
    *,
    horizon_s: float,
    solo_s: Floats | None = None,
) -> "pd.Series[bool] | None":
    """Whether each request met all objectives that are given; None where none is.

    An objective is a limit of seconds (`ttft_s`, `tpot_s`, `jct_s`, and `itl_s` of the longest gap
    between two tokens), a deadline that the request came with, or a `scale` of `solo_s`, what the
    request takes alone on the fewest GPUs that hold its model: the same under every system. They
    are computed after the fact: a deadline made from a request's solo time would tell a policy its
    true length. A request without a time per output token has none that is too long; an unfinished
    one has not met anything.
    """
    each = latencies(requests, horizon_s=horizon_s)
    given = {name: limit for name, limit in slo.items() if limit is not None}
    rules = [~(each[name] > given[name]) for name in ("ttft_s", "tpot_s", "jct_s") if name in given]
    if "itl_s" in given:
        rules.append(~(requests[GAP] > given["itl_s"]))
    if "scale" in given and solo_s is not None:
        rules.append(each["jct_s"] <= given["scale"] * solo_s)
    if "deadline_s" in requests and requests["deadline_s"].notna().any():
        rules.append(~(requests["finished_s"] > requests["deadline_s"]))
    return pd.concat([each["finished"], *rules], axis=1).all(axis=1) if rules else None


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
