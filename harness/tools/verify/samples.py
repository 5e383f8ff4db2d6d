"""Samples of queues: four laws of service times with a mean of one second, and what follows.

The textbook recursions go request by request over given gaps and service times. Each fills
`response_s`, the time from arrival to end, and `work_s`, the unfinished work found on arrival.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled

Floats = NDArray[np.float64]
ROOM = 1024
"""Requests that are ever together."""


class Law(Enum):
    """How the lengths of requests are distributed."""

    EXPONENTIAL = "exponential"
    DETERMINISTIC = "deterministic"
    LOGNORMAL = "lognormal"
    HYPEREXPONENTIAL = "hyperexponential"


SQUARED_VARIATION = dict(zip(Law, (1.0, 0.0, 2.0, 4.0), strict=True))
"""Variance over squared mean; for the last two our choice."""


def second_moment_s2(law: Law) -> float:
    """Mean of the squared service time, in s^2."""
    return 1.0 + SQUARED_VARIATION[law]


def draw_s(law: Law, requests: int, rng: np.random.Generator) -> Floats:
    """Independent service times in seconds, mean 1."""
    if law is Law.EXPONENTIAL:
        return np.asarray(rng.exponential(1.0, requests))
    if law is Law.DETERMINISTIC:
        return np.ones(requests)
    variation = SQUARED_VARIATION[law]
    if law is Law.LOGNORMAL:
        log_variance = np.log1p(variation)
        return np.asarray(rng.lognormal(-log_variance / 2, np.sqrt(log_variance), requests))
    # Two exponential phases, either of which does half of the work (balanced means): Allen,
    # Probability, Statistics, and Queueing Theory.
    share = 0.5 * (1 + np.sqrt((variation - 1) / (variation + 1)))
    short = rng.random(requests) < share
    mean_s = np.where(short, 0.5 / share, 0.5 / (1 - share))
    return np.asarray(rng.exponential(mean_s))


TICK_S = 2.0**-20
"""The grid: float64 adds its multiples without rounding, and a request has a million of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests by arrival: the gap before each, and its service time; on a grid of ticks."""

    gap_ticks: NDArray[np.int64]
    service_ticks: NDArray[np.int64]

    @property
    def gap_s(self) -> Floats:
        """Seconds since the arrival before."""
        return np.asarray(self.gap_ticks * TICK_S, np.float64)

    @property
    def service_s(self) -> Floats:
        """Seconds of work."""
        return np.asarray(self.service_ticks * TICK_S, np.float64)


def draw_sample(law: Law, rate_per_s: float, requests: int, rng: np.random.Generator) -> Sample:
    """Poisson arrivals and service times, rounded to ticks; every request has at least one."""
    service_ticks = np.rint(draw_s(law, requests, rng) / TICK_S).astype(np.int64)
    gap_ticks = np.rint(rng.exponential(1.0 / rate_per_s, requests) / TICK_S).astype(np.int64)
    return Sample(gap_ticks, np.maximum(1, service_ticks))


@compiled
def first_come(
    gap_s: Floats, service_s: Floats, busy_s: Floats, response_s: Floats, work_s: Floats
) -> None:
    """First come first served; `busy_s` holds a zero per server.

    Kiefer and Wolfowitz, On the theory of queues with many servers, 1955; with one server it is
    Lindley's recursion, 1952.
    """
    for i in range(len(gap_s)):
        found = 0.0
        for slot in range(len(busy_s)):
            busy_s[slot] = max(0.0, busy_s[slot] - gap_s[i])
            found += busy_s[slot]
        work_s[i] = found
        free_s = busy_s[0] + service_s[i]
        response_s[i] = free_s
        place = 1
        while place < len(busy_s) and busy_s[place] < free_s:
            busy_s[place - 1] = busy_s[place]
            place += 1
        busy_s[place - 1] = free_s


@compiled
def by_rest(
    share: bool, gap_s: Floats, service_s: Floats,
    order: Floats, ids: NDArray[np.int64], response_s: Floats, work_s: Floats,
) -> None:  # fmt: skip
    """With `share` each of n requests gets 1/n of the server, else the one with the least left all.

    `order`, sorted from the largest down, holds what each has left, or the attained service at
    which it ends on a clock that runs at 1/n; `ids` whose it is. Both come with `ROOM`.
    `response_s` holds minus the arrival time until a request ends.
    """
    count, attained_s, now_s, left_s = 0, 0.0, 0.0, 0.0
    for i in range(len(gap_s) + 1):
        rest_s = gap_s[i] if i < len(gap_s) else np.inf
        left_s = max(0.0, left_s - rest_s)
        while count > 0:
            needed_s = (order[count - 1] - attained_s) * (count if share else 1)
            if needed_s > rest_s:
                break
            count -= 1
            if share:
                attained_s = order[count]
            rest_s -= needed_s
            now_s += needed_s
            response_s[ids[count]] += now_s
        if i == len(gap_s):
            break
        if share:
            attained_s = attained_s + rest_s / count if count > 0 else 0.0
        elif count > 0:
            order[count - 1] -= rest_s
        now_s += rest_s
        work_s[i] = left_s
        left_s += service_s[i]
        response_s[i] = -now_s
        place = count
        while place > 0 and order[place - 1] <= attained_s + service_s[i]:
            order[place], ids[place] = order[place - 1], ids[place - 1]
            place -= 1
        order[place], ids[place] = attained_s + service_s[i], i
        count += 1
