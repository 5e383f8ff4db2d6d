"""Floating-point operations of a replica over time (arXiv 2503.16893 eq. 1-2)."""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import (
    LOG_CONTEXT,
    LOG_DECODES,
    LOG_DURATION,
    LOG_ITERATIONS,
    LOG_START,
    LOG_WORK,
)
from harness.engines.state import Floats

_PADDED, _ATTENDED = LOG_WORK + 2, LOG_WORK + 3


@compiled
def add_flops(
    log: Floats,
    layers: int,
    per_token: float,
    hidden_size: int,
    grid_s: Floats,
    done: Floats,
) -> None:
    """Add to `done` what a group has done by each time of the grid, by its rows of the log.

    Between the ends of two runs of iterations it grows linearly. The grid ascends from 0.
    """
    at, end_s, before = 0, 0.0, 0.0
    for row in range(len(log)):
        n, batch = log[row, LOG_ITERATIONS], log[row, LOG_DECODES]
        matmul = log[row, _PADDED] + batch * n
        attention = log[row, _ATTENDED] + n * log[row, LOG_CONTEXT] + batch * n * (n - 1) / 2
        work = layers * (per_token * matmul + 2 * hidden_size * attention)
        begin_s, end_s = end_s, log[row, LOG_START] + log[row, LOG_DURATION]
        while at < len(grid_s) and grid_s[at] < end_s:
            done[at] += before + work / (end_s - begin_s) * (grid_s[at] - begin_s)
            at += 1
        before += work
    for rest in range(at, len(grid_s)):
        done[rest] += before
