"""The load of a recorded trace in numbers, and the part of it that has the busiest minute."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.workloads.trace_times import rate_per_s
from harness.workloads.trace_values import rounded

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLoad:
    """What a trace asks for, on its own clock (`workload.rate_scale` is not in it).

    `requests` is their number after `left_out` are left out, `sessions` that of sessions, None
    where the file has none. `span_s` is from the first arrival to the last, of sessions of their
    first turns. Tokens are sums over requests; of the prompt tokens `shared_tokens` are declared to
    be those of an earlier request.
    """

    requests: int
    left_out: int
    sessions: int | None
    span_s: float
    prompt_tokens: int
    shared_tokens: int
    output_tokens: int

    @property
    def arrivals(self) -> int:
        """Requests, or sessions, that arrive at times of the trace."""
        return self.requests if self.sessions is None else self.sessions

    @property
    def arrivals_per_s(self) -> float | None:
        """Requests, or sessions, per second between the first and the last; None of one instant."""
        return (self.arrivals - 1) / self.span_s if self.span_s else None

    @property
    def requests_per_s(self) -> float | None:
        """Requests per second, of sessions all of their turns; None of one instant."""
        rate = self.arrivals_per_s
        return None if rate is None else rate * self.requests / self.arrivals


def busiest_window(arrival_s: NDArray[np.float64], count: int) -> tuple[int, int]:
    """The rows [first, last) of `count` consecutive arrivals that contain the busiest minute.

    `arrival_s` is ascending. Where the busiest minute has more arrivals than `count`, the rows are
    the `count` of it that are closest in time. Raises ValueError where there are fewer arrivals.
    """
    total = len(arrival_s)
    if not 1 <= count <= total:
        raise ValueError(f"{count} of {total} arrivals were asked for")
    ends = np.searchsorted(arrival_s, arrival_s + MINUTE_S, side="left")
    begin = int(np.argmax(ends - np.arange(total)))
    end = int(ends[begin])
    if end - begin > count:
        spans_s = arrival_s[begin + count - 1 : end] - arrival_s[begin : end - count + 1]
        first = begin + int(np.argmin(spans_s))
    else:
        around = (count - (end - begin)) // 2
        first = min(max(0, begin - around), total - count)
    return first, first + count


def arrivals_said(
    unit: str, arrival_s: NDArray[np.float64], requests: int, begin_s: float, *, in_sessions: bool
) -> list[str]:
    """Notes of the unit, span and rate of arrivals, and of whole seconds that several share.

    `unit` is in words; of sessions the arrivals are those of their first turns. The run begins at
    `begin_s` of the same clock.
    """
    count = f"{requests:,} requests" + f" of {len(arrival_s):,} sessions" * in_sessions
    span_s = float(np.ptp(arrival_s))
    if not span_s:
        return [f"times read as {unit}: {count} at one instant"]
    span = f"{span_s:,.3f}".rstrip("0").removesuffix(".") if span_s >= 1 else rounded(span_s)
    rate = f"{rounded(rate_per_s(arrival_s))}{' sessions' if in_sessions else ''}/s"
    notes = [f"times read as {unit}: {count} in {span} s, {rate}"]
    if arrival_s[0] - begin_s > max(MINUTE_S, span_s):
        late = rounded(float(arrival_s[0] - begin_s))
        notes.append(f"the first comes after {late} s; workload.from_first=true counts from it")
    together = int(np.unique(arrival_s, return_counts=True)[1].max())
    if together > 1 and (arrival_s % 1 == 0).all():
        notes.append(
            f"times are whole seconds, up to {together} requests at one: order and gaps within a "
            "second are unknown; workload/arrivals=gamma draws others"
        )
    return notes
