"""Everything that the loop over all groups reads and writes."""

from typing import NamedTuple

import numpy as np

from harness.costs.iteration import TABLE
from harness.engines.simulator.kernel.layout import GROUP, RUN, Records
from harness.engines.state import LOG_COLUMNS, Floats, Ints, RequestArrays

ROWS = 1 << 14
"""Rows of the log, and stretches, that compiled code writes before they are recorded."""

# Columns of `World.services`: how requests are dispatched, which of the homes is next in turn,
# whether calls that are released are for others to dispatch, unanswered requests, and homes
HOW, TURN, CALLS_OUTSIDE, REMAINING, HOMES, SERVICE = range(6)
BY_POLICY, BY_LOAD, BY_TOKENS, IN_TURN = range(4)

SERVICE_BITS = 40
"""In `World.instant`, a request has its service above so many bits of its number."""


class World(NamedTuple):
    """Everything that `run` reads and writes.

    `next_s` has the next event of every group. `coming` has requests in order of arrival, `delayed`
    those that come some time after an answer, `instant` those that come now. At `turn_s` the
    prediction of `turn_request` comes, which gives it the key `turn_key`. `services` has the
    columns above, `homes` the groups of each. `children` lists the calls that wait for each
    request, from `first_child` on; `waits` counts the answers that each waits for; `follower` is
    the next call of a chain. `done`, `busy` and `log` (first column: the group) are what has
    happened and has not been taken, `outside` the requests that have come and are for others to
    dispatch.
    """

    tables: Records
    requests: Records
    pieces: Floats
    swap: Floats
    groups: Records
    queue: Ints
    next_s: Floats
    state: Records
    coming: Ints
    delayed: Ints
    instant: Ints
    turn_s: Floats
    turn_request: Ints
    turn_key: Floats
    services: Ints
    homes: Ints
    first_child: Ints
    children: Ints
    waits: Ints
    follower: Ints
    done: Ints
    busy: Floats
    log: Floats
    outside: Ints


def empty_world(requests: RequestArrays, services: int) -> World:
    """A run without groups of so many services."""
    none = np.zeros(0, np.int64)
    world = World(
        tables=np.zeros(0, TABLE),
        requests=requests.rows,
        pieces=requests.pieces,
        swap=requests.swap,
        groups=np.zeros(0, GROUP),
        queue=none,
        next_s=np.zeros(0),
        state=np.zeros(1, RUN),
        coming=none,
        delayed=none,
        instant=np.zeros(1024, np.int64),
        turn_s=np.zeros(0),
        turn_request=none,
        turn_key=np.zeros(0),
        services=np.zeros((services, SERVICE), np.int64),
        homes=np.zeros((services, 1), np.int64),
        first_child=none,
        children=none,
        waits=none,
        follower=none,
        done=np.zeros(1024, np.int64),
        busy=np.zeros((ROWS, 3)),
        log=np.zeros((ROWS, 1 + len(LOG_COLUMNS))),
        outside=np.zeros(1024, np.int64),
    )
    world.services[:, REMAINING] = 1 << 62
    return world
