"""One iteration of a group, or a run of equal ones: what `fill.one_batch` means, in compiled code.

An iteration begins (requests admitted or preempted, blocks taken, duration known) and ends (tokens
produced). Decode iterations that stay equal are one flight, cut at the next boundary when something
happens to the group.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel import admission, prefixes, running, static
from harness.engines.simulator.kernel.host_cache import HeldRecords, read_all
from harness.engines.simulator.kernel.layout import (
    ALL,
    ASKED,
    BEGUN,
    CHUNKS,
    DECODES,
    NOTHING,
    PROMPTS,
    UNADMITTED,
    Record,
    Records,
)
from harness.engines.simulator.kernel.order import until_passed
from harness.engines.simulator.kernel.prefixes import CacheRecords
from harness.engines.simulator.kernel.shared import end_turn, take_turn
from harness.engines.simulator.kernel.work import (
    add_work,
    decodes_s,
    decodes_within,
    note_first,
    steps_until,
    take_receiving_s,
    work_s,
    write_log,
)
from harness.engines.state import Floats, Ints


@compiled
def begin(
    tables: Records,
    requests: Records,
    pieces: Floats,
    swap: Floats,
    group: Record,
    queue: Ints,
    held: HeldRecords,
    cache: CacheRecords | None,
) -> int:
    """Begin the next flight of a group; UNADMITTED or ASKED where it cannot."""
    group.preempted = group.is_rest = False
    if group.until and static.waits(requests, group, queue):
        return BEGUN
    if group.asks and running.must_ask(requests, pieces, group, queue):
        return ASKED
    if group.renews:
        running.renew_reservations(requests, pieces, group, queue)
    limits = _choose(requests, pieces, swap, group, queue, cache)
    table = tables[group.table]
    begins = _begin_prompts(table, requests, pieces, swap, group, queue, held, cache)
    if not begins and group.n_decoding > 0:
        group.n_waited, begins = group.n_waiting, True
        _begin_decodes(table, requests, pieces, group, queue, cache, limits)
    if begins:
        if cache is not None:
            running.note_due(requests, pieces, group)
    elif group.n_waiting + group.n_partial > 0:
        return UNADMITTED
    return BEGUN


@compiled
def _choose(
    requests: Records,
    pieces: Floats,
    swap: Floats,
    group: Record,
    queue: Ints,
    cache: CacheRecords | None,
) -> tuple[float, int, float]:
    """Give a batch, a turn or slots to the requests that come first, where the order does that.

    Returns the limits of keys, as `_steps_in_order` has them.
    """
    if group.until:
        static.take_batch(requests, group, queue)
    elif group.services_end > 0:
        return take_turn(requests, group, queue)
    elif group.displaces:
        return admission.take_slots(requests, pieces, swap, group, queue, cache)
    return np.nan, -1, np.nan


@compiled
def _begin_prompts(
    table: Record,
    requests: Records,
    pieces: Floats,
    swap: Floats,
    group: Record,
    queue: Ints,
    held: HeldRecords,
    cache: CacheRecords | None,
) -> bool:
    """Begin an iteration that computes prompts, or chunks beside decodes, if there are any.

    What comes back from host memory is computed beside decodes.
    """
    is_mixed = group.chunked_prefill or (group.n_swapped > 0 and not group.displaces)
    if group.displaces or group.services_end > 0:
        admission.fill_slots(requests, group, cache)
    elif is_mixed:
        admission.choose_chunks(requests, pieces, swap, group, queue, cache)
    elif not group.until:
        group.n_partial = 0
        admission.admit(requests, swap, group, queue, cache, admission.NO_LIMIT)
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
            running.make_room_to_decode(requests, pieces, swap, group, queue, cache)
        return False
    if len(held.cache) > 0:
        read_all(held, requests, group)
    _launch(group, PROMPTS, group.decide_s + work_s(table, group, 0, 0, 0))
    if group.until:
        static.go_on(table, requests, group)
    return True


@compiled
def _launch(group: Record, flight: int, seconds: float) -> None:
    """One iteration begins, after requests are taken in, with the KV that is copied."""
    group.n_waited = group.n_waiting
    group.flight, group.iterations = flight, 1
    copied_s = float(group.swapping_s)
    group.swapping_s = 0.0
    seconds = max(seconds, copied_s) if group.swap_overlaps else seconds + copied_s
    group.flight_s = take_receiving_s(group) + seconds


@compiled
def _begin_decodes(
    table: Record,
    requests: Records,
    pieces: Floats,
    group: Record,
    queue: Ints,
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
    most = requests[group.heap[0]].ends - group.steps
    if group.covered > 0 or group.renews or group.tells:
        most = running.steps_set_aside(requests, group, most)
    if group.moves:
        most = _steps_in_order(table, requests, pieces, group, most, limits)
        # Requests that end together free their blocks in the order before their last iteration.
        most = max(1, most - 1) if cache is not None else most
    if cache is not None and group.found_blocks >= 0:
        first = queue[group.queue_at]
        most = prefixes.steps_until_found(cache, requests, group, first, most)
    if group.due_s < np.inf:
        most = decodes_within(table, group, group.due_s - group.clock_s, most)
    group.iterations = 1 if group.preempted else running.iterations_that_fit(group, most)
    group.flight, group.flight_s = DECODES, decodes_s(table, group, group.iterations)
    note_first(table, group)


@compiled
def _steps_in_order(
    table: Record,
    requests: Records,
    pieces: Floats,
    group: Record,
    most: int,
    limits: tuple[float, int, float],
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
        least = min(least, until_passed(requests, pieces, group, request, above))
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
        static.write_later(requests, group)
    if group.until == ALL:
        static.count_all(requests, group)
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
