"""When requests come in."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def arrivals_s(
    count: int, rate_per_s: float | None, burstiness: float, rng: np.random.Generator
) -> Floats:
    """Arrival times with gamma gaps: `burstiness` is their coefficient of variation, 1 Poisson.

    Without a rate all come in at once.
    """
    if rate_per_s is None:
        return np.zeros(count)
    shape = 1.0 / burstiness**2
    return rng.gamma(shape, 1.0 / shape / rate_per_s, count).cumsum()
