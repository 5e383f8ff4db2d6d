"""What comes to a replica at a known time: requests, and predictions that change their keys."""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
    CLOCK,
    NEXT_ARRIVAL,
    NEXT_TURN,
    RANKED,
    TURNS,
    WAITING,
    ReplicaArrays,
)
from harness.engines.simulator.fast.heaps import push_waiting, take_waiting
from harness.engines.state import RequestArrays


@inlined
def pull_all(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Requests that have arrived by now start waiting, and predictions that are ready count."""
    counts, now_s = replica.counts, replica.time_s[CLOCK]
    while counts[NEXT_ARRIVAL] < counts[ARRIVALS]:
        request = replica.arrivals[counts[NEXT_ARRIVAL]]
        if requests.arrival_s[request] > now_s:
            break
        push_waiting(requests, replica, request)
        counts[NEXT_ARRIVAL] += 1
    while counts[NEXT_TURN] < counts[TURNS]:
        request = replica.turns[counts[NEXT_TURN]]
        if requests.turns_s[request] > now_s:
            break
        _turn(requests, replica, request)
        counts[NEXT_TURN] += 1


@compiled
def _turn(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """A request gets the key of its prediction; if it waits, its place in the order, too."""
    place = requests.place[request]
    waits = 0 <= place < replica.counts[WAITING] and replica.waiting[place] == request
    if waits:
        take_waiting(requests, replica, place)
    requests.key[request] = requests.turned_key[request]
    replica.counts[RANKED] = 0
    if waits:
        push_waiting(requests, replica, request)


@inlined
def come_later(replica: ReplicaArrays, request: int) -> None:
    """A request comes at its `arrival_s`, behind all that are to come already."""
    replica.arrivals[replica.counts[ARRIVALS]] = request
    replica.counts[ARRIVALS] += 1


@inlined
def next_arrival_s(requests: RequestArrays, replica: ReplicaArrays) -> float:
    """When the next request arrives; infinite if none will."""
    if replica.counts[NEXT_ARRIVAL] < replica.counts[ARRIVALS]:
        return float(requests.arrival_s[replica.arrivals[replica.counts[NEXT_ARRIVAL]]])
    return np.inf


@inlined
def next_turn_s(requests: RequestArrays, replica: ReplicaArrays) -> float:
    """When the next prediction is ready; infinite if none will be."""
    if replica.counts[NEXT_TURN] < replica.counts[TURNS]:
        return float(requests.turns_s[replica.turns[replica.counts[NEXT_TURN]]])
    return np.inf
