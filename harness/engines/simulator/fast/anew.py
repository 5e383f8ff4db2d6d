"""Replicas in the same arrays, one after another: forecasts make thousands of short-lived ones."""

from typing import NamedTuple

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import IterationTable
from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
    CLOCK,
    LOGGED,
    ReplicaArrays,
    ReplicaRule,
    new_replica,
    with_room,
)
from harness.engines.simulator.fast.heaps import push_waiting
from harness.engines.simulator.fast.kernel import FULL, STUCK, advance
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.state import Floats, Ints, RequestArrays

LOG_ROWS = 1024
MOST_USED = 64
"""A process with cells of many kinds keeps the arrays of the last kinds of replicas."""

_used: dict[ReplicaRule, ReplicaArrays] = {}


class Served(NamedTuple):
    """What replicas did, each from time 0; good until others are served by the same rule.

    Each has what the log holds from its predecessor's last row on to its own.
    """

    stood_still_s: Floats
    log: Floats
    rows: Ints


@compiled
def _begin_anew(
    requests: RequestArrays, replica: ReplicaArrays, heads: Ints, first: int, step: int
) -> None:
    """Empty a replica, of whose other arrays only what counts reach into matters; give it some."""
    logged = replica.counts[LOGGED]
    replica.counts[:] = 0
    replica.counts[LOGGED] = logged
    replica.time_s[:] = 0.0
    replica.work[:] = 0.0
    replica.phase[:] = 0
    replica.chunk[:] = 0
    for at in range(first, len(heads), step):
        if requests.arrival_s[heads[at]] > 0.0:
            replica.arrivals[replica.counts[ARRIVALS]] = heads[at]
            replica.counts[ARRIVALS] += 1
        else:
            push_waiting(requests, replica, heads[at])


@compiled
def _serve(
    table: IterationTable,
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    heads: Ints,
    until_s: float,
    stood_still_s: Floats,
    rows: Ints,
    first: int,
    is_begun: bool,
) -> tuple[int, int]:
    """Have replica after replica serve its share, from the first on, whose run may have begun.

    Returns their number, or the one that cannot go on; and why `advance` has returned for it.
    """
    replicas, status = len(rows), 0
    for it in range(first, replicas):
        if not is_begun:
            _begin_anew(requests, replica, heads, it, replicas)
        status = advance(table, requests, replica, rule, until_s)
        if status in (FULL, STUCK):
            return it, status
        is_begun = False
        stood_still_s[it] = replica.time_s[CLOCK]
        rows[it] = replica.counts[LOGGED]
    return replicas, status


def serve_anew(
    table: IterationTable,
    rule: ReplicaRule,
    requests: RequestArrays,
    heads: Ints,
    replicas: int,
    *,
    until_s: float,
) -> Served:
    """Have replicas serve all of these requests, from 0 to `until_s`.

    Given are those that follow no other, in order of arrival, of which a replica has every
    `replicas`-th. Keys must stand still. Raises ValueError where one never fits.
    """
    used = _used.pop(rule, None) or new_replica(0, rule, LOG_ROWS)
    arrays = used._replace(
        waiting=with_room(used.waiting, len(requests.next)),
        done=with_room(used.done, len(requests.next)),
        arrivals=with_room(used.arrivals, len(requests.next)),
    )
    arrays.counts[LOGGED] = 0
    replica = ReplicaState(table, rule, requests, arrays)
    stood_still_s, rows = np.zeros(replicas), np.zeros(replicas, np.int64)
    at, is_begun = 0, False
    while at < replicas:
        at, status = _serve(
            table, requests, replica.arrays, rule, heads, until_s, stood_still_s, rows, at, is_begun
        )
        is_begun = replica.heed(status)
    _used[rule] = replica.arrays
    while len(_used) > MOST_USED:
        del _used[next(iter(_used))]
    return Served(stood_still_s, replica.arrays.log, rows)
