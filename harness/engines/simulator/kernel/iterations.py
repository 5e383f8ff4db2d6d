"""One iteration of a group, or a run of equal ones: what `fill.one_batch` means, in compiled code.

An iteration begins (requests admitted or preempted, blocks taken, duration known) and ends (tokens
produced). Decode iterations that stay equal are one flight, cut at the next boundary when something
happens to the group.

Under static batching one batch of whole requests follows the other (`core.fill`). Between two of
them all unfinished requests wait, those that have begun with their KV and reservation.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_run_seconds
from harness.engines.simulator.kernel import admission, prefixes, running
from harness.engines.simulator.kernel.host_cache import HeldRecords, read_all
from harness.engines.simulator.kernel.layout import (
    ALL,
    ASKED,
    BEGUN,
    CHUNKS,
    DECODES,
    FIRST,
    LOG_HELD,
    NOTHING,
    PROMPTS,
    UNADMITTED,
    GroupArrays,
    Record,
    Records,
)
from harness.engines.simulator.kernel.order import before, take_waiting, until_passed
from harness.engines.simulator.kernel.prefixes import CacheRecords
from harness.engines.simulator.kernel.shared import end_turn, take_turn
from harness.engines.simulator.kernel.work import (
    add_work,
    decodes_s,
    decodes_within,
    note_first,
    steps_until,
    work_s,
    write_log,
    write_row,
)
from harness.engines.state import Floats, Ints


@compiled
def begin(
    tables: Records,
    arrays: GroupArrays,
    group: Record,
    held: HeldRecords,
    cache: CacheRecords | None,
) -> int:
    """Begin the next flight of a group; UNADMITTED or ASKED where it cannot."""
    requests, pieces, _, queue = arrays
    group.preempted = group.is_rest = False
    if group.until and _waits(requests, group, queue):
        return BEGUN
    if group.asks and running.must_ask(requests, pieces, group, queue):
        return ASKED
    if group.renews:
        running.renew_reservations(requests, pieces, group, queue)
    limits = _choose(arrays, group, cache)
    table = tables[group.table]
    begins = _begin_prompts(table, arrays, group, held, cache)
    if not begins and group.n_decoding > 0:
        group.n_waited, begins = group.n_waiting, True
        _begin_decodes(table, arrays, group, cache, limits)
    if begins:
        if cache is not None:
            running.note_due(requests, pieces, group)
    elif group.n_waiting + group.n_partial > 0:
        return UNADMITTED
    return BEGUN


@compiled
def _choose(
    arrays: GroupArrays, group: Record, cache: CacheRecords | None
) -> tuple[float, int, float]:
    """Give a batch, a turn or slots to the requests that come first, where the order does that.

    Returns the limits of keys, as `_steps_in_order` has them.
    """
    if group.until:
        _take_batch(arrays.requests, group, arrays.queue)
    elif group.services_end > 0:
        return take_turn(arrays.requests, group, arrays.queue)
    elif group.displaces:
        return admission.take_slots(arrays, group, cache)
    return np.nan, -1, np.nan


@compiled
def _begin_prompts(
    table: Record,
    arrays: GroupArrays,
    group: Record,
    held: HeldRecords,
    cache: CacheRecords | None,
) -> bool:
    """Begin an iteration that computes prompts, or chunks beside decodes, if there are any.

    What comes back from host memory is computed beside decodes.
    """
    requests = arrays.requests
    is_mixed = group.chunked_prefill or (group.n_swapped > 0 and not group.displaces)
    if group.displaces or group.services_end > 0:
        admission.fill_slots(requests, group, cache)
    elif is_mixed:
        admission.choose_chunks(arrays, group, cache)
    elif not group.until:
        group.n_partial = 0
        admission.admit(arrays, group, cache, admission.NO_LIMIT)
    add_work(requests, group)
    if is_mixed:
        if group.n_partial == 0:
            return False
        longest = group.longest + group.steps if group.n_decoding > 0 else 0
        seconds = work_s(table, group, group.n_decoding, group.context, longest)
        _launch(group, CHUNKS, seconds)
        return True
    if group.work_requests + group.work_decodes == 0:
        if not group.displaces:
            running.make_room_to_decode(arrays, group, cache)
        return False
    if len(held.cache) > 0:
        read_all(held, requests, group)
    _launch(group, PROMPTS, group.decide_s + work_s(table, group, 0, 0, 0))
    if group.until:
        _go_on(table, requests, group)
    return True


@compiled
def _launch(group: Record, flight: int, seconds: float) -> None:
    """One iteration begins, after requests are taken in, with the KV that is copied."""
    group.n_waited = group.n_waiting
    group.flight, group.iterations = flight, 1
    copied_s = float(group.swapping_s)
    group.swapping_s = 0.0
    seconds = max(seconds, copied_s) if group.swap_overlaps else seconds + copied_s
    group.flight_s = float(group.receiving_s) + seconds
    group.receiving_s = 0.0


@compiled
def _begin_decodes(
    table: Record,
    arrays: GroupArrays,
    group: Record,
    cache: CacheRecords | None,
    limits: tuple[float, int, float],
) -> None:
    """Begin equal decode iterations: until a finish, an end of KV, or a key that may pass another.

    And until a request may be promoted, or a service starve. One where KV is copied before it or
    during it, or requests are taken in before it, and after a preemption, since waiting requests
    are then looked at again.
    """
    if group.swapping_s > 0.0 or group.receiving_s > 0.0:
        _launch(group, DECODES, decodes_s(table, group, 1))
        return
    requests = arrays.requests
    most = requests[group.heap[0]].ends - group.steps
    if group.covered > 0 or group.renews or group.tells:
        most = running.steps_set_aside(requests, group, most)
    if group.moves:
        most = _steps_in_order(table, arrays, group, most, limits)
        # Requests that end together free their blocks in the order before their last iteration.
        most = max(1, most - 1) if cache is not None else most
    if cache is not None and group.found_blocks >= 0:
        first = arrays.queue[group.queue_at]
        most = prefixes.steps_until_found(cache, requests, group, first, most)
    if group.due_s < np.inf:
        most = decodes_within(table, group, group.due_s - group.clock_s, most)
    group.iterations = 1 if group.preempted else running.iterations_that_fit(group, most)
    group.flight, group.flight_s = DECODES, decodes_s(table, group, group.iterations)
    note_first(table, group)


@compiled
def _steps_in_order(
    table: Record, arrays: GroupArrays, group: Record, most: int, limits: tuple[float, int, float]
) -> int:
    """Decode steps, at most `most`, until a key may pass the one that is its limit.

    That is the first of `limits` (NaN: none), but of the request that is the second, the third.
    Before that no request can be displaced. Where the last piece of a key ends, it is asked again.
    Keys must be up to date.
    """
    limit, head, rival = limits
    least = np.inf
    for i in range(group.n_decoding):
        request = group.decoding[i]
        above = rival if request == head else limit
        least = min(least, until_passed(arrays.requests, arrays.pieces, group, request, above))
    return steps_until(table, group, least, most)


@compiled
def cut(table: Record, group: Record, now_s: float) -> None:
    """Something has happened to a group: its run of iterations ends at the next boundary."""
    if group.iterations > 1 and group.flight == DECODES:
        iterations = decodes_within(table, group, now_s - group.clock_s, group.iterations)
        if iterations < group.iterations:
            group.iterations, group.flight_s = iterations, decodes_s(table, group, iterations)


@compiled
def ended_by(table: Record, group: Record, now_s: float) -> int:
    """Iterations of the run in flight that have ended by now; its last one does not count."""
    if group.iterations == 1 or group.flight != DECODES or now_s <= group.clock_s:
        return 0
    begun = decodes_within(table, group, now_s - group.clock_s, group.iterations)
    ended = begun if group.clock_s + decodes_s(table, group, begun) <= now_s else begun - 1
    return int(min(ended, group.iterations - 1))


@compiled
def split(
    table: Record,
    requests: Records,
    group: Record,
    queue: Ints,
    cache: CacheRecords | None,
    ended: int,
) -> None:
    """Count the first `ended` iterations of the run in flight as over; the others go on."""
    seconds = decodes_s(table, group, ended)
    if group.log_columns > 0:
        write_log(requests, group, queue, seconds, ended, True, False)
    _step_decodes(requests, group, cache, ended, seconds)
    group.clock_s += seconds
    group.ended += ended
    group.iterations -= ended
    group.is_rest = True
    group.flight_s = decodes_s(table, group, group.iterations)
    note_first(table, group)


@compiled
def end(
    requests: Records, pieces: Floats, group: Record, queue: Ints, cache: CacheRecords | None
) -> None:
    """End the flight of a group."""
    flight, duration_s = group.flight, group.flight_s
    group.flight = NOTHING
    group.ended += group.iterations
    if group.until:
        _end_whole(requests, group, queue, cache)
        end_turn(requests, pieces, group, queue)
        return
    decodes, prefills = flight != PROMPTS, flight != DECODES
    if group.log_columns > 0:
        write_log(requests, group, queue, duration_s, group.iterations, decodes, prefills)
    if decodes:
        _step_decodes(requests, group, cache, group.iterations, duration_s)
    group.clock_s += duration_s
    if decodes:
        running.finish_due(requests, group, cache)
    if prefills:
        _end_prompts(requests, group, cache, duration_s, duration_s)
    if group.services_end > 0:
        end_turn(requests, pieces, group, queue)


@compiled
def _end_whole(requests: Records, group: Record, queue: Ints, cache: CacheRecords | None) -> None:
    """End a batch of whole requests: its first iteration, and those that were equal after it.

    Until all are answered no token of it is seen.
    """
    first_s, ends_s = group.first_s, group.clock_s + group.flight_s
    if group.log_columns > 0:
        write_log(requests, group, queue, first_s, 1, False, True)
        _write_later(requests, group)
    if group.until == ALL:
        _count_all(requests, group)
        group.clock_s = ends_s
        _end_prompts(requests, group, cache, group.flight_s, first_s)
        return
    group.clock_s += first_s
    _end_prompts(requests, group, cache, first_s, first_s)
    if group.iterations > 1:
        _step_decodes(requests, group, cache, group.iterations - 1, group.flight_s - first_s)
        group.clock_s = ends_s
        running.finish_due(requests, group, cache)


@compiled
def _step_decodes(
    requests: Records, group: Record, cache: CacheRecords | None, iterations: int, duration_s: float
) -> None:
    """Count tokens, blocks and attained time of so many decode steps."""
    if group.keeps_gaps:
        running.note_gaps(group, iterations, duration_s)
    if cache is not None:
        prefixes.grow(cache, requests, group, iterations)
        group.grown = 0
    running.take_blocks(group, iterations)
    group.steps += iterations
    if group.covered > 0 or group.tells:
        running.note_steps(requests, group)
    group.context += iterations * group.n_decoding
    group.generated += iterations * group.n_decoding
    group.decoded_s += duration_s


@compiled
def _end_prompts(
    requests: Records,
    group: Record,
    cache: CacheRecords | None,
    duration_s: float,
    prefill_s: float,
) -> None:
    """The KV of prompts or chunks is there; a request that is complete produces a token."""
    chunks, kept = group.n_partial, 0
    for i in range(chunks):
        request = group.partial[i]
        if group.chunk[i] > 0:
            requests[request].gpu_s += duration_s
            if not running.is_last(requests, request):
                requests[request].prefill_s += prefill_s
            requests[request].kv += group.chunk[i]
        tokens = running.missing(requests, request)
        if tokens == 0:
            running.produce(requests, group, cache, request)
        elif tokens == 1 and requests[request].generated > 0:
            running.join(requests, group, request)
        else:
            group.partial[kept] = request
            kept += 1
    group.n_partial = kept


@compiled
def next_event_s(group: Record) -> float:
    """When the flight of a group ends, or a static batch stops waiting; infinite if it is idle."""
    if group.flight != NOTHING:
        return float(group.clock_s + group.flight_s)
    if group.until and group.n_waiting > 0:
        return float(group.flight_s)
    return np.inf


@compiled
def _waits(requests: Records, group: Record, queue: Ints) -> bool:
    """Whether the next batch waits for more requests; then `flight_s` is until when."""
    if group.used_blocks > 0 or group.n_waiting >= group.max_requests:
        return False
    oldest_s = np.inf
    for i in range(group.n_waiting):
        oldest_s = min(oldest_s, requests[queue[group.queue_at + i]].arrival_s)
    until_s = float(oldest_s + group.max_wait_s)
    if group.clock_s < until_s:
        group.flight_s = until_s
    return bool(group.clock_s < until_s)


@compiled
def _take_batch(requests: Records, group: Record, queue: Ints) -> None:
    """Move the first in order that fit into `partial`; holders alone where the first does not.

    With refills, those that have begun and are not in the batch are preempted, and keep their KV.
    """
    tokens, at, only_holders = 0, 0, False
    while 0 <= at < group.n_waiting and group.n_partial < group.max_requests:
        request = queue[group.queue_at + at]
        held = running.held_blocks(requests, group, request)
        needed = running.taken(requests, group, request, 0) - held
        tokens += running.missing(requests, request)
        if tokens <= group.max_tokens and group.used_blocks + needed <= group.capacity_blocks:
            take_waiting(requests, group, queue, at)
            group.used_blocks += needed
            group.paused_blocks -= held
            admission.take(requests, group, request, running.missing(requests, request))
        elif held > 0 or group.n_partial > 0:
            break
        else:
            only_holders, tokens = True, 0
        at = _first_holder(requests, group, queue) if only_holders else 0
    for i in range(group.n_waiting if group.until == FIRST and group.paused_blocks > 0 else 0):
        request = queue[group.queue_at + i]
        if requests[request].kv > 0 and np.isnan(requests[request].preempted_at_s):
            running.note_preempted(requests, group, request)


@compiled
def _first_holder(requests: Records, group: Record, queue: Ints) -> int:
    """Place in the waiting heap of the first request in order that holds KV; -1 if none does."""
    best, base = -1, group.queue_at
    for i in range(group.n_waiting):
        if requests[queue[base + i]].kv > 0 and (
            best < 0 or before(requests, queue[base + i], queue[base + best])
        ):
            best = i
    return best


@compiled
def _go_on(table: Record, requests: Records, group: Record) -> None:
    """The batch whose first iteration has been launched runs until its first or last answer."""
    least, most = np.int64(1 << 62), np.int64(0)
    for i in range(group.n_partial):
        request = group.partial[i]
        left = requests[request].output - requests[request].generated
        least, most = min(least, left), max(most, left)
    group.iterations = most if group.until == ALL else least
    sums = _sum_later(requests, group)
    group.first_s = group.flight_s
    group.flight_s += decode_run_seconds(table, group.n_partial, *sums, group.iterations - 1)
    group.first_gap_s = decode_run_seconds(table, group.n_partial, *sums, 1)


@compiled
def _sum_later(requests: Records, group: Record) -> tuple[int, int]:
    """Sum and longest of the contexts in a batch's second iteration, where all decode."""
    context = longest = 0
    for i in range(group.n_partial):
        total = requests[group.partial[i]].kv + group.chunk[i] + 1
        context, longest = context + total, max(longest, total)
    return context, longest


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
def _count_all(requests: Records, group: Record) -> None:
    """Count the tokens of all answers of a batch, but for the last of each."""
    for i in range(group.n_partial):
        request = group.partial[i]
        more = requests[request].output - requests[request].generated - 1
        requests[request].generated += more
        group.chunk[i] += more
        group.generated += more
