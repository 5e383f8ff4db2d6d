"""A group of several services: batches of one service and one phase (`core.fill`).

The waiting list has all unfinished requests of the group, in order since the last batch began;
`partial` has those of the batch in flight. KV is counted in bytes, in the field of blocks.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import (
    BEGUN,
    DECODES,
    PAUSE,
    PROMPTS,
    UNADMITTED,
    Record,
    Records,
)
from harness.engines.simulator.kernel.order import set_key, sort_unfinished, until_passed
from harness.engines.simulator.kernel.running import (
    blocks,
    context_of,
    finish,
    note_preempted,
    start,
)
from harness.engines.simulator.kernel.work import (
    add_work,
    decodes_s,
    decodes_within,
    note_first,
    steps_until,
    take_receiving_s,
    work_s,
)
from harness.engines.state import BRIEF, Floats, Ints
from harness.engines.token_gaps import add_run, note_tokens
from harness.interface.tables import TIE_S


@compiled
def begin_shared(
    tables: Records, requests: Records, pieces: Floats, group: Record, queue: Ints
) -> int:
    """Begin the next batch: of the first service in order that can run something."""
    if group.may_starve:
        _note_starved(requests, group, queue)
    sort_unfinished(requests, queue, group.queue_at, group.n_waiting, group.starved)
    in_slots = _take_slots(requests, group, queue) if group.displaces else group.n_waiting
    admits, tried = True, 0
    for i in range(in_slots):
        first = queue[group.queue_at + i]
        service = requests[first].service
        if (tried >> service) & 1:
            continue
        tried |= 1 << service
        group.table = group.tables[service]
        if admits and (group.prompts_first or requests[first].kv == 0):
            _admit(requests, group, queue, service, in_slots)
            if group.n_partial > 0:
                _launch_prompts(tables[group.table], requests, group, queue)
                return BEGUN
        if not _choose_decodes(requests, group, queue, service, in_slots):
            admits = False
        if group.n_partial > 0:
            _launch_decodes(tables[group.table], requests, pieces, group, queue, i, in_slots)
            return BEGUN
    return UNADMITTED


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
def _bytes(requests: Records, group: Record, request: int, tokens: int) -> int:
    """KV bytes of a request that holds so many tokens."""
    block_bytes = group.block_bytes[requests[request].service]
    return int(blocks(tokens, group.block_tokens) * block_bytes)


@compiled
def _preempt(requests: Records, group: Record, request: int) -> None:
    """Drop the KV of a request."""
    group.used_blocks -= _bytes(requests, group, request, requests[request].kv)
    requests[request].kv = 0
    note_preempted(requests, group, request)


@compiled
def _take_slots(requests: Records, group: Record, queue: Ints) -> int:
    """Give slots to the front of the order, and preempt of the rest what must give way.

    Returns how many have slots; `slack_bytes` is by how much they may grow and keep them.
    """
    capacity, base, used, in_slots = group.capacity_blocks, group.queue_at, 0, 0
    group.slack_bytes = capacity
    while in_slots < min(group.n_waiting, group.max_requests):
        request = queue[base + in_slots]
        need = _bytes(requests, group, request, context_of(requests, group, request, False))
        spare = 0 if requests[request].kv > 0 else group.spare_bytes[requests[request].service]
        if used + need + spare > capacity:
            break
        used += need
        group.slack_bytes = min(group.slack_bytes, capacity - spare - used)
        in_slots += 1
    keeps = group.displaces == PAUSE
    for i in range(in_slots, group.n_waiting):
        request = queue[base + i]
        if requests[request].kv == 0:
            continue
        used += _bytes(requests, group, request, requests[request].kv)
        keeps = keeps and used <= capacity
        if keeps:
            group.slack_bytes = min(group.slack_bytes, capacity - used)
        else:
            _preempt(requests, group, request)
    return in_slots


@compiled
def _admit(requests: Records, group: Record, queue: Ints, service: int, in_slots: int) -> None:
    """Move whole prompts of a service into the batch, in order, while the rule allows."""
    left, free = group.max_requests, group.capacity_blocks - group.used_blocks
    if not group.displaces:
        for i in range(in_slots):
            request = queue[group.queue_at + i]
            if requests[request].service == service and requests[request].kv > 0:
                left -= 1
    tokens = 0
    for i in range(in_slots):
        request = queue[group.queue_at + i]
        if requests[request].service != service or requests[request].kv > 0:
            continue
        context = context_of(requests, group, request, False)
        tokens += context
        need = _bytes(requests, group, request, context)
        if tokens > group.max_tokens:
            break
        if not group.displaces:
            if left == 0 or free - need < group.spare_bytes[service]:
                break
            left, free = left - 1, free - need
        group.partial[group.n_partial] = request
        group.chunk[group.n_partial] = context
        group.n_partial += 1


@compiled
def _launch_prompts(table: Record, requests: Records, group: Record, queue: Ints) -> None:
    """The batch computes the prompts in it."""
    add_work(requests, group)
    for i in range(group.n_partial):
        start(requests, group, group.partial[i])
        group.used_blocks += _bytes(requests, group, group.partial[i], group.chunk[i])
    group.flight, group.iterations, group.n_decoding = PROMPTS, 1, 0
    group.flight_s = take_receiving_s(group) + work_s(table, group, 0, 0, 0)
    _count_waiting(requests, group, queue)


@compiled
def _count_waiting(requests: Records, group: Record, queue: Ints) -> None:
    """Count the requests that neither run nor hold KV, where that is logged."""
    if group.log_columns <= BRIEF:
        return
    group.n_waited = 0
    for i in range(group.n_waiting):
        group.n_waited += requests[queue[group.queue_at + i]].kv == 0
    if group.flight == PROMPTS:
        group.n_waited -= group.n_partial


@compiled
def _choose_decodes(
    requests: Records, group: Record, queue: Ints, service: int, in_slots: int
) -> bool:
    """Move decoding requests of a service into the batch, preempting from the end of the order.

    False where a request was preempted.
    """
    base, last, kept_all = group.queue_at, in_slots, True
    i = 0
    while i < last and group.n_partial < group.max_requests:
        request = queue[base + i]
        i += 1
        held = requests[request].kv
        if requests[request].service != service or held == 0:
            continue
        need = group.block_bytes[service] if held % group.block_tokens == 0 else 0
        while need > group.capacity_blocks - group.used_blocks and requests[request].kv > 0:
            last -= 1
            victim = queue[base + last]
            if requests[victim].kv > 0:
                _preempt(requests, group, victim)
                kept_all = False
        if requests[request].kv == 0:
            break
        group.used_blocks += need
        group.partial[group.n_partial] = request
        group.chunk[group.n_partial] = 1
        group.n_partial += 1
    return kept_all


@compiled
def _launch_decodes(
    table: Record,
    requests: Records,
    pieces: Floats,
    group: Record,
    queue: Ints,
    first: int,
    in_slots: int,
) -> None:
    """The batch decodes: as many equal iterations as the order, the KV and the answers allow.

    One where requests are taken in before it.
    """
    group.n_decoding, group.context, group.longest, group.steps = group.n_partial, 0, 0, 0
    most = 1 << 62
    for i in range(group.n_partial):
        request = group.partial[i]
        context = context_of(requests, group, request, False)
        group.context += context
        group.longest = max(group.longest, context)
        most = min(most, int(requests[request].output - requests[request].generated))
    is_full = group.n_partial == group.max_requests
    others_wait = is_full and not _all_run(requests, group, queue, in_slots)
    if group.preempted or group.receiving_s > 0.0 or others_wait:
        most = 1
    if most > 1:
        most = _iterations_that_fit(requests, group, most)
    if most > 1 and group.may_starve:
        most = _iterations_unstarved(table, requests, group, most)
    if most > 1 and group.moves:
        most = _iterations_in_order(table, requests, pieces, group, queue, first, in_slots, most)
    group.flight, group.iterations = DECODES, most
    group.flight_s = take_receiving_s(group) + decodes_s(table, group, most)
    note_first(table, group)
    _count_waiting(requests, group, queue)


@compiled
def _all_run(requests: Records, group: Record, queue: Ints, in_slots: int) -> bool:
    """Whether all holders of the batch's service that might run do."""
    service, count = requests[group.partial[0]].service, 0
    for i in range(in_slots):
        request = queue[group.queue_at + i]
        count += requests[request].service == service and requests[request].kv > 0
    return bool(count == group.n_partial)


