"""Everything that the loop over all groups reads and writes."""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.costs.iteration import TABLE
from harness.engines.simulator.kernel.host_cache import HeldRecords
from harness.engines.simulator.kernel.layout import GROUP, RUN, Records
from harness.engines.state import LOG_COLUMNS, Floats, Ints, RequestArrays

T = TypeVar("T", bound=np.generic)

ROWS = 1 << 14
"""Rows of the log, and stretches, that compiled code writes before they are recorded."""

# Columns of `World.services`: how requests are dispatched, which of the homes is next in turn,
# whether calls that are released are for others to dispatch, unanswered requests, and homes
HOW, TURN, CALLS_OUTSIDE, REMAINING, HOMES, SERVICE = range(6)
BY_POLICY, BY_LOAD, BY_TOKENS, IN_TURN = range(4)

SERVICE_BITS = 40
"""In `World.instant`, a request has its service above so many bits of its number."""


TURN_OF_KEY = np.dtype([("at_s", np.float64), ("request", np.int64), ("key", np.float64)])
"""When a prediction comes, of which request, and which key it gives it."""

NO_CALLS = np.zeros(0, np.int64)
NO_SECONDS = np.zeros(0)


class World(NamedTuple):
    """Everything that `run` reads and writes.

    `next_s` has the next event of every group. `coming` has requests as they come, `delayed` those
    that come some time after an answer, too, `instant` those that come now, `turns` predictions in
    order of their time. `services` has the columns above, `homes` the groups of each. `children`
    lists the calls that wait for each request, from `first_child` on; `waits` counts the answers
    that each waits for; `follower` is the next call of a chain. `external_s` has the seconds of
    calls outside any LLM, NaN of others; `external` has those under way, in order of their end.
    `sent` counts the requests of a closed loop that have been sent; every answer releases the next.
    `instance` is the run of a unit that each call is of, `left` the unanswered calls of each.
    `done`, `busy` and `log` (first column: the group) are what has happened and has not been taken,
    `outside` the requests that have come and are for others to dispatch. `held` is what is kept in
    host memory.
    """

    requests: Records
    pieces: Floats
    swap: Floats
    tables: Records
    groups: Records
    next_s: Floats
    state: Records
    services: Ints
    homes: Ints
    instant: Ints
    done: Ints
    outside: Ints
    busy: Floats
    log: Floats
    turns: Records
    queue: Ints = NO_CALLS
    coming: Ints = NO_CALLS
    delayed: Ints = NO_CALLS
    first_child: Ints = NO_CALLS
    children: Ints = NO_CALLS
    waits: Ints = NO_CALLS
    follower: Ints = NO_CALLS
    sent: Ints = NO_CALLS
    external_s: Floats = NO_SECONDS
    external: Ints = NO_CALLS
    instance: Ints = NO_CALLS
    left: Ints = NO_CALLS
    held: HeldRecords = HeldRecords()


def empty_world(requests: RequestArrays, services: int) -> World:
    """A run without groups of so many services."""
    world = World(
        requests=requests.rows,
        pieces=requests.pieces,
        swap=requests.swap,
        tables=np.zeros(0, TABLE),
        groups=np.zeros(0, GROUP),
        next_s=np.zeros(0),
        state=np.zeros(1, RUN),
        services=np.zeros((services, SERVICE), np.int64),
        homes=np.zeros((services, 1), np.int64),
        instant=np.zeros(1024, np.int64),
        done=np.zeros(1024, np.int64),
        outside=np.zeros(1024, np.int64),
        busy=np.zeros((ROWS, 3)),
        log=np.zeros((ROWS, 1 + len(LOG_COLUMNS))),
        turns=np.zeros(0, TURN_OF_KEY),
    )
    world.services[:, REMAINING] = 1 << 62
    return world


def longer(array: NDArray[T], used: int) -> NDArray[T]:
    """The array, or one of twice the length where more than half of it is used."""
    if 2 * used < len(array):
        return array
    return np.concatenate([array, np.zeros_like(array, shape=max(len(array), used))])
