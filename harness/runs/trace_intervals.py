"""Intervals of figures of one trace: from blocks of it, since seeds draw nothing of a replay.

A trace is one sample, of requests that follow each other and wait for each other. A circular block
bootstrap draws blocks of consecutive requests, by arrival, until there are as many as in the trace;
the middle 95% of a figure over such draws is its interval (Kuensch, Annals of Statistics 17(3),
1989; Politis and Romano 1992). Blocks are a twentieth of the trace: dependence that lasts longer,
such as an overload, makes the interval too narrow.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.runs.metrics import PERCENTILES
from harness.runs.stats import LEVEL, Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEY = "trace_interval"
"""Of a run's summary: intervals by figure, and `BLOCK`, which every run of a trace has."""
BLOCK = "block_requests"
BLOCKS = 20
LEAST_REQUESTS = 2 * BLOCKS
"""Of a trace with an interval."""
DRAWS, VALUES = 1000, 4_000_000
"""Most draws, and values of all of them; a long trace has fewer draws, at least a hundred."""


def block_requests(requests: int) -> int:
    """Requests of a block; 0 where there are too few for an interval."""
    return requests // BLOCKS if requests >= LEAST_REQUESTS else 0


def draws_of(requests: int) -> Ints:
    """Places of requests, a row per draw: blocks of consecutive ones, from the end to the start."""
    size = block_requests(requests)
    count = int(np.clip(VALUES // requests, 100, DRAWS))
    blocks = -(-requests // size)
    first = np.random.default_rng(requests).integers(requests, size=(count, blocks, 1))
    found: Ints = ((first + np.arange(size)) % requests).reshape(count, -1)[:, :requests]
    return found


def _statistic(figure: str) -> tuple[str, Callable[[Floats], Floats]] | None:
    """The latency that a figure is of, and the figure of each row of a table; None for others."""
    name, _, what = figure.rpartition("_")
    if figure == "slo_attainment":
        return figure, lambda rows: rows.mean(axis=-1)
    if name not in ("jct_s", "ttft_s", "tpot_s", "normalized_s"):
        return None
    if what == "mean":
        return name, lambda rows: np.nanmean(rows, axis=-1)
    if what not in PERCENTILES:
        return None
    return name, lambda rows: np.nanquantile(rows, PERCENTILES[what], axis=-1)


def trace_intervals(
    each: Mapping[str, Floats], figures: Mapping[str, float]
) -> dict[str, float | dict[str, float]]:
    """What a summary has under `KEY`: `low` and `high` of every figure of single requests.

    `each` has the values of every request by latency, in order of arrival. Figures that are NaN
    have none.
    """
    count = len(next(iter(each.values())))
    found: dict[str, float | dict[str, float]] = {BLOCK: float(block_requests(count))}
    if not found[BLOCK]:
        return found
    places = draws_of(count)
    for figure, value in figures.items():
        if (asked := _statistic(figure)) is None or np.isnan(value) or asked[0] not in each:
            continue
        name, statistic = asked
        low, high = _ends(statistic(each[name][places]))
        found[figure] = {"low": low, "high": high}
    return found


def paired_interval(
    one: Mapping[str, Floats], other: Mapping[str, Floats], figure: str
) -> Estimate | None:
    """A figure of one run over that of another of the same requests, from the same blocks of both.

    None where a figure is not of single requests or not positive.
    """
    asked = _statistic(figure)
    if asked is None or asked[0] not in one or asked[0] not in other:
        return None
    name, statistic = asked
    above, below = one[name], other[name]
    value = float(statistic(above)) / float(statistic(below))
    if len(above) != len(below) or not block_requests(len(above)) or not value > 0:
        return None
    places = draws_of(len(above))
    low, high = _ends(statistic(above[places]) / statistic(below[places]))
    return Estimate(value, low, high, 1)


def _ends(values: Floats) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    return float(np.nanquantile(values, tail)), float(np.nanquantile(values, 1 - tail))
