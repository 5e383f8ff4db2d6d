"""One iteration of a group, or a run of equal ones: what `ask.one_batch` means, in compiled code.

An iteration begins (requests admitted or preempted, blocks taken, duration known) and ends (tokens
produced). Decode iterations that stay equal are one flight, cut at the next boundary when something
happens to the group.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_iterations_within, decode_run_seconds, iteration_seconds
from harness.engines.simulator.kernel.admission import admit_whole, choose_chunks, sum_chunks
from harness.engines.simulator.kernel.keys import must_ask, steps_in_order
from harness.engines.simulator.kernel.kv import (
    iterations_that_fit,
    steps_covered,
    take_blocks,
    uncover,
)
from harness.engines.simulator.kernel.layout import (
    CHUNKS,
    DECODES,
    NOTHING,
    PROMPTS,
    RUN_OF_DECODES,
    WHOLE,
    Group,
    Records,
)
from harness.engines.simulator.kernel.log import write_log
from harness.engines.simulator.kernel.running import (
    finish_due,
    join,
    make_room_to_decode,
    note_overruns,
    produce,
    renew_reservations,
    steps_within,
)
from harness.engines.simulator.kernel.seats import seat_chunks, seat_whole, take_seats, with_swaps
from harness.engines.simulator.kernel.static import begin_batch, end_batch, waits_until_s
from harness.engines.state import Floats, Ints

# What `begin` returns: the group computes, or waits for an event; its first waiting request can
# never be admitted; the key of a running request is to be told again
BEGUN, UNADMITTED, ASKED = range(3)


@compiled
def begin(
    table: Group, requests: Records, pieces: Floats, swap: Floats, group: Group, queue: Ints
) -> int:
    """Begin the next flight of a group; UNADMITTED or ASKED where it cannot."""
    group.preempted = False
    if group.until:
        return _begin_static(table, requests, group, queue)
    if group.asks and must_ask(requests, pieces, group):
        return ASKED
    if group.renews:
        renew_reservations(requests, pieces, group, queue)
    if group.displaces:
        take_seats(requests, pieces, swap, group, queue)
    if _begin_prompts(table, requests, pieces, group, queue):
        return BEGUN
    if group.n_decoding > 0:
        group.n_waited = group.n_waiting
        _begin_decodes(table, requests, pieces, group, queue)
    elif group.n_waiting + group.n_partial > 0:
        return UNADMITTED
    return BEGUN


@compiled
def _begin_static(table: Group, requests: Records, group: Group, queue: Ints) -> int:
    """Begin the next static batch, or wait for requests until `flight_s` from now."""
    if group.n_waiting == 0:
        return BEGUN
    until_s = waits_until_s(requests, group, queue)
    if group.clock_s < until_s:
        group.flight_s = until_s
        return BEGUN
    return BEGUN if begin_batch(table, requests, group, queue) else UNADMITTED


@compiled
def _begin_prompts(
    table: Group, requests: Records, pieces: Floats, group: Group, queue: Ints
) -> bool:
    """Begin an iteration that computes prompts, if there are any to compute now."""
    if group.chunked_prefill:
        return _begin_chunks(table, requests, pieces, group, queue)
    if group.displaces:
        admitted = seat_whole(requests, group)
    else:
        admitted = admit_whole(requests, group, queue)
    if admitted == 0:
        if not group.displaces:
            make_room_to_decode(requests, pieces, group, queue)
        return False
    seconds = iteration_seconds(
        table,
        admitted,
        group.work_tokens,
        group.work_padded,
        group.work_attended,
        0,
        0,
        0,
    )
    _launch(group, PROMPTS, seconds)
    return True


@compiled
def _begin_chunks(
    table: Group, requests: Records, pieces: Floats, group: Group, queue: Ints
) -> bool:
    """Begin an iteration of decodes and chunks, if there is a chunk to run."""
    if group.displaces:
        seat_chunks(requests, group)
    else:
        choose_chunks(requests, pieces, group, queue)
    if group.n_partial == 0:
        return False
    sum_chunks(requests, group)
    longest = group.longest + group.steps if group.n_decoding > 0 else 0
    seconds = iteration_seconds(
        table,
        group.work_requests,
        group.work_tokens,
        group.work_padded,
        group.work_attended,
        group.n_decoding,
        group.context,
        longest,
    )
    _launch(group, CHUNKS, seconds)
    return True


@compiled
def _launch(group: Group, flight: int, seconds: float) -> None:
    """One iteration begins, with the KV that is copied before or during it."""
    group.n_waited = group.n_waiting
    group.flight, group.iterations = flight, 1
    group.flight_s = with_swaps(group, seconds)


@compiled
def _begin_decodes(
    table: Group, requests: Records, pieces: Floats, group: Group, queue: Ints
) -> None:
    """Begin equal decode iterations: until a finish, an end of KV, or a key that may pass another.

    One where KV is copied before it or during it, and after a preemption, since waiting requests
    are then looked at again.
    """
    longest = group.longest + group.steps
    if group.swapping_s > 0.0:
        seconds = decode_run_seconds(table, group.n_decoding, group.context, longest, 1)
        _launch(group, DECODES, seconds)
        return
    most = requests[group.heap[0]].ends - group.steps
    if group.covered > 0:
        most = steps_covered(requests, group, most)
    if group.renews or group.tells:
        most = steps_within(requests, group, most)
    if group.moves:
        most = steps_in_order(table, requests, pieces, queue, group, most)
    group.iterations = 1 if group.preempted else iterations_that_fit(group, most)
    group.flight = DECODES
    group.flight_s = decode_run_seconds(
        table, group.n_decoding, group.context, longest, group.iterations
    )


@compiled
def cut(table: Group, group: Group, now_s: float) -> None:
    """Something has happened to a group: its run of iterations ends at the next boundary."""
    if group.iterations > 1 and group.flight in (DECODES, RUN_OF_DECODES):
        longest, batch = group.longest + group.steps, group.n_decoding
        elapsed_s = now_s - group.clock_s
        iterations = decode_iterations_within(
            table, batch, group.context, longest, elapsed_s, group.iterations
        )
        if iterations < group.iterations:
            group.iterations = iterations
            group.flight_s = decode_run_seconds(table, batch, group.context, longest, iterations)


@compiled
def ended_by(table: Group, group: Group, now_s: float) -> int:
    """Iterations of the run in flight that have ended by now; its last one does not count."""
    if group.iterations == 1 or now_s <= group.clock_s:
        return 0
    if group.flight not in (DECODES, RUN_OF_DECODES):
        return 0
    longest, batch = group.longest + group.steps, group.n_decoding
    elapsed_s = now_s - group.clock_s
    begun = decode_iterations_within(
        table, batch, group.context, longest, elapsed_s, group.iterations
    )
    seconds = decode_run_seconds(table, batch, group.context, longest, begun)
    ended = begun if group.clock_s + seconds <= now_s else begun - 1
    return int(min(ended, group.iterations - 1))


@compiled
def split(table: Group, requests: Records, group: Group, queue: Ints, ended: int) -> None:
    """Count the first `ended` iterations of the run in flight as over; the others go on."""
    longest, batch = group.longest + group.steps, group.n_decoding
    seconds = decode_run_seconds(table, batch, group.context, longest, ended)
    if group.log_columns > 0:
        write_log(requests, group, queue, seconds, ended, True, False)
    _step_decodes(requests, group, ended, seconds)
    group.clock_s += seconds
    group.iterations -= ended
    longest = group.longest + group.steps
    group.flight_s = decode_run_seconds(table, batch, group.context, longest, group.iterations)


@compiled
def end(requests: Records, pieces: Floats, group: Group, queue: Ints) -> None:
    """End the flight of a group."""
    flight, duration_s = group.flight, group.flight_s
    group.flight = NOTHING
    if flight == WHOLE:
        end_batch(requests, pieces, group, queue)
        return
    if group.log_columns > 0:
        decodes, prefills = flight != PROMPTS, flight != DECODES
        write_log(requests, group, queue, duration_s, group.iterations, decodes, prefills)
    if flight != PROMPTS:
        _step_decodes(requests, group, group.iterations, duration_s)
    group.clock_s += duration_s
    if flight != PROMPTS:
        finish_due(requests, group)
    if flight != DECODES:
        _end_prompts(requests, group, duration_s)


@compiled
def _step_decodes(requests: Records, group: Group, iterations: int, duration_s: float) -> None:
    """Count tokens, blocks and attained time of so many decode steps."""
    take_blocks(group, iterations)
    group.steps += iterations
    if group.covered > 0:
        uncover(requests, group)
    if group.tells:
        note_overruns(requests, group)
    group.context += iterations * group.n_decoding
    group.generated += iterations * group.n_decoding
    group.decoded_s += duration_s


@compiled
def _end_prompts(requests: Records, group: Group, duration_s: float) -> None:
    """The KV of prompts or chunks is there; a request that is complete produces a token."""
    chunks, kept = group.n_partial, 0
    for i in range(chunks):
        request = group.partial[i]
        if group.chunk[i] > 0:
            requests[request].kv += group.chunk[i]
            requests[request].gpu_s += duration_s
            requests[request].prefill_s += duration_s
        missing = requests[request].prompt + requests[request].generated - requests[request].kv
        if missing == 0:
            produce(requests, group, request)
        elif missing == 1 and requests[request].generated > 0:
            join(requests, group, request)
        else:
            group.partial[kept] = request
            kept += 1
    group.n_partial = kept


@compiled
def next_event_s(group: Group) -> float:
    """When the flight of a group ends, or a static batch stops waiting; infinite if it is idle."""
    if group.flight != NOTHING:
        return float(group.clock_s + group.flight_s)
    if group.until and group.n_waiting > 0:
        return float(group.flight_s)
    return np.inf
