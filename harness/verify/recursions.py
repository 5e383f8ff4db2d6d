"""The textbook recursions of the queues, request by request, on given gaps and service times.

Each fills `response_s`, the time from arrival to end, and `work_s`, the unfinished work found on
arrival. Sorted lists are kept in `order` (values, largest first) and `ids` (request ids), which
the caller provides with as much room as requests are ever together.
"""

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled, inlined
from harness.verify.laws import Floats, Sample

Ints = NDArray[np.int64]
ROOM = 1024


@compiled
def first_come(
    gap_s: Floats, service_s: Floats, max_num_seqs: Floats, response_s: Floats, work_s: Floats
) -> None:
    """First come first served; `slots` holds a zero per server.

    Kiefer and Wolfowitz, On the theory of queues with many servers, 1955; with one slot it is
    Lindley's recursion, 1952.
    """
    for i in range(len(gap_s)):
        found = 0.0
        for seat in range(len(max_num_seqs)):
            max_num_seqs[seat] = max(0.0, max_num_seqs[seat] - gap_s[i])
            found += max_num_seqs[seat]
        work_s[i] = found
        free_s = max_num_seqs[0] + service_s[i]
        response_s[i] = free_s
        place = 1
        while place < len(max_num_seqs) and max_num_seqs[place] < free_s:
            max_num_seqs[place - 1] = max_num_seqs[place]
            place += 1
        max_num_seqs[place - 1] = free_s


@inlined
def _insert(order: Floats, ids: Ints, count: int, value: float, request: int) -> None:
    """Put a request into a list sorted from the largest down; equals stand before older ones."""
    place = count
    while place > 0 and order[place - 1] <= value:
        order[place] = order[place - 1]
        ids[place] = ids[place - 1]
        place -= 1
    order[place] = value
    ids[place] = request


@compiled
def shared(
    gap_s: Floats,
    service_s: Floats,
    order: Floats,
    ids: Ints,
    response_s: Floats,
    work_s: Floats,
) -> None:
    """Processor sharing: of n requests each gets 1/n of the server.

    `order` holds the attained service at which each ends, on a clock that runs at 1/n.
    `response_s` holds minus the arrival time until a request ends.
    """
    count, attained_s, now_s, left_s = 0, 0.0, 0.0, 0.0
    for i in range(len(gap_s) + 1):
        rest_s = gap_s[i] if i < len(gap_s) else np.inf
        left_s = max(0.0, left_s - rest_s)
        while count > 0 and (order[count - 1] - attained_s) * count <= rest_s:
            needed_s = (order[count - 1] - attained_s) * count
            count -= 1
            attained_s = order[count]
            rest_s -= needed_s
            now_s += needed_s
            response_s[ids[count]] += now_s
        if i < len(gap_s):
            attained_s = attained_s + rest_s / count if count > 0 else 0.0
            now_s += rest_s
            work_s[i] = left_s
            left_s += service_s[i]
            response_s[i] = -now_s
            _insert(order, ids, count, attained_s + service_s[i], i)
            count += 1


@compiled
def shortest_remaining(
    gap_s: Floats,
    service_s: Floats,
    order: Floats,
    ids: Ints,
    response_s: Floats,
    work_s: Floats,
) -> None:
    """Preemptive: the request with the least left runs. `order` holds what each has left.

    `response_s` holds minus the arrival time until a request ends.
    """
    count, now_s, left_s = 0, 0.0, 0.0
    for i in range(len(gap_s) + 1):
        rest_s = gap_s[i] if i < len(gap_s) else np.inf
        left_s = max(0.0, left_s - rest_s)
        while count > 0 and order[count - 1] <= rest_s:
            count -= 1
            rest_s -= order[count]
            now_s += order[count]
            response_s[ids[count]] += now_s
        if i < len(gap_s):
            if count > 0:
                order[count - 1] -= rest_s
            now_s += rest_s
            work_s[i] = left_s
            left_s += service_s[i]
            response_s[i] = -now_s
            _insert(order, ids, count, service_s[i], i)
            count += 1


def first_come_s(sample: Sample, max_num_seqs: int) -> tuple[Floats, Floats]:
    """Response times and work found under first come first served."""
    response_s, work_s = np.zeros((2, len(sample.gap_ticks)))
    first_come(sample.gap_s, sample.service_s, np.zeros(max_num_seqs), response_s, work_s)
    return response_s, work_s


def shared_s(sample: Sample) -> tuple[Floats, Floats]:
    """Response times and work found under processor sharing."""
    response_s, work_s = np.zeros((2, len(sample.gap_ticks)))
    ids = np.zeros(ROOM, np.int64)
    shared(sample.gap_s, sample.service_s, np.zeros(ROOM), ids, response_s, work_s)
    return response_s, work_s


def shortest_remaining_s(sample: Sample) -> tuple[Floats, Floats]:
    """Response times and work found when the shortest remaining request runs."""
    response_s, work_s = np.zeros((2, len(sample.gap_ticks)))
    ids = np.zeros(ROOM, np.int64)
    shortest_remaining(sample.gap_s, sample.service_s, np.zeros(ROOM), ids, response_s, work_s)
    return response_s, work_s
