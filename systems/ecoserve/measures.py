"""Figures of EcoServe's claims that no run's summary holds, from a run's folder."""

import bisect
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd
from pyarrow import parquet

SLO_SCALE = 2.0
SMALLEST_TOKENS = 8
"""Of the space that a guest may have."""
_COLUMNS = [
    "prompt_tokens",
    "arrival_s",
    "finished_s",
    "output_tokens",
    "preemptions",
    "preempted_s",
]


@cache
def _requests(folder: Path) -> pd.DataFrame:
    with parquet.ParquetFile(folder / "requests.parquet") as file:
        table: pd.DataFrame = file.read(columns=_COLUMNS, use_threads=False).to_pandas()
    return table


def throughput_per_s(folder: Path) -> float:
    """Requests answered per second from the first arrival to the last answer."""
    rows = _requests(folder)
    span_s = rows["finished_s"].max() - rows["arrival_s"].min()
    return float(rows["finished_s"].notna().sum() / span_s)


def within_limit(folder: Path, seconds: tuple[float, float], scale: float = SLO_SCALE) -> float:
    """Share of requests answered within `scale` times (a prompt's + answer x a token's seconds).

    The length is the true one, as attainment is known only afterwards.
    """
    rows = _requests(folder)
    prompt_s, token_s = seconds
    limit_s = scale * (prompt_s + token_s * rows["output_tokens"])
    return float((rows["finished_s"] - rows["arrival_s"] <= limit_s).mean())


def mean_tokens(folder: Path, column: str) -> float:
    """Mean of `prompt_tokens` or `output_tokens`."""
    return float(_requests(folder)[column].mean())


def provided_share(folder: Path, part: str) -> float:
    """Tokens set aside for answers that were `over` them, or `short` of them, of those set aside.

    The shares of sums over all requests, when generations were placed first.
    """
    return _share(folder, f"{part}_tokens", "provided_tokens")


def preempted_share(folder: Path) -> float:
    """Share of requests that lost their KV at least once, for want of room."""
    return float((_requests(folder)["preemptions"] > 0).mean())


def preemption_share(folder: Path) -> float:
    """Seconds from preemption to running again, over the JCT of all requests."""
    rows = _requests(folder)
    return float(rows["preempted_s"].sum() / (rows["finished_s"] - rows["arrival_s"]).sum())


def groups_of(folder: Path, least: int) -> float:
    """Share of length groups that have at least so many requests."""
    return _share(folder, f"groups_of_{least}", "groups")


def in_groups_of(folder: Path, least: int) -> float:
    """Share of placed requests that are in length groups of at least so many."""
    return _share(folder, f"requests_in_groups_of_{least}", "placed")


def _share(folder: Path, part: str, whole: str) -> float:
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["counts"]
    return float(found[part] / found[whole])


def nested_share(lengths: Sequence[float], buffer_share: float) -> float:
    """The share of answer tokens that guests can hold at all, hosts nested greedily.

    Every answer is there at once and known; the longest without a host hosts the longest that fit
    half, a quarter, an eighth of its space, less the buffer, and each of them hosts likewise.
    """
    left = sorted(int(one) for one in lengths)
    total, guests = sum(left), 0

    def lend(space: int) -> int:
        held = 0
        while space // 2 >= SMALLEST_TOKENS:
            place = bisect.bisect_left(left, space // 2 - int(buffer_share * space / 2))
            if not place:
                break
            guest = left.pop(place - 1)
            held += guest + lend(guest)
            space //= 2
        return held

    while left:
        guests += lend(left.pop())
    return guests / total