@compiled
def _grown_bytes(requests: Records, group: Record, more: int) -> int:
    """KV bytes by which the batch grows with so many tokens each beyond the first iteration's."""
    grown = 0
    for i in range(group.n_partial):
        held = requests[group.partial[i]].kv + 1
        grown += blocks(held + more, group.block_tokens) - blocks(held, group.block_tokens)
    return int(grown * group.block_bytes[requests[group.partial[0]].service])


@compiled
def _iterations_that_fit(requests: Records, group: Record, most: int) -> int:
    """Iterations, at most `most`, for which there is KV, and all slots are as they are."""
    free = group.capacity_blocks - group.used_blocks
    if group.displaces:
        free = min(free, group.slack_bytes)
    # A bound without a look at each: the last block of none has room for a token.
    block_bytes = group.block_bytes[requests[group.partial[0]].service]
    if group.n_partial * blocks(most - 1, group.block_tokens) * block_bytes <= free:
        return most
    if _grown_bytes(requests, group, most - 1) <= free:
        return most
    fits, over = 1, most
    while fits + 1 < over:
        tried = (fits + over) // 2
        if _grown_bytes(requests, group, tried - 1) <= free:
            fits = tried
        else:
            over = tried
    return fits


@compiled
def _iterations_unstarved(table: Record, requests: Records, group: Record, most: int) -> int:
    """Iterations, at most `most`, before another service is starved; one of a starved service."""
    service, at_s = requests[group.partial[0]].service, np.inf
    if (group.starved >> service) & 1:
        return 1
    for other in range(group.services_end):
        if other != service and not (group.starved >> other) & 1:
            at_s = min(at_s, group.starves_at_s[other])
    if at_s == np.inf:
        return most
    return decodes_within(table, group, at_s - group.clock_s, most)


