"""The textbook recursions of the queues, request by request, on given gaps and service times.

Each fills `response_s`, the time from arrival to end, and `work_s`, the unfinished work found on
arrival.
"""

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled
from harness.verify.laws import Floats

ROOM = 1024
"""Requests that are ever together."""


@compiled
def first_come(
    gap_s: Floats, service_s: Floats, busy_s: Floats, response_s: Floats, work_s: Floats
) -> None:
    """First come first served; `busy_s` holds a zero per server.

    Kiefer and Wolfowitz, On the theory of queues with many servers, 1955; with one server it is
    Lindley's recursion, 1952.
    """
    for i in range(len(gap_s)):
        found = 0.0
        for seat in range(len(busy_s)):
            busy_s[seat] = max(0.0, busy_s[seat] - gap_s[i])
            found += busy_s[seat]
        work_s[i] = found
        free_s = busy_s[0] + service_s[i]
        response_s[i] = free_s
        place = 1
        while place < len(busy_s) and busy_s[place] < free_s:
            busy_s[place - 1] = busy_s[place]
            place += 1
        busy_s[place - 1] = free_s


@compiled
def by_rest(
    share: bool, gap_s: Floats, service_s: Floats,
    order: Floats, ids: NDArray[np.int64], response_s: Floats, work_s: Floats,
) -> None:  # fmt: skip
    """With `share` each of n requests gets 1/n of the server, else the one with the least left all.

    `order`, sorted from the largest down, holds what each has left, or the attained service at
    which it ends on a clock that runs at 1/n; `ids` whose it is. Both come with `ROOM`.
    `response_s` holds minus the arrival time until a request ends.
    """
    count, attained_s, now_s, left_s = 0, 0.0, 0.0, 0.0
    for i in range(len(gap_s) + 1):
        rest_s = gap_s[i] if i < len(gap_s) else np.inf
        left_s = max(0.0, left_s - rest_s)
        while count > 0:
            needed_s = (order[count - 1] - attained_s) * (count if share else 1)
            if needed_s > rest_s:
                break
            count -= 1
            if share:
                attained_s = order[count]
            rest_s -= needed_s
            now_s += needed_s
            response_s[ids[count]] += now_s
        if i == len(gap_s):
            break
        if share:
            attained_s = attained_s + rest_s / count if count > 0 else 0.0
        elif count > 0:
            order[count - 1] -= rest_s
        now_s += rest_s
        work_s[i] = left_s
        left_s += service_s[i]
        response_s[i] = -now_s
        place = count
        while place > 0 and order[place - 1] <= attained_s + service_s[i]:
            order[place], ids[place] = order[place - 1], ids[place - 1]
            place -= 1
        order[place], ids[place] = attained_s + service_s[i], i
        count += 1
