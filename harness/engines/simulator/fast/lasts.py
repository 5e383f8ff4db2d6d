"""Who comes last in order among those that decode: a heap that is made when KV first runs short.

Then every preemption asks. Who ends stays in the heap until it is at the top or there is no room.
"""

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import DECODING, RANKED, ReplicaArrays
from harness.engines.simulator.fast.heaps import before
from harness.engines.state import RequestArrays


@inlined
def decodes(requests: RequestArrays, replica: ReplicaArrays, request: int) -> bool:
    """Whether a request that has a place somewhere is in the replica's list of decoding ones."""
    place = requests.place[request]
    return bool(place < replica.counts[DECODING] and replica.decoding[place] == request)


@inlined
def rank(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """One more that decodes, in a heap that is there."""
    counts, heap = replica.counts, replica.moved
    if counts[RANKED] == len(heap):
        _rank_all(requests, replica)
        return
    at = counts[RANKED]
    counts[RANKED] += 1
    while at > 0 and before(requests, heap[(at - 1) // 2], request):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = request


@inlined
def take_last(requests: RequestArrays, replica: ReplicaArrays) -> int:
    """Take the last one in order out of the heap, which is made if it is not there."""
    if replica.counts[RANKED] == 0:
        _rank_all(requests, replica)
    last = _pop(requests, replica)
    while not decodes(requests, replica, last):
        last = _pop(requests, replica)
    return last


@compiled
def _rank_all(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Make the heap of all that decode."""
    counts, heap = replica.counts, replica.moved
    counts[RANKED] = counts[DECODING]
    for i in range(counts[DECODING]):
        heap[i] = replica.decoding[i]
    for at in range(counts[DECODING] // 2 - 1, -1, -1):
        _sink(requests, replica, heap[at], at)


@inlined
def _pop(requests: RequestArrays, replica: ReplicaArrays) -> int:
    """Remove the top of the heap."""
    counts, heap = replica.counts, replica.moved
    top: int = heap[0]
    counts[RANKED] -= 1
    _sink(requests, replica, heap[counts[RANKED]], 0)
    return top


@inlined
def _sink(requests: RequestArrays, replica: ReplicaArrays, request: int, at: int) -> None:
    """Put a request where `at` is free, or below those there that come after it."""
    size, heap = replica.counts[RANKED], replica.moved
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(requests, heap[child], heap[child + 1]):
            child += 1
        if not before(requests, request, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = request
