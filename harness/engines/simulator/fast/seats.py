"""A replica under an order that displaces: who has a seat now (`interface.seating`, compiled)."""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    DECODING,
    PARTIAL,
    PAUSE,
    PAUSED,
    SEATED,
    STEPS,
    SWAP_OUT,
    USED_BLOCKS,
    WAITING,
    WORK_ATTENDED,
    WORK_PADDED,
    WORK_REQUESTS,
    WORK_TOKENS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.heaps import before, pop_waiting, push_waiting
from harness.engines.simulator.fast.holders import (
    forget_ends,
    join,
    note_preempted,
    part,
    start,
)
from harness.engines.simulator.fast.keys import move_keys
from harness.engines.simulator.fast.kv import taken
from harness.engines.simulator.fast.lasts import decodes
from harness.engines.simulator.fast.swaps import swap_in, swap_out
from harness.engines.state import HOST, RequestArrays


@inlined
def _sort_seated(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Bring those with seats into order, without those that have ended; they are nearly so."""
    seats, counts, kept = replica.seats, replica.counts, 0
    for i in range(counts[SEATED]):
        request = seats[i]
        if not np.isnan(requests.finished_s[request]):
            continue
        at = kept
        while at > 0 and before(requests, request, seats[at - 1]):
            seats[at] = seats[at - 1]
            at -= 1
        seats[at] = request
        kept += 1
    counts[SEATED] = kept


@compiled
def take_seats(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Give the seats to those who come first and fit, and take them from the others.

    Afterwards `partial` has those with seats that do not decode, in order.
    """
    counts, seats = replica.counts, replica.seats
    move_keys(requests, replica, rule)
    _sort_seated(requests, replica)
    seated, kept, used = _choose(requests, replica, rule)
    lost = False
    for i in range(kept, counts[SEATED]):
        lost |= decodes(requests, replica, seats[i])
        _displace(requests, replica, rule, seats[i])
    if lost:
        forget_ends(replica, requests)
    counts[SEATED] = seated
    counts[PARTIAL] = counts[USED_BLOCKS] = 0
    for i in range(seated):
        seats[i] = replica.moved[i]
        _seat(requests, replica, rule, seats[i])
    _drop_paused(requests, replica, rule, used)
    counts[USED_BLOCKS] += counts[PAUSED]


@inlined
def _choose(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> tuple[int, int, int]:
    """Fill `moved` with those who have seats now, in order.

    Returns how many, how many of those who had one are among them, and the blocks of their seats.
    """
    counts, seats = replica.counts, replica.seats
    seated = kept = used = 0
    while seated < rule.max_requests:
        come = counts[WAITING] > 0 and (
            kept == counts[SEATED] or before(requests, replica.waiting[0], seats[kept])
        )
        if not come and kept == counts[SEATED]:
            break
        request = replica.waiting[0] if come else seats[kept]
        context = requests.prompt[request] + requests.generated[request]
        if decodes(requests, replica, request):
            context += counts[STEPS] - requests.joined[request]
        needed = taken(requests, rule, request, context)
        spare = 0 if requests.kv[request] > 0 else rule.watermark_blocks
        if used + needed > rule.capacity_blocks - spare:
            break
        used += needed
        if come:
            pop_waiting(requests, replica)
            counts[PAUSED] -= _held(requests, rule, request)
        else:
            kept += 1
        replica.moved[seated] = request
        seated += 1
    return seated, kept, used


@inlined
def _held(requests: RequestArrays, rule: ReplicaRule, request: int) -> int:
    """Blocks that a request that does not decode holds."""
    held = requests.kv[request]
    return taken(requests, rule, request, held) if held > 0 else 0


@inlined
def _seat(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int) -> None:
    """A request with a seat decodes, or is among those whose prompt is to be computed."""
    counts = replica.counts
    context = requests.prompt[request] + requests.generated[request]
    if rule.displaces == SWAP_OUT and requests.swap[request, HOST] > 0:
        start(requests, replica, request)
        swap_in(requests, replica, rule, request)
    held = requests.kv[request]
    if decodes(requests, replica, request):
        held += counts[STEPS] - requests.joined[request]
    elif requests.generated[request] > 0 and held == context - 1:
        _resume(requests, replica, rule, request)
    else:
        held = context
        replica.partial[counts[PARTIAL]] = request
        counts[PARTIAL] += 1
    counts[USED_BLOCKS] += taken(requests, rule, request, held)


@compiled
def _resume(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """One that has paused, or has its KV back, decodes on."""
    join(requests, replica, rule, request)


@compiled
def _displace(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """A request loses its seat: it pauses, or is preempted, perhaps by swap, if it has begun."""
    if decodes(requests, replica, request):
        part(requests, replica, rule, request)
    if rule.displaces == PAUSE:
        replica.counts[PAUSED] += _held(requests, rule, request)
    elif requests.kv[request] > 0:
        if rule.displaces == SWAP_OUT:
            swap_out(requests, replica, rule, request)
        requests.kv[request] = 0
        note_preempted(requests, replica, request)
    push_waiting(requests, replica, request)


@compiled
def _drop_paused(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, used: int
) -> None:
    """Preempt those that pause, from the end of the order, until there is room for the seats."""
    counts = replica.counts
    while used + counts[PAUSED] > rule.capacity_blocks:
        victim = -1
        for i in range(counts[WAITING]):
            request = replica.waiting[i]
            if requests.kv[request] > 0 and (victim < 0 or before(requests, victim, request)):
                victim = request
        counts[PAUSED] -= _held(requests, rule, victim)
        requests.kv[victim] = 0
        note_preempted(requests, replica, victim)


@inlined
def seat_chunks(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Share out what decodes leave of the budget among those with seats that do not decode."""
    counts = replica.counts
    budget = rule.max_tokens - counts[DECODING]
    for i in range(counts[PARTIAL]):
        request = replica.partial[i]
        missing = requests.prompt[request] + requests.generated[request] - requests.kv[request]
        tokens = min(missing, budget)
        replica.chunk[i] = tokens
        budget -= tokens
        if tokens > 0:
            start(requests, replica, request)


@inlined
def seat_whole(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> int:
    """Begin whole prompts of those with seats while the rule allows; returns how many."""
    counts, work = replica.counts, replica.work
    admitted = total = longest = 0
    work[:] = 0.0
    replica.chunk[: counts[PARTIAL]] = 0
    for i in range(counts[PARTIAL]):
        request = replica.partial[i]
        context = requests.prompt[request] + requests.generated[request]
        total, longest = total + context, max(longest, context)
        padded = (i + 1) * longest if rule.pads else total
        if padded > rule.max_tokens or (rule.pads and padded - total > rule.max_padding):
            break
        start(requests, replica, request)
        replica.chunk[i] = context
        admitted = i + 1
        work[WORK_TOKENS], work[WORK_PADDED] = total, padded
        work[WORK_ATTENDED] = (
            admitted * float(longest) * longest
            if rule.pads
            else work[WORK_ATTENDED] + float(context) * context
        )
    work[WORK_REQUESTS] = admitted
    return admitted
