"""Floating-point operations of a replica over time (arXiv 2503.16893 eq. 1-2)."""

from harness.costs.compiled import compiled
from harness.engines.simulator.fast.arrays import (
    LOG_CONTEXT,
    LOG_DECODES,
    LOG_DURATION,
    LOG_ITERATIONS,
    LOG_START,
    LOG_WORK,
    WORK_ATTENDED,
    WORK_PADDED,
)
from harness.engines.state import Floats, Ints

_PADDED, _ATTENDED = LOG_WORK + WORK_PADDED, LOG_WORK + WORK_ATTENDED


@compiled
def add_flops(
    log: Floats,
    rows: Ints,
    layers: int,
    per_token: float,
    hidden_size: int,
    grid_s: Floats,
    done: Floats,
) -> None:
    """Add to `done` what replicas have done by each time of the grid.

    Each has the log from its predecessor's last row on to its own, in `rows`. Between the ends of
    two runs of iterations it grows linearly. The grid ascends from 0.
    """
    first = 0
    for last in rows:
        at, end_s, before = 0, 0.0, 0.0
        for row in range(first, last):
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
        first = last
