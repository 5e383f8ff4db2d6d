"""A group under an order that displaces: which requests have seats (`interface.seating`)."""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.admission import no_work
from harness.engines.simulator.kernel.keys import move_keys
from harness.engines.simulator.kernel.kv import held_blocks, taken
from harness.engines.simulator.kernel.layout import PAUSE, SWAP_OUT, Group, Records
from harness.engines.simulator.kernel.queues import (
    before,
    decodes,
    pop_waiting,
    push_waiting,
    rebuild_ends,
)
from harness.engines.simulator.kernel.running import (
    context_of,
    join,
    leave,
    note_preempted,
    start,
)
from harness.engines.state import HOST, SWAP_BYTES, SWAP_S, SWAPS, Floats, Ints


@compiled
def _sort_seated(requests: Records, group: Group) -> None:
    """Bring the seats into order, without requests that have ended; they are nearly so."""
    seats, kept = group.seats, 0
    for i in range(group.n_seated):
        request = seats[i]
        if not np.isnan(requests[request].finished_s):
            continue
        at = kept
        while at > 0 and before(requests, request, seats[at - 1]):
            seats[at] = seats[at - 1]
            at -= 1
        seats[at] = request
        kept += 1
    group.n_seated = kept


@compiled
def take_seats(requests: Records, pieces: Floats, swap: Floats, group: Group, queue: Ints) -> None:
    """Give the seats to the requests that come first and fit, and take them from the others.

    Afterwards `partial` has the seated requests that do not decode, in order.
    """
    seats = group.seats
    move_keys(requests, pieces, group)
    _sort_seated(requests, group)
    seated, kept, used = _choose(requests, group, queue)
    lost = False
    for i in range(kept, group.n_seated):
        lost |= decodes(requests, group, seats[i])
        _displace(requests, swap, group, queue, seats[i])
    if lost:
        rebuild_ends(requests, group)
    group.n_seated = seated
    group.n_partial = group.used_blocks = 0
    for i in range(seated):
        seats[i] = group.moved[i]
        _seat(requests, swap, group, seats[i])
    _drop_paused(requests, group, queue, used)
    group.used_blocks += group.paused_blocks


@compiled
def _choose(requests: Records, group: Group, queue: Ints) -> tuple[int, int, int]:
    """Fill `moved` with the requests that have seats now, in order.

    Returns how many, how many of those that had one are among them, and the blocks of their seats.
    """
    seats = group.seats
    seated = kept = used = 0
    while seated < group.max_requests:
        come = group.n_waiting > 0 and (
            kept == group.n_seated or before(requests, queue[group.queue_at], seats[kept])
        )
        if not come and kept == group.n_seated:
            break
        request = queue[group.queue_at] if come else seats[kept]
        context = context_of(requests, group, request, decodes(requests, group, request))
        needed = taken(requests, group, request, context)
        spare = 0 if requests[request].kv > 0 else group.watermark_blocks
        if used + needed > group.capacity_blocks - spare:
            break
        used += needed
        if come:
            pop_waiting(requests, group, queue)
            group.paused_blocks -= held_blocks(requests, group, request)
        else:
            kept += 1
        group.moved[seated] = request
        seated += 1
    return seated, kept, used


@compiled
def _seat(requests: Records, swap: Floats, group: Group, request: int) -> None:
    """A request with a seat decodes, or is among those whose prompt is to be computed."""
    context = requests[request].prompt + requests[request].generated
    if group.displaces == SWAP_OUT and swap[request, HOST] > 0:
        start(requests, group, request)
        _swap_in(requests, swap, group, request)
    held = requests[request].kv
    if decodes(requests, group, request):
        held += group.steps - requests[request].joined
    elif requests[request].generated > 0 and held == context - 1:
        join(requests, group, request)
    else:
        held = context
        group.partial[group.n_partial] = request
        group.n_partial += 1
    group.used_blocks += taken(requests, group, request, held)


