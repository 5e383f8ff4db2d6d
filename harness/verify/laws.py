"""Service times of the queues: four laws with a mean of one second."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
