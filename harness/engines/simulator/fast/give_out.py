"""Compiled dispatch by load: replicas of a service go on from arrival to arrival, side by side.

Each request goes where the load is least when it arrives. Replicas share nothing but that, so one
whose iteration in flight ends later than an arrival is as loaded then as it was when it began.
"""

from typing import NamedTuple

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.costs.iteration import IterationTable
from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
    CLOCK,
    DECODING,
    DONE,
    FLIGHT,
    FLIGHT_S,
    NEXT_ARRIVAL,
    NEXT_TURN,
    NOTHING,
    PARTIAL,
    TURNS,
    WAITING,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.kernel import ASKED, FULL, HORIZON, STUCK, advance
from harness.engines.state import Bools, Floats, Ints, RequestArrays

UNASKED = -1
"""Why `give_out` returned, beside the reasons of `advance`: a group decides nothing by itself."""

# Positions in `at`: the next request to come, and the replica that something is to be done for
NEXT, WHO, PLACES = range(3)

# Columns of `loads`: what the unanswered requests of a replica weigh, and what they have generated
WEIGHED, GENERATED, LOADS = range(3)


class Line(NamedTuple):
    """Requests `coming` in this order, what each request of the run weighs, and who may take them.

    Of the groups, `asked` says which are replicas, `loads` has the load of each, and `changes_s`
    the time before which that does not change by itself. `at` is how far this has come.
    """

    coming: Ints
    weights: Ints
    adds_generated: bool
    asked: Bools
    loads: Ints
    changes_s: Floats
    at: Ints


@inlined
def _row(states: ReplicaArrays, i: int) -> ReplicaArrays:
    """One of several replicas whose arrays are the rows of others."""
    return ReplicaArrays(
        states.waiting[i],
        states.decoding[i],
        states.partial[i],
        states.chunk[i],
        states.arrivals[i],
        states.turns[i],
        states.seats[i],
        states.moved[i],
        states.heap[i],
        states.phase[i],
        states.done[i],
        states.over[i],
        states.counts[i],
        states.time_s[i],
        states.work[i],
        states.busy_s[i],
        states.log[i],
    )


@inlined
def _has_place(queue: Ints, counts: Ints, first: int, end: int) -> bool:
    """Whether one more fits behind those of a queue, who may move to its front for that."""
    if counts[end] < len(queue):
        return True
    gone = counts[first]
    if 2 * gone < len(queue) or gone == 0:
        return False
    for i in range(gone, counts[end]):
        queue[i - gone] = queue[i]
    counts[first] = 0
    counts[end] -= gone
    return True


@inlined
def _unfinished(replica: ReplicaArrays) -> int:
    counts = replica.counts
    held = counts[WAITING] + counts[DECODING] + counts[PARTIAL]
    return int(held + counts[ARRIVALS] - counts[NEXT_ARRIVAL])


@compiled
def give(requests: RequestArrays, replica: ReplicaArrays, request: int) -> bool:
    """A request arrives in a replica; False, and nothing is done, where there is no room for it."""
    counts, unfinished = replica.counts, _unfinished(replica)
    if len(replica.waiting) <= unfinished + 1:
        return False
    if len(replica.done) <= counts[DONE] + unfinished + 1:
        return False
    if not _has_place(replica.arrivals, counts, NEXT_ARRIVAL, ARRIVALS):
        return False
    turns = len(requests.turns_s) > 0 and requests.turns_s[request] < np.inf
    if turns:
        if not _has_place(replica.turns, counts, NEXT_TURN, TURNS):
            return False
        at = counts[TURNS]
        while (
            at > counts[NEXT_TURN]
            and requests.turns_s[replica.turns[at - 1]] > requests.turns_s[request]
        ):
            replica.turns[at] = replica.turns[at - 1]
            at -= 1
        replica.turns[at] = request
        counts[TURNS] += 1
    if unfinished == 0:
        replica.time_s[CLOCK] = requests.arrival_s[request]
    replica.arrivals[counts[ARRIVALS]] = request
    counts[ARRIVALS] += 1
    return True


@inlined
def _changes_s(replica: ReplicaArrays, now_s: float) -> float:
    """Before when nothing of a replica's load changes by itself; it has been advanced to now."""
    if replica.counts[FLIGHT] != NOTHING:
        return float(replica.time_s[CLOCK] + replica.time_s[FLIGHT_S])
    return np.inf if _unfinished(replica) == 0 else now_s


@inlined
def _generated(requests: RequestArrays, replica: ReplicaArrays) -> int:
    """Tokens that the unanswered requests of a replica have generated."""
    counts, tokens = replica.counts, 0
    for i in range(counts[WAITING]):
        tokens += requests.generated[replica.waiting[i]]
    for i in range(counts[DECODING]):
        tokens += requests.generated[replica.decoding[i]]
    for i in range(counts[PARTIAL]):
        tokens += requests.generated[replica.partial[i]]
    for i in range(counts[NEXT_ARRIVAL], counts[ARRIVALS]):
        tokens += requests.generated[replica.arrivals[i]]
    return tokens


@inlined
def _least(loads: Ints) -> int:
    """The first of those with the least load."""
    least = 0
    for i in range(1, len(loads)):
        if (
            loads[i, WEIGHED] + loads[i, GENERATED]
            < loads[least, WEIGHED] + loads[least, GENERATED]
        ):
            least = i
    return least


@inlined
def _catch_up(
    table: IterationTable,
    requests: RequestArrays,
    states: ReplicaArrays,
    rule: ReplicaRule,
    line: Line,
    now_s: float,
) -> int:
    """Advance all whose load may have changed by now; HORIZON, or why a replica returned."""
    for i in range(len(line.loads)):
        if not line.asked[i] or line.changes_s[i] > now_s:
            continue
        replica = _row(states, i)
        ended = replica.counts[DONE]
        status = advance(table, requests, replica, rule, now_s)
        for j in range(ended, replica.counts[DONE]):
            line.loads[i, WEIGHED] -= line.weights[replica.done[j]]
        if line.adds_generated:
            line.loads[i, GENERATED] = _generated(requests, replica)
        line.at[WHO] = i
        if status in (FULL, STUCK, ASKED):
            return status
        line.changes_s[i] = _changes_s(replica, now_s)
    return HORIZON


@compiled
def give_out(
    table: IterationTable,
    requests: RequestArrays,
    states: ReplicaArrays,
    rule: ReplicaRule,
    line: Line,
    horizon_s: float,
) -> int:
    """Give all that come by the horizon to the replicas, which are the rows of `states`.

    Returns HORIZON, why a replica returned (FULL, STUCK or ASKED, see `advance`), or UNASKED where
    the next request goes to a group that is none.
    """
    at, loads = line.at, line.loads
    while at[NEXT] < len(line.coming):
        request = line.coming[at[NEXT]]
        now_s = requests.arrival_s[request]
        if now_s > horizon_s:
            break
        status = _catch_up(table, requests, states, rule, line, now_s)
        if status != HORIZON:
            return status
        least = _least(loads)
        at[WHO] = least
        if not line.asked[least]:
            return UNASKED
        replica = _row(states, least)
        if not give(requests, replica, request):
            return FULL
        loads[least, WEIGHED] += line.weights[request]
        if line.adds_generated:
            loads[least, GENERATED] += requests.generated[request]
        line.changes_s[least] = min(line.changes_s[least], _changes_s(replica, now_s))
        at[NEXT] += 1
    return HORIZON
