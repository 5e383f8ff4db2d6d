"""The heaps of a group: waiting requests by key, decoding requests by their end, and by key.

The last one, last in order first, says which decoding request is preempted when KV is short. It is
made at the first preemption; requests that have ended stay in it until they are at the top.
"""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import Group, Records
from harness.engines.state import Ints


@compiled
def before(requests: Records, a: int, b: int) -> bool:
    """Order of a group: key, then id."""
    if requests[a].key != requests[b].key:
        return bool(requests[a].key < requests[b].key)
    return a < b


@compiled
def push_waiting(requests: Records, group: Group, queue: Ints, request: int) -> None:
    """Put a request into the waiting heap."""
    group.n_waiting += 1
    _rise(requests, queue, group.queue_at, request, group.n_waiting - 1)


@compiled
def _rise(requests: Records, queue: Ints, base: int, request: int, at: int) -> None:
    """Put a request where `at` is free, or nearer to the top if it comes before those there."""
    while at > 0 and before(requests, request, queue[base + (at - 1) // 2]):
        above = queue[base + (at - 1) // 2]
        queue[base + at] = above
        requests[above].place = at
        at = (at - 1) // 2
    queue[base + at] = request
    requests[request].place = at


@compiled
def pop_waiting(requests: Records, group: Group, queue: Ints) -> int:
    """Remove the head of the waiting heap."""
    first: int = queue[group.queue_at]
    take_waiting(requests, group, queue, 0)
    return first


@compiled
def take_waiting(requests: Records, group: Group, queue: Ints, at: int) -> None:
    """Remove the request at a place of the waiting heap."""
    base = group.queue_at
    group.n_waiting -= 1
    size = group.n_waiting
    last = queue[base + size]
    if at == size:
        return
    # The hole goes all the way down: the last request nearly always belongs there again.
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(requests, queue[base + child + 1], queue[base + child]):
            child += 1
        queue[base + at] = queue[base + child]
        requests[queue[base + at]].place = at
        at = child
    _rise(requests, queue, base, last, at)


@compiled
def push_end(requests: Records, group: Group, request: int) -> None:
    """Put a decoding request into the heap of ends."""
    heap, at, end = group.heap, group.n_heap, requests[request].ends
    group.n_heap += 1
    while at > 0 and end < requests[heap[(at - 1) // 2]].ends:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = request


@compiled
def pop_end(requests: Records, group: Group) -> None:
    """Remove the request that ends first."""
    _take_end(requests, group, 0)


@compiled
def withdraw_end(requests: Records, group: Group, request: int) -> None:
    """Remove a request that does not end now."""
    at = 0
    while group.heap[at] != request:
        at += 1
    _take_end(requests, group, at)


@compiled
def _take_end(requests: Records, group: Group, at: int) -> None:
    """Remove the request at a place of the heap of ends."""
    heap = group.heap
    group.n_heap -= 1
    size = group.n_heap
    last = heap[size]
    end = requests[last].ends
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and requests[heap[child + 1]].ends < requests[heap[child]].ends:
            child += 1
        if requests[heap[child]].ends >= end:
            break
        heap[at] = heap[child]
        at = child
    while at > 0 and end < requests[heap[(at - 1) // 2]].ends:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = last


@compiled
def rebuild_ends(requests: Records, group: Group) -> None:
    """Make the heap of ends again after requests have stopped decoding."""
    group.n_heap = 0
    for i in range(group.n_decoding):
        push_end(requests, group, group.decoding[i])


@compiled
def decodes(requests: Records, group: Group, request: int) -> bool:
    """Whether a request of the group is in its list of decoding ones."""
    place = requests[request].place
    return bool(place < group.n_decoding and group.decoding[place] == request)


@compiled
def rank(requests: Records, group: Group, request: int) -> None:
    """Put one more decoding request into the heap of preemption, which has been made."""
    heap = group.moved
    if group.n_ranked == len(heap):
        _rank_all(requests, group)
        return
    at = group.n_ranked
    group.n_ranked += 1
    while at > 0 and before(requests, heap[(at - 1) // 2], request):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = request


@compiled
def take_last(requests: Records, group: Group) -> int:
    """Take the last decoding request in order out of the heap, which is made where it is not."""
    if group.n_ranked == 0:
        _rank_all(requests, group)
    last = _pop_ranked(requests, group)
    while not decodes(requests, group, last):
        last = _pop_ranked(requests, group)
    return last


@compiled
def _rank_all(requests: Records, group: Group) -> None:
    heap = group.moved
    group.n_ranked = group.n_decoding
    for i in range(group.n_decoding):
        heap[i] = group.decoding[i]
    for at in range(group.n_decoding // 2 - 1, -1, -1):
        _sink(requests, group, heap[at], at)


@compiled
def _pop_ranked(requests: Records, group: Group) -> int:
    heap = group.moved
    top: int = heap[0]
    group.n_ranked -= 1
    _sink(requests, group, heap[group.n_ranked], 0)
    return top


@compiled
def _sink(requests: Records, group: Group, request: int, at: int) -> None:
    """Put a request where `at` is free, or below those there that come after it."""
    size, heap = group.n_ranked, group.moved
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(requests, heap[child], heap[child + 1]):
            child += 1
        if not before(requests, request, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = request
