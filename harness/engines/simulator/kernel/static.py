"""A group under static batching: one batch after the other (`core.fill`).

Between batches all unfinished requests wait, those that have begun with their KV and reservation.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_run_seconds
from harness.engines.simulator.kernel.layout import (
    ALL,
    BEGUN,
    FIRST,
    LOG_HELD,
    UNADMITTED,
    WHOLE,
    Record,
    Records,
)
from harness.engines.simulator.kernel.order import before, push_waiting, set_key, take_waiting
from harness.engines.simulator.kernel.running import finish, missing, note_preempted, start, taken
from harness.engines.simulator.kernel.work import (
    no_work,
    pad_work,
    take_receiving_s,
    work_s,
    write_row,
    write_use,
)
from harness.engines.state import BRIEF, Floats, Ints
from harness.engines.token_gaps import add_gaps, add_run, note_tokens


@compiled
def _waits_until_s(requests: Records, group: Record, queue: Ints) -> float:
    """How long the next batch waits for more requests; in the past if it does not."""
    if group.paused_blocks > 0 or group.n_waiting >= group.max_requests:
        return -np.inf
    oldest_s = np.inf
    for i in range(group.n_waiting):
        oldest_s = min(oldest_s, requests[queue[group.queue_at + i]].arrival_s)
    return float(oldest_s + group.max_wait_s)


@compiled
def _fill(requests: Records, group: Record, queue: Ints) -> None:
    """Move the first in order that fit into `partial`; holders alone where the first does not."""
    tokens = 0
    while group.n_waiting > 0 and group.n_partial < group.max_requests:
        request = queue[group.queue_at]
        needed = taken(requests, group, request, 0) if requests[request].kv == 0 else 0
        tokens += missing(requests, request)
        if tokens > group.max_tokens or group.paused_blocks + needed > group.capacity_blocks:
            break
        group.paused_blocks += needed
        _take(requests, group, queue, 0)
    if group.n_partial > 0 or group.paused_blocks == 0:
        return
    tokens = 0
    while group.n_partial < group.max_requests:
        best = -1
        for i in range(group.n_waiting):
            request = queue[group.queue_at + i]
            if requests[request].kv > 0 and (
                best < 0 or before(requests, request, queue[group.queue_at + best])
            ):
                best = i
        if best < 0:
            break
        tokens += missing(requests, queue[group.queue_at + best])
        if tokens > group.max_tokens:
            break
        _take(requests, group, queue, best)


@compiled
def _take(requests: Records, group: Record, queue: Ints, at: int) -> None:
    """Move the request at a place of the waiting heap into the batch."""
    request = queue[group.queue_at + at]
    take_waiting(requests, group, queue, at)
    group.partial[group.n_partial] = request
    group.chunk[group.n_partial] = missing(requests, request)
    group.n_partial += 1


@compiled
def begin_static(table: Record, requests: Records, group: Record, queue: Ints) -> int:
    """Begin the next batch, or wait for requests until `flight_s`; UNADMITTED where none fits."""
    if group.n_waiting == 0:
        return BEGUN
    until_s = _waits_until_s(requests, group, queue)
    if group.clock_s < until_s:
        group.flight_s = until_s
        return BEGUN
    _fill(requests, group, queue)
    if group.n_partial == 0:
        return UNADMITTED
    group.n_waited = group.n_waiting
    decodes, context, longest = _sum_first(requests, group)
    group.first_s = take_receiving_s(group) + group.decide_s
    group.first_s += work_s(table, group, decodes, context, longest)
    group.iterations = _iterations(requests, group)
    group.flight, group.flight_s = WHOLE, group.first_s
    sums = _sum_later(requests, group)
    group.flight_s += decode_run_seconds(table, group.n_partial, *sums, group.iterations - 1)
    group.first_gap_s = decode_run_seconds(table, group.n_partial, *sums, 1)
    if group.log_columns > 0:
        write_row(group, group.clock_s, group.first_s, 1, True, decodes, context, longest)
        if group.log_columns > BRIEF:
            write_use(requests, group, queue, False, True)
        group.n_rows += 1
    for i in range(group.n_partial):
        if requests[group.partial[i]].kv == 0 or group.until == FIRST:
            start(requests, group, group.partial[i])
    if group.until == FIRST and group.paused_blocks > 0:
        _pass_over(requests, group, queue)
    return BEGUN


@compiled
def _sum_first(requests: Records, group: Record) -> tuple[int, int, int]:
    """Sum up the prompts of a batch's first iteration.

    Returns its decodes, and the sum and the longest of their contexts.
    """
    no_work(group)
    decodes = context = longest = prompt = 0
    for i in range(group.n_partial):
        request, tokens = group.partial[i], group.chunk[i]
        if requests[request].kv > 0:
            total = requests[request].kv + tokens
            decodes, context, longest = decodes + 1, context + total, max(longest, total)
        else:
            prompt = max(prompt, tokens)
            group.work_requests += 1
            group.work_tokens += tokens
            group.work_attended += float(tokens) * tokens
    group.work_padded = group.work_tokens
    if group.pads:
        pad_work(group, prompt)
    return decodes, context, longest


@compiled
def _iterations(requests: Records, group: Record) -> int:
    """Iterations until the first or the last of a batch is answered."""
    least, most = np.int64(1 << 62), np.int64(0)
    for i in range(group.n_partial):
        request = group.partial[i]
        left = requests[request].output - requests[request].generated
        least, most = min(least, left), max(most, left)
    return int(most if group.until == ALL else least)


@compiled
def _sum_later(requests: Records, group: Record) -> tuple[int, int]:
    """Sum and longest of the contexts in a batch's second iteration, where all decode."""
    context = longest = 0
    for i in range(group.n_partial):
        total = requests[group.partial[i]].kv + group.chunk[i] + 1
        context, longest = context + total, max(longest, total)
    return context, longest


