"""Which requests begin or go on: admitted requests, or requests in slots (`displaces`).

Of them an iteration computes whole prompts or chunks of them (`core.fill`).
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel import prefixes, running
from harness.engines.simulator.kernel.layout import PAUSE, GroupArrays, Record, Records
from harness.engines.simulator.kernel.order import (
    before,
    decodes,
    move_keys,
    push_waiting,
    sort_unfinished,
    take_waiting,
)
from harness.engines.simulator.kernel.prefixes import CacheRecords
from harness.engines.simulator.kernel.swapping import first_swapped, swap_in
from harness.engines.state import HOST, Floats, Ints

NO_LIMIT = 1 << 62


@compiled
def _fits_batch(group: Record, count: int, total: int, longest: int) -> bool:
    """Whether the rule allows a batch of so many whole prompts; of chunks it does."""
    if group.chunked_prefill:
        return True
    padded = count * longest if group.pads else total
    too_padded = group.pads and padded - total > group.max_padding
    return bool(padded <= group.max_tokens and not too_padded)


@compiled
def _find(
    requests: Records, group: Record, cache: CacheRecords | None, request: int
) -> tuple[int, int, bool]:
    """What a waiting request finds cached: tokens, and blocks of them that others hold.

    And whether there is room for its whole context.
    """
    found = held = 0
    context = requests[request].prompt + requests[request].generated
    if cache is not None:
        found, held = prefixes.find(cache, group, request, context)
    needed = running.taken(requests, group, request, context) - held
    fits = group.capacity_blocks - group.used_blocks - needed >= group.spare_kv[0]
    group.found_blocks = -1 if fits else found
    return found * group.block_tokens, held, bool(fits)


@compiled
def admit(arrays: GroupArrays, group: Record, cache: CacheRecords | None, budget: int) -> None:
    """Take waiting requests behind those in `partial`: chunks, of which the budget cuts the last.

    Or whole prompts, while the rule allows. While there are requests with KV in host memory, these
    come back and there are no newcomers.
    """
    requests, _, swap, queue = arrays
    group.found_blocks = -1
    total, longest, brings = 0, 0, group.n_swapped > 0
    while budget > 0 and group.n_decoding + group.n_partial < group.max_requests:
        at = first_swapped(requests, swap, group, queue) if brings else 0
        if at < 0 or at == group.n_waiting:
            break
        request = queue[group.queue_at + at]
        context = requests[request].prompt + requests[request].generated
        total, longest = total + context, max(longest, context)
        if not brings and not _fits_batch(group, group.n_partial + 1, total, longest):
            break
        found, shared, fits = _find(requests, group, cache, request)
        if not fits:
            break
        take_waiting(requests, group, queue, at)
        if brings:
            swap_in(requests, swap, group, request)
        elif cache is not None:
            _hold_found(requests, group, cache, request, found)
        held, tokens = requests[request].kv, min(running.missing(requests, request), budget)
        if cache is not None:
            prefixes.hold(cache, group, request, held, held + tokens)
        group.used_blocks += running.taken(requests, group, request, held + tokens) - shared
        take(requests, group, request, tokens)
        budget -= tokens


@compiled
def _hold_found(
    requests: Records, group: Record, cache: CacheRecords, request: int, found: int
) -> None:
    """A request without KV holds the tokens that it has just found cached."""
    if np.isnan(requests[request].started_s):
        cache.contexts[request].cached = found
    prefixes.begin(cache, group, request, found // group.block_tokens)
    requests[request].kv = found


@compiled
def take(requests: Records, group: Record, request: int, tokens: int) -> None:
    """A request begins or goes on, with so many tokens to compute."""
    running.start(requests, request, group.clock_s)
    group.partial[group.n_partial] = request
    group.chunk[group.n_partial] = tokens
    group.n_partial += 1


@compiled
def choose_chunks(arrays: GroupArrays, group: Record, cache: CacheRecords | None) -> None:
    """Decodes first, then requests in mid-prompt, preempting from behind, then those that wait.

    In this order they take blocks, and so they find what those before them have just cached.
    """
    requests = arrays.requests
    running.make_room_to_decode(arrays, group, cache)
    if cache is not None:
        prefixes.grow(cache, requests, group, 1)
        group.grown = 1
    of_decodes, budget, i = running.growth(group), group.max_tokens - group.n_decoding, 0
    group.used_blocks += of_decodes
    while i < group.n_partial:
        request = group.partial[i]
        held = requests[request].kv
        tokens = min(running.missing(requests, request), budget)
        needed = running.taken(requests, group, request, held + tokens)
        needed -= running.taken(requests, group, request, held)
        if needed > group.capacity_blocks - group.used_blocks:
            running.preempt_last(arrays, group, cache)
            continue
        if cache is not None:
            prefixes.hold(cache, group, request, held, held + tokens)
        group.used_blocks += needed
        group.chunk[i] = tokens
        budget -= tokens
        i += 1
    if not group.preempted:
        admit(arrays, group, cache, budget)
    group.used_blocks -= of_decodes


@compiled
def take_slots(
    arrays: GroupArrays, group: Record, cache: CacheRecords | None
) -> tuple[float, int, float]:
    """Give the slots to the requests that come first and fit, and take them from the others.

    Afterwards `partial` has the requests in slots that do not decode, in order. Returns the limits
    of keys, as `iterations` has them: that of the first request without a slot.
    """
    requests, pieces, swap, queue = arrays
    slots = group.slots
    move_keys(requests, pieces, group)
    group.n_in_slots = sort_unfinished(requests, slots, 0, group.n_in_slots, 0)
    in_slots, kept, used = _choose(requests, group, queue)
    for i in range(kept, group.n_in_slots):
        _displace(arrays, group, cache, slots[i])
    group.n_in_slots = in_slots
    group.n_partial = group.used_blocks = 0
    for i in range(in_slots):
        slots[i] = group.moved[i]
        _fill_slot(requests, swap, group, slots[i])
    _drop_paused(requests, group, queue, cache, used)
    group.used_blocks += group.paused_blocks
    limit = requests[queue[group.queue_at]].key if group.n_waiting > 0 else np.nan
    return limit, -1, np.nan


@compiled
def _choose(requests: Records, group: Record, queue: Ints) -> tuple[int, int, int]:
    """Fill `moved` with the requests that have slots now, in order.

    Returns how many, how many of those that had one are among them, and the blocks of their slots.
    """
    slots = group.slots
    in_slots = kept = used = 0
    while in_slots < group.max_requests:
        come = group.n_waiting > 0 and (
            kept == group.n_in_slots or before(requests, queue[group.queue_at], slots[kept])
        )
        if not come and kept == group.n_in_slots:
            break
        request = queue[group.queue_at] if come else slots[kept]
        context = running.context_of(requests, group, request, decodes(requests, group, request))
        needed = running.taken(requests, group, request, context)
        spare = 0 if requests[request].kv > 0 else group.spare_kv[0]
        if used + needed > group.capacity_blocks - spare:
            break
        used += needed
        if come:
            take_waiting(requests, group, queue, 0)
            group.paused_blocks -= running.held_blocks(requests, group, request)
        else:
            kept += 1
        group.moved[in_slots] = request
        in_slots += 1
    return in_slots, kept, used


@compiled
def _fill_slot(requests: Records, swap: Floats, group: Record, request: int) -> None:
    """A request with a slot decodes, or is among those whose prompt is to be computed."""
    context = requests[request].prompt + requests[request].generated
    if group.n_swapped > 0 and swap[request, HOST] > 0:
        running.start(requests, request, group.clock_s)
        swap_in(requests, swap, group, request)
    held = requests[request].kv
    if decodes(requests, group, request):
        held += group.steps - requests[request].joined
    elif requests[request].generated > 0 and held == context - 1:
        running.join(requests, group, request)
    else:
        held = context
        group.partial[group.n_partial] = request
        group.n_partial += 1
    group.used_blocks += running.taken(requests, group, request, held)


@compiled
def _displace(arrays: GroupArrays, group: Record, cache: CacheRecords | None, request: int) -> None:
    """A request loses its slot: it pauses, or is preempted, perhaps by swap, if it has begun."""
    requests, _, swap, queue = arrays
    if decodes(requests, group, request):
        running.leave(requests, group, request)
    if group.displaces == PAUSE:
        group.paused_blocks += running.held_blocks(requests, group, request)
    elif requests[request].kv > 0:
        running.preempt(requests, swap, group, cache, request)
    push_waiting(requests, group, queue, request)


@compiled
def _drop_paused(
    requests: Records, group: Record, queue: Ints, cache: CacheRecords | None, used: int
) -> None:
    """Preempt paused requests, from the end of the order, until there is room for the slots.

    Where prefixes are cached they free their blocks in order. Until then what each holds is below
    0.
    """
    count = 0
    while used + group.paused_blocks > group.capacity_blocks:
        victim = -1
        for i in range(group.n_waiting):
            request = queue[group.queue_at + i]
            if requests[request].kv > 0 and (victim < 0 or before(requests, victim, request)):
                victim = request
        group.paused_blocks -= running.held_blocks(requests, group, victim)
        if cache is None:
            requests[victim].kv = 0
            running.note_preempted(requests, group, victim)
        else:
            requests[victim].kv *= -1
            count += 1
    for _ in range(count):
        victim = -1
        for i in range(group.n_waiting):
            request = queue[group.queue_at + i]
            if requests[request].kv < 0 and (victim < 0 or before(requests, request, victim)):
                victim = request
        if cache is not None:
            prefixes.free(cache, group, victim, -requests[victim].kv)
        requests[victim].kv = 0
        running.note_preempted(requests, group, victim)


@compiled
def fill_slots(requests: Records, group: Record, cache: CacheRecords | None) -> None:
    """Share out the budget among requests in slots that do not decode, in chunks or whole prompts.

    Of chunks, where prefixes are cached those that hold KV come first, as they do when they take
    blocks.
    """
    budget, total, longest = NO_LIMIT, 0, 0
    if group.chunked_prefill:
        budget = group.max_tokens - group.n_decoding
        if cache is not None:
            prefixes.grow(cache, requests, group, 1)
            group.grown = 1
            _put_holders_first(requests, group)
    for i in range(group.n_partial):
        request = group.partial[i]
        context = requests[request].prompt + requests[request].generated
        total, longest = total + context, max(longest, context)
        if not _fits_batch(group, i + 1, total, longest):
            budget = 0
        if cache is not None and budget > 0:
            _take_cached(requests, group, cache, request, budget)
        tokens = min(running.missing(requests, request), budget)
        group.chunk[i] = tokens
        budget -= tokens
        if tokens > 0:
            running.start(requests, request, group.clock_s)


@compiled
def _put_holders_first(requests: Records, group: Record) -> None:
    """Those in `partial` that hold KV come before the others, each in order."""
    kept = count = 0
    for i in range(group.n_partial):
        request = group.partial[i]
        if requests[request].kv > 0:
            group.partial[kept] = request
            kept += 1
        else:
            group.moved[count] = request
            count += 1
    for i in range(count):
        group.partial[kept + i] = group.moved[i]


@compiled
def _take_cached(
    requests: Records, group: Record, cache: CacheRecords, request: int, budget: int
) -> None:
    """A request with a slot holds what it finds, if it is new, and the tokens that it computes."""
    if requests[request].kv == 0:
        context = running.missing(requests, request)
        found, _ = prefixes.find(cache, group, request, context)
        _hold_found(requests, group, cache, request, found * group.block_tokens)
    held = requests[request].kv
    tokens = min(running.missing(requests, request), budget)
    prefixes.hold(cache, group, request, held, held + tokens)
