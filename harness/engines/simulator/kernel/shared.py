"""Whose turn it is where every batch is of one service and one phase (`core.fill`).

Between two batches all unfinished requests of the group wait, those with KV among them.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import PAUSE, Record, Records
from harness.engines.simulator.kernel.order import (
    decodes,
    move_keys,
    push_waiting,
    sort_unfinished,
)
from harness.engines.simulator.kernel.running import (
    context_of,
    drop,
    end_growth,
    growth,
    held_blocks,
    join,
    leave,
    note_preempted,
    taken,
    write_back,
)
from harness.engines.state import Floats, Ints
from harness.interface.tables import TIE_S


@compiled
def take_turn(requests: Records, group: Record, queue: Ints) -> tuple[float, int, float]:
    """Let the first service in order that can run something do so.

    Afterwards `partial` has the requests whose prompts are to be computed, or others decode.
    Returns the limits of keys, as `iterations` has them.
    """
    if group.may_starve:
        _note_starved(requests, group, queue)
    sort_unfinished(requests, queue, group.queue_at, group.n_waiting, group.starved)
    in_slots = _take_slots(requests, group, queue) if group.displaces else group.n_waiting
    tried, limits = 0, (np.nan, -1, np.nan)
    for i in range(in_slots):
        first = queue[group.queue_at + i]
        if (tried >> requests[first].service) & 1:
            continue
        group.turn = requests[first].service
        tried |= 1 << group.turn
        admits = group.displaces or not group.preempted
        if admits and (group.prompts_first or requests[first].kv == 0):
            _admit(requests, group, queue, in_slots)
        if group.n_partial == 0:
            _run_holders(requests, group, queue, in_slots)
        if group.n_partial + group.n_decoding > 0:
            group.table = group.tables[group.turn]
            limits = _limits(requests, group, queue, i, in_slots)
            group.due_s = _starves_s(group) if group.may_starve else np.inf
            _take_out(requests, group, queue)
            break
    return limits


@compiled
def _note_starved(requests: Records, group: Record, queue: Ints) -> None:
    """Note when services are starved if they do not run, and which ones are now."""
    for service in range(group.services_end):
        group.starves_at_s[service] = np.inf
    for i in range(group.n_waiting):
        request = queue[group.queue_at + i]
        service = requests[request].service
        since_s = max(requests[request].arrival_s, group.ran_s[service])
        at_s = since_s + group.starves_after_s[service] - TIE_S
        group.starves_at_s[service] = min(group.starves_at_s[service], at_s)
    group.starved = 0
    for service in range(group.services_end):
        if group.starves_at_s[service] <= group.clock_s:
            group.starved |= 1 << service


@compiled
def _take_slots(requests: Records, group: Record, queue: Ints) -> int:
    """Give slots to the front of the order, and preempt of the rest what must give way.

    Returns how many have slots; `slack_kv` is by how much they may grow and keep them.
    """
    capacity, base, used, in_slots = group.capacity_blocks, group.queue_at, 0, 0
    group.slack_kv = capacity
    while in_slots < min(group.n_waiting, group.max_requests):
        request = queue[base + in_slots]
        need = taken(requests, group, request, context_of(requests, group, request, False))
        spare = 0 if requests[request].kv > 0 else group.spare_kv[requests[request].service]
        if used + need + spare > capacity:
            break
        used += need
        group.slack_kv = min(group.slack_kv, capacity - spare - used)
        in_slots += 1
    keeps = group.displaces == PAUSE
    for i in range(in_slots, group.n_waiting):
        request = queue[base + i]
        if requests[request].kv == 0:
            continue
        used += held_blocks(requests, group, request)
        keeps = keeps and used <= capacity
        if keeps:
            group.slack_kv = min(group.slack_kv, capacity - used)
        else:
            drop(requests, group, None, request)
            note_preempted(requests, group, request)
    return in_slots


@compiled
def _admit(requests: Records, group: Record, queue: Ints, in_slots: int) -> None:
    """Take whole prompts of a service into the batch, in order, while the rule allows."""
    left, tokens = group.max_requests, 0
    for i in range(in_slots):
        request = queue[group.queue_at + i]
        is_own = requests[request].service == group.turn
        left -= is_own and requests[request].kv > 0
    for i in range(in_slots):
        request = queue[group.queue_at + i]
        if requests[request].service != group.turn or requests[request].kv > 0:
            continue
        context = context_of(requests, group, request, False)
        need = taken(requests, group, request, context)
        tokens += context
        free = group.capacity_blocks - group.used_blocks - need
        is_full = left == 0 or free < group.spare_kv[group.turn]
        if tokens > group.max_tokens or (is_full and not group.displaces):
            break
        left -= 1
        group.used_blocks += need
        group.partial[group.n_partial] = request
        group.n_partial += 1


@compiled
def _run_holders(requests: Records, group: Record, queue: Ints, in_slots: int) -> None:
    """Let the holders of a service decode, preempting from the end of the order for their KV."""
    for i in range(in_slots):
        request = queue[group.queue_at + i]
        if requests[request].service == group.turn and requests[request].kv > 0:
            join(requests, group, request)
    last = in_slots
    while growth(group) > group.capacity_blocks - group.used_blocks:
        last -= 1
        victim = queue[group.queue_at + last]
        if requests[victim].kv > 0:
            if decodes(requests, group, victim):
                leave(requests, group, victim)
            drop(requests, group, None, victim)
            note_preempted(requests, group, victim)


@compiled
def _limits(
    requests: Records, group: Record, queue: Ints, first: int, in_slots: int
) -> tuple[float, int, float]:
    """Which keys those of the batch may not pass, lest service, phase or slots change.

    The service and the phase are those of its first request, at place `first`: while that stays
    before all others that might take them, the order of the others does not matter. Keys of
    requests that do not run stand.
    """
    limit = np.inf
    if group.displaces and in_slots < group.n_waiting:
        limit = float(requests[queue[group.queue_at + in_slots]].key)
    rival = limit
    for i in range(first, in_slots):
        request = queue[group.queue_at + i]
        is_own = requests[request].service == group.turn
        if not is_own or (requests[request].kv == 0 and not group.prompts_first):
            rival = min(rival, float(requests[request].key))
            break
    head = int(queue[group.queue_at + first])
    return limit if limit < np.inf else np.nan, head, rival if rival < np.inf else np.nan


@compiled
def _starves_s(group: Record) -> float:
    """When another service is starved; now, where the one whose turn it is is."""
    at_s = np.inf
    for other in range(group.services_end):
        if other != group.turn and not (group.starved >> other) & 1:
            at_s = min(at_s, float(group.starves_at_s[other]))
    return float(group.clock_s) if (group.starved >> group.turn) & 1 else at_s


@compiled
def _take_out(requests: Records, group: Record, queue: Ints) -> None:
    """The requests of the batch wait no more. They and those that wait are in order."""
    batch = group.partial if group.n_partial > 0 else group.decoding
    base, count, kept = group.queue_at, group.n_waiting, 0
    group.paused_blocks = 0
    for i in range(count):
        request = queue[base + i]
        if i - kept < group.n_partial + group.n_decoding and batch[i - kept] == request:
            continue
        queue[base + kept] = request
        kept += 1
        group.paused_blocks += held_blocks(requests, group, request)
    group.n_waiting = kept


@compiled
def end_turn(requests: Records, pieces: Floats, group: Record, queue: Ints) -> None:
    """All requests of the batch wait again, before the others: so they are nearly in order.

    Their keys move, and those of no other.
    """
    move_keys(requests, pieces, group)
    write_back(requests, group)
    base, batch = group.queue_at, group.n_decoding
    for i in range(group.n_waiting - 1 if group.services_end > 0 and batch > 0 else -1, -1, -1):
        queue[base + batch + i] = queue[base + i]
    for i in range(batch):
        request = group.decoding[i]
        end_growth(requests, group, request)
        if group.until:
            push_waiting(requests, group, queue, request)
        else:
            queue[base + i] = request
            group.n_waiting += 1
    group.n_decoding = group.n_heap = group.context = 0
    group.longest, group.paused_blocks = -(1 << 62), group.used_blocks
    group.ran_s[group.turn] = group.clock_s
