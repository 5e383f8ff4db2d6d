"""One replica after another in the same arrays: forecasts make thousands of short-lived ones."""

from harness.costs.compiled import compiled
from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
    ReplicaArrays,
    with_room,
)
from harness.engines.simulator.fast.heaps import count_followers, push_waiting
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.state import Ints, RequestArrays


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
    replica: ReplicaState, requests: RequestArrays, ids: Ints, *, until_s: float
) -> None:
    """Have a replica forget all and serve these, in order of arrival, from 0 to `until_s`.

    Its keys must stand still. Raises ValueError where its first waiting request never fits.
    """
    replica.requests = requests
    open_count = len(ids) + count_followers(requests, ids)
    arrays = replica.arrays
    replica.arrays = arrays._replace(
        waiting=with_room(arrays.waiting, open_count),
        done=with_room(arrays.done, open_count),
        arrivals=with_room(arrays.arrivals, open_count),
    )
    _begin_anew(requests, replica.arrays, ids)
    replica.run_to(until_s)
