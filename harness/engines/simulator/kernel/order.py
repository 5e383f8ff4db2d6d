"""The order of a group: keys, which may move with progress, the heap of waiting requests by key.

Beside it is the heap of decoding requests by their end.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import BY_GPU_S, Record, Records
from harness.engines.state import END, SLOPE, VALUE, Floats, Ints
from harness.interface.tables import PER_S


@compiled
def before(requests: Records, a: int, b: int) -> bool:
    """Order of a group: key, then id."""
    if requests[a].key != requests[b].key:
        return bool(requests[a].key < requests[b].key)
    return a < b


@compiled
def _before_starved(requests: Records, starved: int, a: int, b: int) -> bool:
    """The same, where requests of the services in the bits of `starved` come before the others."""
    first = (starved >> requests[a].service) & 1
    if first != (starved >> requests[b].service) & 1:
        return bool(first)
    return before(requests, a, b)


@compiled
def sort_unfinished(requests: Records, line: Ints, base: int, count: int, starved: int) -> int:
    """Sort requests of a line, nearly in order, without those that have ended; returns how many.

    The line begins at `base`; bit n of `starved` says whether service n is.
    """
    kept = 0
    for i in range(base, base + count):
        request = line[i]
        if not np.isnan(requests[request].finished_s):
            continue
        at = base + kept
        while at > base and _before_starved(requests, starved, request, line[at - 1]):
            line[at] = line[at - 1]
            at -= 1
        line[at] = request
        kept += 1
    return kept


@compiled
def without(line: Ints, count: int, request: int) -> int:
    """Take a request out of a line of so many, if it is there; returns how many are left."""
    kept = 0
    for i in range(count):
        if line[i] != request:
            line[kept] = line[i]
            kept += 1
    return kept


@compiled
def push_waiting(requests: Records, group: Record, queue: Ints, request: int) -> None:
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
def take_waiting(requests: Records, group: Record, queue: Ints, at: int) -> None:
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
def place_anew(requests: Records, group: Record, queue: Ints, request: int) -> bool:
    """A request has another key, and with it another place if it waits: whether it does."""
    place = int(requests[request].place)
    if place >= group.n_waiting or queue[group.queue_at + place] != request:
        return False
    take_waiting(requests, group, queue, place)
    push_waiting(requests, group, queue, request)
    return True


@compiled
def push_end(requests: Records, group: Record, request: int) -> None:
    """Put a decoding request into the heap of ends."""
    group.n_heap += 1
    _rise_to_end(requests, group, request, group.n_heap - 1)


@compiled
def _rise_to_end(requests: Records, group: Record, request: int, at: int) -> None:
    """Put a request where `at` is free, or nearer to the top if it ends before those there."""
    heap, end = group.heap, requests[request].ends
    while at > 0 and end < requests[heap[(at - 1) // 2]].ends:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = request


@compiled
def take_end(requests: Records, group: Record, request: int) -> None:
    """Remove a request from the heap of ends; mostly it is the first."""
    heap, at = group.heap, 0
    while heap[at] != request:
        at += 1
    group.n_heap -= 1
    size = group.n_heap
    last = heap[size]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and requests[heap[child + 1]].ends < requests[heap[child]].ends:
            child += 1
        if requests[heap[child]].ends >= requests[last].ends:
            break
        heap[at] = heap[child]
        at = child
    _rise_to_end(requests, group, last, at)


@compiled
def decodes(requests: Records, group: Record, request: int) -> bool:
    """Whether a request of the group is in its list of decoding ones."""
    place = requests[request].place
    return bool(place < group.n_decoding and group.decoding[place] == request)


@compiled
def progress_of(requests: Records, group: Record, request: int, decodes: bool) -> float:
    """Progress of a request in what keys move with; `decodes` if it is a decoding one."""
    if group.moves == BY_GPU_S:
        gpu_s = requests[request].gpu_s
        if decodes:
            gpu_s += group.decoded_s
        return float(np.rint(gpu_s * PER_S) / PER_S)
    generated = requests[request].generated
    if decodes:
        generated += group.steps - requests[request].joined
    return float(generated)


@compiled
def piece_of(pieces: Floats, request: int, progress: float) -> int:
    """The piece of its key in which a request with this progress is."""
    piece, last = 0, pieces.shape[1] - 1
    while piece < last and pieces[request, piece, END] <= progress:
        piece += 1
    return piece


@compiled
def set_key(requests: Records, pieces: Floats, group: Record, request: int, decodes: bool) -> None:
    """Move a request's key to where it is now."""
    progress = progress_of(requests, group, request, decodes)
    piece = piece_of(pieces, request, progress)
    key = pieces[request, piece, VALUE] + pieces[request, piece, SLOPE] * progress
    requests[request].key = np.inf if np.isnan(key) else key


@compiled
def move_keys(requests: Records, pieces: Floats, group: Record) -> None:
    """Bring the keys of all running requests up to date; those of others do not move."""
    if not group.moves:
        return
    for i in range(group.n_decoding):
        set_key(requests, pieces, group, group.decoding[i], True)
    if group.moves == BY_GPU_S:
        for i in range(group.n_partial):
            set_key(requests, pieces, group, group.partial[i], False)


@compiled
def until_passed(
    requests: Records,
    pieces: Floats,
    group: Record,
    request: int,
    limit: float,
) -> float:
    """Progress of a decoding request until the last piece of its key ends.

    Or, if there is a limit (not NaN), until its key may pass that.
    """
    last = pieces.shape[1] - 1
    progress = progress_of(requests, group, request, True)
    least = pieces[request, last, END] - progress
    if not np.isnan(limit):
        piece = piece_of(pieces, request, progress)
        least = min(least, pieces[request, piece, END] - progress)
        slope = pieces[request, piece, SLOPE]
        if slope > 0.0:
            ahead = (limit - requests[request].key) / slope
            ahead = ahead if group.moves == BY_GPU_S else np.floor(ahead)
            if ahead < least:  # not where both are infinite
                least = ahead
    return float(least)