@compiled
def _iterations_in_order(
    table: Record,
    requests: Records,
    pieces: Floats,
    group: Record,
    queue: Ints,
    first: int,
    in_slots: int,
    most: int,
) -> int:
    """Iterations, at most `most`, before moving keys may change the service, phase or slots.

    The service and the phase are those of its first request, at place `first`: while that stays
    before all others that might take them, the order of the others does not matter. Keys of
    requests that do not run stand.
    """
    next_key = np.inf
    if group.displaces and in_slots < group.n_waiting:
        next_key = requests[queue[group.queue_at + in_slots]].key
    rival = min(next_key, _rival_key(requests, group, queue, first, in_slots))
    least, head = np.inf, queue[group.queue_at + first]
    for i in range(group.n_partial):
        request = group.partial[i]
        limit = rival if request == head else next_key
        watch = limit < np.inf
        if watch or group.asks:
            ahead = until_passed(requests, pieces, group, request, False, watch, limit)
            least = min(least, ahead)
    return steps_until(table, group, least, most)


@compiled
def _rival_key(requests: Records, group: Record, queue: Ints, first: int, in_slots: int) -> float:
    """The key of the first request with a slot that might take the batch's turn; or infinite."""
    service = requests[group.partial[0]].service
    for i in range(first, in_slots):
        request = queue[group.queue_at + i]
        is_own = requests[request].service == service
        if not is_own or (requests[request].kv == 0 and not group.prompts_first):
            return float(requests[request].key)
    return np.inf


@compiled
def step_shared(
    requests: Records, group: Record, iterations: int, seconds: float, goes_on: bool
) -> None:
    """Count the tokens, KV and time of iterations of the run in flight.

    The KV of the first has been taken. Where the run goes on, that of the next one is taken now.
    """
    more = iterations if goes_on else iterations - 1
    first_s = seconds if iterations == 1 else float(group.first_gap_s)
    longest_s = 0.0
    if group.keeps_gaps:
        longest_s = add_run(group.gaps, first_s, seconds, iterations, group.n_partial)
    for i in range(group.n_partial):
        request = group.partial[i]
        held = requests[request].kv + 1
        if more > 0:
            group.used_blocks += _bytes(requests, group, request, held + more)
            group.used_blocks -= _bytes(requests, group, request, held)
        requests[request].kv += iterations
        requests[request].generated += iterations
        requests[request].gpu_s += seconds
        if group.keeps_gaps:
            start_s = group.clock_s
            note_tokens(
                requests, group.gaps, request, start_s + first_s, start_s + seconds, longest_s
            )
    group.generated += iterations * group.n_partial
    group.context += iterations * group.n_partial
    group.steps += iterations


@compiled
def end_shared(
    requests: Records, pieces: Floats, group: Record, queue: Ints, prefills: bool
) -> None:
    """End the batch of a group: tokens, answers, and the list without the requests answered.

    The keys of its requests move, and those of no other.
    """
    seconds = group.flight_s
    if not prefills:
        step_shared(requests, group, group.iterations, seconds, False)
    group.clock_s += seconds
    group.ran_s[requests[group.partial[0]].service] = group.clock_s
    for i in range(group.n_partial):
        request = group.partial[i]
        if prefills:
            requests[request].kv = group.chunk[i]
            requests[request].gpu_s += seconds
            requests[request].prefill_s += seconds
            if requests[request].generated == 0:
                requests[request].first_token_s = group.clock_s
            if group.keeps_gaps:
                note_tokens(requests, group.gaps, request, group.clock_s, group.clock_s, 0.0)
            requests[request].generated += 1
            group.generated += 1
        if requests[request].generated == requests[request].output:
            group.used_blocks -= _bytes(requests, group, request, requests[request].kv)
            requests[request].kv = 0
            finish(requests, group, request)
        elif group.moves:
            set_key(requests, pieces, group, request, False)
    group.n_partial = group.n_decoding = 0
    if group.n_finished > 0:
        group.n_waiting = sort_unfinished(
            requests, queue, group.queue_at, group.n_waiting, group.starved
        )
