"""Hours of a trace, each served apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from harness.workloads.trace_columns import ARRIVAL
from harness.workloads.trace_file import IS_CALENDAR, TIMES, read_trace

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class HourOfTrace:
    """An hour with its requests: `window`, [from, to) in seconds, as a workload's key has it.

    `number` counts from the first hour of the clock; `is_calendar` says whether times are since
    1970, and `label` is then the hour (UTC). The first and the last may be parts of an hour.
    """

    number: int
    window: tuple[float, float]
    requests: int
    is_calendar: bool
    label: str


def hours_of(workload: Mapping[str, Any]) -> list[HourOfTrace]:
    """The hours of a file that have requests. ValueError where it has no times, or under an hour.

    Of times since 1970 windows count from the first request (`from_first`).
    """
    path = Path(workload["file"])
    rows = read_trace(path, workload["columns"], workload["no_output"])
    if workload["arrivals"] is not None or rows.attrs[TIMES] is None:
        raise ValueError(f"--hours needs times of the file: {path} has none, or they are replaced")
    arrival_s = np.sort(rows[ARRIVAL].dropna().to_numpy(np.float64))
    first_s, span_s = float(arrival_s[0]), float(np.ptp(arrival_s))
    is_calendar = bool(rows.attrs[IS_CALENDAR])
    if span_s <= HOUR_S:
        raise ValueError(f"--hours: {path} spans {span_s:,.0f} s, which is no more than an hour")
    origin_s = first_s if is_calendar or workload["from_first"] else 0.0
    numbers = np.floor(arrival_s / HOUR_S).astype(np.int64)
    counts = dict(zip(*(it.tolist() for it in np.unique(numbers, return_counts=True)), strict=True))
    begin = min(counts)
    return [
        HourOfTrace(
            number - begin,
            (max(0.0, number * HOUR_S - origin_s), (number + 1) * HOUR_S - origin_s),
            count,
            is_calendar,
            _utc(number) if is_calendar else f"hour {number - begin}",
        )
        for number, count in sorted(counts.items())
    ]


def _utc(number: int) -> str:
    return f"{datetime.fromtimestamp(number * HOUR_S, UTC):%Y-%m-%d %H:%M}"
