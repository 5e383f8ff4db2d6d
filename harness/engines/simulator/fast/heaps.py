"""The two heaps of a replica: waiting requests by key, decoding ones by their end."""

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import HEAP, WAITING, ReplicaArrays
from harness.engines.state import Ints, RequestArrays


@inlined
def before(requests: RequestArrays, a: int, b: int) -> bool:
    """Order of the replica: key, then id."""
    if requests.key[a] != requests.key[b]:
        return bool(requests.key[a] < requests.key[b])
    return a < b


@compiled
def push_waiting(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Put a request into the waiting heap."""
    replica.counts[WAITING] += 1
    _rise(requests, replica, request, replica.counts[WAITING] - 1)


@inlined
def _rise(requests: RequestArrays, replica: ReplicaArrays, request: int, at: int) -> None:
    """Put a request where `at` is free, or nearer to the top if it comes before those there."""
    heap = replica.waiting
    while at > 0 and before(requests, request, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        requests.place[heap[at]] = at
        at = (at - 1) // 2
    heap[at] = request
    requests.place[request] = at


@compiled
def push_all(requests: RequestArrays, replica: ReplicaArrays, ids: Ints) -> None:
    """Put requests into the waiting heap."""
    for i in range(len(ids)):
        push_waiting(requests, replica, ids[i])


@compiled
def count_followers(requests: RequestArrays, ids: Ints) -> int:
    """Requests that will arrive in the same replica behind these, one after the other."""
    count = 0
    for i in range(len(ids)):
        follower = requests.next[ids[i]]
        while follower >= 0:
            count += 1
            follower = requests.next[follower]
    return count


@compiled
def pop_waiting(requests: RequestArrays, replica: ReplicaArrays) -> int:
    """Remove the head of the waiting heap."""
    first: int = replica.waiting[0]
    take_waiting(requests, replica, 0)
    return first


@compiled
def take_waiting(requests: RequestArrays, replica: ReplicaArrays, at: int) -> None:
    """Remove the request at a place of the waiting heap."""
    heap = replica.waiting
    replica.counts[WAITING] -= 1
    size = replica.counts[WAITING]
    last = heap[size]
    if at == size:
        return
    # The hole goes all the way down: the last one nearly always belongs there again.
    while 2 * at + 2 < size:
        child = 2 * at + 1
        if before(requests, heap[child + 1], heap[child]):
            child += 1
        heap[at] = heap[child]
        requests.place[heap[at]] = at
        at = child
    if 2 * at + 1 < size:
        heap[at] = heap[2 * at + 1]
        requests.place[heap[at]] = at
        at = 2 * at + 1
    _rise(requests, replica, last, at)


@inlined
def push_end(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Put a decoding request into the heap of ends."""
    heap, at, ends = replica.heap, replica.counts[HEAP], requests.ends
    replica.counts[HEAP] += 1
    while at > 0 and ends[request] < ends[heap[(at - 1) // 2]]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = request


@inlined
def pop_end(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Remove the request that ends first."""
    _take_end(requests, replica, 0)


@inlined
def withdraw_end(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Remove a request that does not end now."""
    at = 0
    while replica.heap[at] != request:
        at += 1
    _take_end(requests, replica, at)


@inlined
def _take_end(requests: RequestArrays, replica: ReplicaArrays, at: int) -> None:
    """Remove the request at a place of the heap of ends."""
    heap, ends = replica.heap, requests.ends
    replica.counts[HEAP] -= 1
    size = replica.counts[HEAP]
    last = heap[size]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and ends[heap[child + 1]] < ends[heap[child]]:
            child += 1
        if ends[heap[child]] >= ends[last]:
            break
        heap[at] = heap[child]
        at = child
    while at > 0 and ends[last] < ends[heap[(at - 1) // 2]]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = last
