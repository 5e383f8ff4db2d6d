"""Promotions of a group: requests that have not run for too long go by another key.

The requests that do not run are in a chain by when they last ran: who is promoted next is its
first. After seconds, those that have been promoted since are not in it, and who has come since the
last decision is at its end, with NaN: the seconds are counted from the next decision on. After
iterations, those that are promoted are at its end again.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import (
    DECODES,
    NOTHING,
    PROMPTS,
    Record,
    Records,
)
from harness.engines.simulator.kernel.order import (
    decodes,
    place_anew,
    progress_of,
    set_key,
    without,
)
from harness.engines.simulator.kernel.work import decodes_s
from harness.engines.state import (
    ELSEWHERE,
    END,
    IN_CHAIN,
    PROMOTED_NOW,
    RUNS,
    SLOPE,
    VALUE,
    Floats,
    Ints,
)
from harness.interface.moving import PROMOTED
from harness.interface.tables import TIE_S


@compiled
def come(idle: Records, group: Record, request: int, ended: int) -> None:
    """A request is idle in a group, of whose flight so many iterations have ended.

    It may have been there before.
    """
    if idle[request].stage == ELSEWHERE:
        since = np.nan if group.promoted_for == 0 else float(group.ended + ended)
        _append(idle, group, request, since)


@compiled
def _append(idle: Records, group: Record, request: int, since: float) -> None:
    """Put a request at the end of the chain."""
    idle[request].stage, idle[request].since = IN_CHAIN, since
    idle[request].earlier, idle[request].later = group.chain_end, -1
    if group.chain_end < 0:
        group.chain_first = request
    else:
        idle[group.chain_end].later = request
    group.chain_end = request


@compiled
def _take(idle: Records, group: Record, request: int) -> None:
    """Take a request out of the chain."""
    earlier, later = idle[request].earlier, idle[request].later
    if earlier < 0:
        group.chain_first = later
    else:
        idle[earlier].later = later
    if later < 0:
        group.chain_end = earlier
    else:
        idle[later].earlier = earlier


@compiled
def promote_due(
    requests: Records,
    pieces: Floats,
    promoted: Floats,
    idle: Records,
    group: Record,
    queue: Ints,
) -> int:
    """Promote the requests for which it is due, in a decision of the group; returns how many."""
    clock, after, count = _clock(group), group.promotes_after - TIE_S, 0
    if group.promoted_for > 0:
        _demote(requests, idle, group)
    request = group.chain_end
    while request >= 0 and np.isnan(idle[request].since):
        idle[request].since = clock
        request = idle[request].earlier
    while group.chain_first >= 0 and idle[group.chain_first].since + after <= clock:
        group.promotion_rounds += count == 0
        count += 1
        request = group.chain_first
        _take(idle, group, request)
        if group.promoted_for > 0:
            _append(idle, group, request, clock)
            idle[request].left = group.promoted_for
            requests[request].key = idle[request].promoted_key
        else:
            idle[request].stage = PROMOTED_NOW
            _set_promoted(requests, pieces, promoted, idle, group, request)
        if not decodes(requests, group, request):
            place_anew(requests, group, queue, request)
    if group.promoted_for == 0:
        group.due_s = after + (clock if group.chain_first < 0 else idle[group.chain_first].since)
    return count


@compiled
def _clock(group: Record) -> float:
    """What promotions are counted by: iterations that have ended, or seconds."""
    return float(group.ended) if group.promoted_for > 0 else float(group.clock_s)


@compiled
def _set_promoted(
    requests: Records,
    pieces: Floats,
    promoted: Floats,
    idle: Records,
    group: Record,
    request: int,
) -> None:
    """A request goes by its other key from now on, as `MovingKey.where_promoted` has it."""
    is_decoding = decodes(requests, group, request)
    begun = progress_of(requests, group, request, is_decoding)
    idle[request].begun, idle[request].round = begun, group.promotion_rounds
    for p in range(pieces.shape[1]):
        known = min(p, promoted.shape[1] - 1)
        slope = promoted[request, known, SLOPE]
        pieces[request, p, END] = promoted[request, known, END] + begun
        pieces[request, p, VALUE] = promoted[request, known, VALUE] - slope * begun
        pieces[request, p, SLOPE] = slope
    pieces[request, 0, VALUE] = PROMOTED + group.promotion_rounds
    pieces[request, 0, SLOPE] = 0.0
    set_key(requests, pieces, group, request, is_decoding)


@compiled
def _demote(requests: Records, idle: Records, group: Record) -> None:
    """Promoted requests that have run in enough iterations go by their own keys again.

    None of them waits.
    """
    ended = group.ended - group.seen
    group.seen = group.ended
    for k in range(group.n_ran if ended > 0 else 0):
        request = group.ran[k]
        if idle[request].left > 0:
            idle[request].left = max(0, idle[request].left - ended)
            if idle[request].left == 0:
                requests[request].key = idle[request].own_key


@compiled
def note_running(table: Record, requests: Records, idle: Records, group: Record) -> None:
    """A flight begins: who runs is in no chain, and who ran until now and does not is in it."""
    if group.flight == NOTHING:
        return
    for k in range(group.n_ran):
        idle[group.ran[k]].stage = ELSEWHERE
    running = _list_running(group)
    clock = _clock(group)
    for k in range(running):
        _run(idle, group, group.running[k])
    for k in range(group.n_ran):
        request = group.ran[k]
        if idle[request].stage == ELSEWHERE and np.isnan(requests[request].finished_s):
            _append(idle, group, request, clock)
    for k in range(running):
        group.ran[k] = group.running[k]
    group.n_ran = running
    if group.promoted_for > 0 and group.flight == DECODES:
        _end_when_due(table, idle, group)


@compiled
def _end_when_due(table: Record, idle: Records, group: Record) -> None:
    """The decodes that begin end with the iteration after which one is promoted or demoted."""
    most = float(group.iterations)
    if group.chain_first >= 0:
        most = min(most, idle[group.chain_first].since + group.promotes_after - group.ended)
    for k in range(group.n_ran):
        left = idle[group.ran[k]].left
        if left > 0:
            most = min(most, float(left))
    if most < group.iterations:
        group.iterations = int(most)
        group.flight_s = decodes_s(table, group, group.iterations)


@compiled
def _list_running(group: Record) -> int:
    """Fill `running` with the requests in flight; returns how many."""
    count = 0
    if group.flight != PROMPTS:
        for k in range(group.n_decoding):
            group.running[k] = group.decoding[k]
        count = group.n_decoding
    if group.flight != DECODES:
        for k in range(group.n_partial):
            if group.chunk[k] > 0:
                group.running[count] = group.partial[k]
                count += 1
    return int(count)


@compiled
def _run(idle: Records, group: Record, request: int) -> None:
    """A request runs in the flight that begins."""
    if idle[request].stage == IN_CHAIN:
        _take(idle, group, request)
    idle[request].stage = RUNS


@compiled
def forget(idle: Records, group: Record, ids: Ints) -> None:
    """Requests leave a group: in another one, or here again, they have just come."""
    for k in range(len(ids) if group.promotes_after < np.inf else 0):
        request = ids[k]
        if idle[request].stage == IN_CHAIN:
            _take(idle, group, request)
        idle[request].stage, idle[request].round, idle[request].left = ELSEWHERE, 0, 0
        group.n_ran = without(group.ran, group.n_ran, request)
