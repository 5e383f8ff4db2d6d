"""One replica after another in the same arrays: forecasts make thousands of short-lived ones."""

from harness.costs.compiled import compiled
from harness.costs.iteration import IterationTable
from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
    ReplicaArrays,
    ReplicaRule,
    new_replica,
    with_room,
)
from harness.engines.simulator.fast.heaps import count_followers, push_waiting
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.state import Ints, RequestArrays

LOG_ROWS = 1024
MOST_USED = 64
"""A process with cells of many kinds keeps the arrays of the last kinds of replicas."""

_used: dict[ReplicaRule, ReplicaArrays] = {}


@compiled
def _begin_anew(requests: RequestArrays, replica: ReplicaArrays, ids: Ints) -> None:
    """Empty a replica, of whose other arrays only what counts reach into matters; give it these."""
    replica.counts[:] = 0
    replica.time_s[:] = 0.0
    replica.work[:] = 0.0
    replica.phase[:] = 0
    replica.chunk[:] = 0
    for i in range(len(ids)):
        if requests.arrival_s[ids[i]] > 0.0:
            replica.arrivals[replica.counts[ARRIVALS]] = ids[i]
            replica.counts[ARRIVALS] += 1
        else:
            push_waiting(requests, replica, ids[i])


def serve_anew(
    table: IterationTable, rule: ReplicaRule, requests: RequestArrays, ids: Ints, *, until_s: float
) -> ReplicaArrays:
    """Have a replica serve these, in order of arrival, from 0 to `until_s`; what it is then.

    That is good until another is served by the same rule. Keys must stand still. Raises ValueError
    where its first waiting request never fits.
    """
    arrays = _used.pop(rule, None) or new_replica(0, rule, LOG_ROWS)
    open_count = len(ids) + count_followers(requests, ids)
    arrays = arrays._replace(
        waiting=with_room(arrays.waiting, open_count),
        done=with_room(arrays.done, open_count),
        arrivals=with_room(arrays.arrivals, open_count),
    )
    _begin_anew(requests, arrays, ids)
    replica = ReplicaState(table, rule, requests, arrays)
    replica.run_to(until_s)
    _used[rule] = replica.arrays
    while len(_used) > MOST_USED:
        del _used[next(iter(_used))]
    return replica.arrays