@compiled
def _pass_over(requests: Records, group: Record, queue: Ints) -> None:
    """Requests that have begun and are not in the batch are preempted, and keep their KV."""
    for i in range(group.n_waiting):
        request = queue[group.queue_at + i]
        if requests[request].kv > 0 and np.isnan(requests[request].preempted_at_s):
            note_preempted(requests, group, request)


@compiled
def _write_later(requests: Records, group: Record) -> None:
    """Write the row of the iterations of a batch after its first, if there are any.

    What holds KV and what waits is as in the row before, but for the tokens that were promised.
    """
    count, seconds = group.iterations - 1, group.flight_s - group.first_s
    if count == 0:
        return
    for column in range(group.rows.shape[1]):
        group.rows[1, column] = group.rows[0, column]
    context, longest = _sum_later(requests, group)
    start_s = group.clock_s + group.first_s
    write_row(group, start_s, seconds, count, False, group.n_partial, context, longest)
    group.rows[1, LOG_HELD] += group.n_partial
    group.n_rows = 2


@compiled
def _gaps_later(group: Record) -> float:
    """Count the gaps of a batch from its first iteration's end on; the longest of them."""
    count, seconds = group.iterations - 1, group.flight_s - group.first_s
    if count == 0:
        return 0.0
    add_gaps(group.gaps, group.first_gap_s, group.n_partial)
    in_run_s = add_run(group.gaps, group.first_gap_s, seconds, count, group.n_partial)
    return max(float(group.first_gap_s), in_run_s)


@compiled
def end_static(requests: Records, pieces: Floats, group: Record, queue: Ints) -> None:
    """A batch is over: tokens for all of it, answers, and the others wait again."""
    start_s = group.clock_s
    if group.log_columns > 0:
        _write_later(requests, group)
    group.clock_s += group.flight_s
    seconds = group.clock_s - start_s
    first_s = start_s + group.first_s if group.until == FIRST else group.clock_s
    batch = group.n_partial
    streams = group.keeps_gaps and group.until == FIRST
    longest_s = _gaps_later(group) if streams else 0.0
    group.n_partial = 0
    for i in range(batch):
        request = group.partial[i]
        tokens = min(group.iterations, requests[request].output - requests[request].generated)
        requests[request].gpu_s += seconds
        if streams:
            note_tokens(requests, group.gaps, request, first_s, group.clock_s, longest_s)
        if requests[request].kv == 0:
            requests[request].prefill_s += group.first_s
        if requests[request].generated == 0:
            requests[request].first_token_s = first_s
        requests[request].kv += group.chunk[i] + tokens - 1
        requests[request].generated += tokens
        group.generated += tokens
        if requests[request].generated == requests[request].output:
            group.paused_blocks -= taken(requests, group, request, 0)
            requests[request].kv = 0
            finish(requests, group, request)
        else:
            if group.moves:
                set_key(requests, pieces, group, request, False)
            push_waiting(requests, group, queue, request)
