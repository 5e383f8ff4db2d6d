"""Times of a trace: their unit, whether they are of the calendar, and what load they make.

The unit is in the name of a column (`arrival_s`, `arrival_time_us`), in `workload.columns`, or the
one that a format documents. The last is an assumption, as many tools write the same columns: where
it makes an implausible rate the file is refused, with the unit that makes a plausible one. Numbers
that count from 1970 tell their unit by their digits.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.workloads.trace_values import in_digits, numbers, refuse, rounded

PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Times of a unit in a second."""
DATE = "date"
UNITS = (*PER_S, DATE)
"""What `workload.columns` may call the unit of times."""
PLAUSIBLE_PER_S = (5e-3, 100.0)
"""Requests per second that a recorded service may have; outside, an assumed unit is refused."""
LEAST_JUDGED = (10, 3)
"""Requests from which on a low and a high rate say anything of the unit."""
_SINCE_1970_S = (1_262_304_000.0, 2_208_988_800.0)  # of the years 2010 to 2039
_IN_NAME = re.compile(r"[_ ](s|ms|us|ns)$")


@dataclass(frozen=True, slots=True)
class TraceTimes:
    """Seconds of a file's clock, and how they were read.

    Of times since 1970 `is_calendar` holds; of dates the clock begins with the first, else it is
    that of the file. `said` is the unit in words.
    """

    seconds: "pd.Series[float]"
    is_calendar: bool
    said: str


def unit_in_name(column: str) -> str | None:
    """The unit that the name of a column ends in."""
    found = _IN_NAME.search(column)
    return found[1] if found else None


def rate_per_s(seconds: NDArray[np.float64]) -> float:
    """Arrivals per second from the first to the last; NaN where all are at one instant."""
    span_s = float(np.ptp(seconds)) if len(seconds) else 0.0
    return (len(seconds) - 1) / span_s if span_s > 0 else float("nan")


def read_times(
    path: Path,
    given: "pd.Series[Any]",
    column: str,
    *,
    unit: str,
    is_stated: bool,
    kind: str,
    is_documented: bool,
    own: NDArray[np.bool_],
) -> TraceTimes:
    """The times of a column as seconds.

    `is_stated` says that `unit` is given, and not that of the format `kind`, `is_documented` that
    the file is of it in all else. `own` are the rows that arrive at a time of their own: the first
    turns of sessions. Raises ValueError for what is no time and for an implausible unit.
    """
    if given.dtype.kind == "m":
        seconds = pd.to_timedelta(given).dt.total_seconds()
        return TraceTimes(seconds, is_calendar=False, said="time spans")
    if unit == DATE or _are_dates(given):
        return _of_dates(path, given, column)
    found = numbers(path, given, column, least=0.0)
    arrivals = np.asarray(found, np.float64)[own]
    by_digits = _unit_since_1970(found, None if is_stated else unit, arrivals)
    if by_digits and is_stated and by_digits != unit:
        raise ValueError(
            f"{path} row {given.index[0]}: {column} {in_digits(given.iloc[0])} is since 1970 in "
            f"{by_digits}, and was to be read in {unit}: say "
            f"'workload.columns={{unit:{by_digits}}}'{_MAPPED}"
        )
    taken, said = by_digits or unit, unit
    if by_digits:
        said = f"{by_digits} since 1970, from the first"
    elif not is_stated:
        taken = _plausible(path, column, arrivals, unit, is_documented)
        as_said = f"{kind} has them" if taken == unit else f"{unit} is implausible"
        said = f"{taken}, as {as_said}"
    return TraceTimes(found / PER_S[taken], is_calendar=by_digits is not None, said=said)


_MAPPED = ", beside the other keys of workload.columns if you gave any"


def _far(rate: float) -> float:
    """How far a rate is from one per second, in powers of ten; NaN of none."""
    return float(np.abs(np.log10(rate)))


def _are_dates(given: "pd.Series[Any]") -> bool:
    """Whether a column has dates, by its type or the first value's text."""
    if given.dtype.kind == "M" or isinstance(given.dtype, pd.DatetimeTZDtype):
        return True
    first = given.iloc[0]
    return isinstance(first, str) and bool(re.match(r"\s*\d{4}-\d{2}-\d{2}([T ]|$)", first))


def _of_dates(path: Path, given: "pd.Series[Any]", column: str) -> TraceTimes:
    """Seconds since the first of dates with times of day."""
    dates = pd.to_datetime(given, errors="coerce", utc=True, format="ISO8601")
    why = "is no time; dates are read as 2026-11-28 10:00:00.5, the year first"
    refuse(path, given, dates.isna().to_numpy(), column, why)
    return TraceTimes(_since(dates), is_calendar=False, said="dates, from the first")


def _since(dates: "pd.Series[pd.Timestamp]") -> "pd.Series[float]":
    seconds: pd.Series[float] = (dates - dates.iloc[0]) / pd.Timedelta(1, "s")
    return seconds


def _unit_since_1970(
    found: "pd.Series[float]", assumed: str | None, arrivals: NDArray[np.float64]
) -> str | None:
    """The unit in which all numbers are of the years 2010 to 2039, counted from 1970.

    Days of a clock that began at 0 have such digits, too, in a smaller unit: where that is
    `assumed`, the rate tells.
    """
    low, high = _SINCE_1970_S
    fits = (it for it in PER_S if low * PER_S[it] <= found.min() and found.max() < high * PER_S[it])
    unit = next(fits, None)
    if unit and assumed and PER_S[unit] < PER_S[assumed]:
        since, began = (rate_per_s(arrivals / PER_S[it]) for it in (unit, assumed))
        return unit if _far(since) < _far(began) else None
    return unit


def _plausible(
    path: Path, column: str, times: NDArray[np.float64], unit: str, is_documented: bool
) -> str:
    """The unit that was assumed, or another of a file that is not in all of the format.

    Raises ValueError where the rate is implausible in the unit and would not be in another.
    """
    low, high = PLAUSIBLE_PER_S
    rate = rate_per_s(times / PER_S[unit])
    judged = (rate < low, rate > high)
    if not any(
        is_out and len(times) >= least for is_out, least in zip(judged, LEAST_JUDGED, strict=True)
    ):
        return unit
    rates = {name: rate_per_s(times / per_s) for name, per_s in PER_S.items()}
    others = [name for name in PER_S if low <= rates[name] <= high]
    if not others:
        return unit
    if len(others) == 1 and not is_documented:
        return others[0]
    best = min(others, key=lambda name: _far(rates[name]))
    span_s = rounded(float(np.ptp(times)) / PER_S[unit])
    raise ValueError(
        f"{path}: {column} read as {unit} is {len(times):,} arrivals in {span_s} s, "
        f"{rounded(rate)}/s; as {best} it is {rounded(rates[best])}/s: say "
        f"'workload.columns={{unit:{best}}}', or unit:{unit} for what was read{_MAPPED}"
    )