@compiled
def _displace(requests: Records, swap: Floats, group: Group, queue: Ints, request: int) -> None:
    """A request loses its seat: it pauses, or is preempted, perhaps by swap, if it has begun."""
    if decodes(requests, group, request):
        leave(requests, group, request)
    if group.displaces == PAUSE:
        group.paused_blocks += held_blocks(requests, group, request)
    elif requests[request].kv > 0:
        if group.displaces == SWAP_OUT:
            _swap_out(requests, swap, group, request)
        requests[request].kv = 0
        note_preempted(requests, group, request)
    push_waiting(requests, group, queue, request)


@compiled
def _drop_paused(requests: Records, group: Group, queue: Ints, used: int) -> None:
    """Preempt paused requests, from the end of the order, until there is room for the seats."""
    while used + group.paused_blocks > group.capacity_blocks:
        victim = -1
        for i in range(group.n_waiting):
            request = queue[group.queue_at + i]
            if requests[request].kv > 0 and (victim < 0 or before(requests, victim, request)):
                victim = request
        group.paused_blocks -= held_blocks(requests, group, victim)
        requests[victim].kv = 0
        note_preempted(requests, group, victim)


@compiled
def seat_chunks(requests: Records, group: Group) -> None:
    """Share out what decodes leave of the budget among seated requests that do not decode."""
    budget = group.max_tokens - group.n_decoding
    for i in range(group.n_partial):
        request = group.partial[i]
        missing = requests[request].prompt + requests[request].generated - requests[request].kv
        tokens = min(missing, budget)
        group.chunk[i] = tokens
        budget -= tokens
        if tokens > 0:
            start(requests, group, request)


@compiled
def seat_whole(requests: Records, group: Group) -> int:
    """Begin whole prompts of seated requests while the rule allows; returns how many."""
    admitted = total = longest = 0
    no_work(group)
    for i in range(group.n_partial):
        group.chunk[i] = 0
    for i in range(group.n_partial):
        request = group.partial[i]
        context = requests[request].prompt + requests[request].generated
        total, longest = total + context, max(longest, context)
        padded = (i + 1) * longest if group.pads else total
        if padded > group.max_tokens or (group.pads and padded - total > group.max_padding):
            break
        start(requests, group, request)
        group.chunk[i] = context
        admitted = i + 1
        group.work_tokens, group.work_padded = total, padded
        if group.pads:
            group.work_attended = admitted * float(longest) * longest
        else:
            group.work_attended += float(context) * context
    group.work_requests = admitted
    return admitted


@compiled
def _copy(swap: Floats, group: Group, request: int, tokens: int) -> None:
    """KV of so many tokens moves before the next iteration, or during it."""
    seconds = tokens * group.swap_token_s
    swap[request, SWAP_BYTES] += tokens * group.token_bytes
    swap[request, SWAP_S] += seconds
    group.swapping_s += seconds


@compiled
def _swap_out(requests: Records, swap: Floats, group: Group, request: int) -> None:
    """A request that is preempted has its KV kept in host memory, if there is room."""
    held = requests[request].kv
    if held > group.host_tokens - group.host_used_tokens:
        return
    _copy(swap, group, request, held)
    swap[request, HOST] = held
    swap[request, SWAPS] += 1
    group.host_used_tokens += held


@compiled
def _swap_in(requests: Records, swap: Floats, group: Group, request: int) -> None:
    """A request's KV comes back from host memory."""
    held = int(swap[request, HOST])
    _copy(swap, group, request, held)
    requests[request].kv = held
    swap[request, HOST] = 0.0
    group.host_used_tokens -= held


@compiled
def with_swaps(group: Group, seconds: float) -> float:
    """Seconds of the iteration that begins now, with what is copied before or during it."""
    swapping_s = float(group.swapping_s)
    group.swapping_s = 0.0
    if group.swap_overlaps:
        return max(seconds, swapping_s)
    return seconds + swapping_s
