"""Figures of EcoServe's claims that no run's summary holds, from a run's folder or cells."""

import bisect
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow import parquet

from harness.claims.effects import Cells, figures
from harness.runs.stats import Floats

SECONDS = {"alpaca": (0.041, 0.0254), "sharegpt": (0.061, 0.0259), "bookcorpus": (0.157, 0.0264)}
"""By data set: mean seconds of a prompt (TTFT) and of an answer token (TPOT).

Of vLLM at 0.3 of what it serves: the paper states how its limits follow from both, not their
values.
"""
SLO_SCALE = 2.0
RATE = "rate_per_s"
NORMALIZED = "normalized_s_mean"
LATENCY_TIMES = 2.0
"""Times vLLM's normalized latency at the lowest rate: where sustained rates are read. Chosen."""


@cache
def _requests(folder: Path) -> pd.DataFrame:
    names = ["arrival_s", "finished_s", "output_tokens"]
    with parquet.ParquetFile(folder / "requests.parquet") as file:
        return file.read(columns=names, use_threads=False).to_pandas()


def throughput_per_s(folder: Path) -> float:
    """Requests answered per second from the first arrival to the last answer."""
    rows = _requests(folder)
    span_s = rows["finished_s"].max() - rows["arrival_s"].min()
    return float(rows["finished_s"].notna().sum() / span_s)


def within_limit(folder: Path, data: str, scale: float = SLO_SCALE) -> float:
    """Share of requests answered within `scale` times the data set's seconds for their length.

    The length is the true one, as attainment is known only afterwards. A run that meets no limit
    counts half a request, so that ratios exist.
    """
    rows = _requests(folder)
    prompt_s, token_s = SECONDS[data]
    limit_s = scale * (prompt_s + token_s * rows["output_tokens"])
    met = int((rows["finished_s"] - rows["arrival_s"] <= limit_s).sum())
    return max(met, 0.5) / len(rows)


def sustained_per_s(cells: Cells, at: Mapping[str, str]) -> "pd.Series[float]":
    """By seed, the rate at which a policy's normalized latency reaches the common limit.

    Read from the grid of rates by interpolating logarithms. The limit is `LATENCY_TIMES` vLLM's
    latency at the lowest rate. A policy beyond it at the lowest rate counts with that rate, one
    below it at the highest with the highest: bounds, not crossings.
    """
    own, base = (figures(cells, NORMALIZED, one, [RATE]) for one in (at, {"policy": "vllm"}))
    own, base = own.align(base, join="inner", axis=0)
    limits = LATENCY_TIMES * base[base.columns.min()]
    crossed = [_crossing(own.loc[seed], limit) for seed, limit in limits.items()]
    return pd.Series(crossed, index=own.index, dtype=float)


def _crossing(latency_s: "pd.Series[float]", limit_s: float) -> float:
    rates: Floats = np.log(np.asarray(latency_s.index, dtype=float))
    order = np.argsort(rates)
    logs = np.log(latency_s.to_numpy(float) / limit_s)[order]
    above = np.flatnonzero(logs > 0)
    i = int(above[0]) if len(above) else len(logs)
    if i in (0, len(logs)):
        return float(np.exp(rates[order][min(i, len(logs) - 1)]))
    return float(np.exp(np.interp(0.0, logs[i - 1 : i + 1], rates[order][i - 1 : i + 1])))


def nested_share(lengths: Floats, buffer_share: float, smallest_tokens: int = 8) -> float:
    """The share of answer tokens that guests can hold at all, hosts nested greedily.

    Every answer is there at once and known; the longest without a host hosts the longest that fit
    half, a quarter, an eighth of its space, less the buffer, and each of them hosts likewise.
    """
    left = sorted(int(one) for one in lengths)
    guests = 0

    def lend(space: int) -> int:
        held = 0
        while space // 2 >= smallest_tokens:
            place = bisect.bisect_left(left, space // 2 - int(buffer_share * space / 2))
            if not place:
                break
            guest = left.pop(place - 1)
            held += guest + lend(guest)
            space //= 2
        return held

    while left:
        guests += lend(left.pop())
    return guests / float(lengths.sum())
