"""Compiled stepping of a lane: what `draft.fill` means, many iterations at once.

An iteration begins (requests admitted or evicted, blocks taken, duration known) and ends (tokens
produced). One that would end after the horizon stays in flight, so that whoever looks at the lane
at that time sees what a step-by-step engine would show.
"""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.costs.model import (
    IterationTable,
    decode_iterations_within,
    decode_run_seconds,
    iteration_seconds,
)
from harness.engines.simulator.fast.admission import (
    admit_chunked,
    admit_whole,
    continue_partial,
    sum_chunks,
)
from harness.engines.simulator.fast.heaps import (
    push_waiting,
)
from harness.engines.simulator.fast.holders import (
    enter,
    finish_due,
    iterations_that_fit,
    join,
    leave,
    make_room_to_decode,
    pass_time,
    produce,
    take_blocks,
    write_log,
)
from harness.engines.simulator.fast.lane import (
    BUSY,
    CHUNKS,
    CLOCK,
    CONTEXT,
    DECODED,
    DECODES,
    DECODING,
    EVICTED,
    FLIGHT,
    FLIGHT_S,
    LOGGED,
    LONGEST,
    NEXT_ARRIVAL,
    NOTHING,
    PARTIAL,
    PROMPTS,
    STEPS,
    STOPPED,
    USED_BLOCKS,
    WAITING,
    LaneArrays,
    LaneRule,
    RequestArrays,
)

# Why `advance` returned
HORIZON, IDLE, FULL, STUCK, FOLLOWED = range(5)


@inlined
def _begin_prompts(
    table: IterationTable, requests: RequestArrays, lane: LaneArrays, rule: LaneRule
) -> bool:
    """Begin an iteration of whole prompts, if one can be admitted."""
    admitted = admit_whole(requests, lane, rule)
    if admitted == 0:
        return False
    work = lane.work
    lane.time_s[FLIGHT_S] = iteration_seconds(table, admitted, work[1], work[2], work[3], 0, 0, 0)
    lane.counts[FLIGHT] = PROMPTS
    return True


@inlined
def _begin_chunks(
    table: IterationTable, requests: RequestArrays, lane: LaneArrays, rule: LaneRule
) -> bool:
    """Begin an iteration of decodes and chunks, if there is a chunk to run."""
    counts, work = lane.counts, lane.work
    make_room_to_decode(requests, lane, rule)
    needed = lane.phase[-counts[STEPS] % rule.block_tokens]
    counts[USED_BLOCKS] += needed
    budget = continue_partial(requests, lane, rule, rule.max_tokens - counts[DECODING])
    if counts[EVICTED] == 0:
        admit_chunked(requests, lane, rule, budget)
    counts[USED_BLOCKS] -= needed
    if counts[PARTIAL] == 0:
        return False
    sum_chunks(requests, lane)
    longest = counts[LONGEST] + counts[STEPS] if counts[DECODING] > 0 else 0
    lane.time_s[FLIGHT_S] = iteration_seconds(
        table, int(work[0]), work[1], work[2], work[3], counts[DECODING], counts[CONTEXT], longest
    )
    counts[FLIGHT] = CHUNKS
    return True


@inlined
def _run_decodes(
    table: IterationTable,
    requests: RequestArrays,
    lane: LaneArrays,
    rule: LaneRule,
    sees_s: float,
    horizon_s: float,
) -> None:
    """Run equal decode iterations until the next thing can change.

    That is a finish, KV that is full, the first boundary at or after `sees_s`, or the last one
    within the horizon; if none ends within it, one begins.
    """
    counts = lane.counts
    batch, context = counts[DECODING], counts[CONTEXT]
    longest = counts[LONGEST] + counts[STEPS]
    most = requests.ends[lane.heap[0]] - counts[STEPS]
    # After an eviction the waiting ones are looked at again one iteration later.
    iterations = 1 if counts[EVICTED] else iterations_that_fit(lane, rule, most)
    duration_s = decode_run_seconds(table, batch, context, longest, iterations)
    clock_s = lane.time_s[CLOCK]
    if clock_s + duration_s > sees_s:
        iterations = decode_iterations_within(
            table, batch, context, longest, sees_s - clock_s, iterations
        )
        duration_s = decode_run_seconds(table, batch, context, longest, iterations)
    if clock_s + duration_s > horizon_s:
        iterations = decode_iterations_within(
            table, batch, context, longest, horizon_s - clock_s, iterations
        )
        duration_s = decode_run_seconds(table, batch, context, longest, iterations)
        if clock_s + duration_s > horizon_s:
            iterations -= 1
            duration_s = decode_run_seconds(table, batch, context, longest, iterations)
    if iterations == 0:
        lane.time_s[FLIGHT_S] = decode_run_seconds(table, batch, context, longest, 1)
        counts[FLIGHT] = DECODES
    else:
        _end_decodes(requests, lane, rule, iterations, duration_s)


@inlined
def _end_decodes(
    requests: RequestArrays, lane: LaneArrays, rule: LaneRule, iterations: int, duration_s: float
) -> None:
    """`iterations` decode steps of everybody are over."""
    if rule.log_on:
        write_log(lane, duration_s, iterations, True, False)
    _step_decodes(lane, rule, iterations, duration_s)
    pass_time(lane, duration_s)
    finish_due(requests, lane, rule)


@inlined
def _step_decodes(lane: LaneArrays, rule: LaneRule, iterations: int, duration_s: float) -> None:
    """Tokens, blocks and attained time of `iterations` decode steps."""
    counts = lane.counts
    take_blocks(lane, rule, iterations)
    counts[STEPS] += iterations
    counts[CONTEXT] += iterations * counts[DECODING]
    lane.time_s[DECODED] += duration_s


@inlined
def _end_chunks(
    requests: RequestArrays, lane: LaneArrays, rule: LaneRule, duration_s: float
) -> None:
    """The KV of prompts or chunks is there; whoever is complete produces a token."""
    counts = lane.counts
    chunks, kept = counts[PARTIAL], 0
    for i in range(chunks):
        request = lane.partial[i]
        if lane.chunk[i] > 0:
            requests.kv[request] += lane.chunk[i]
            requests.gpu_s[request] += duration_s
            requests.prefill_s[request] += duration_s
        missing = requests.prompt[request] + requests.generated[request] - requests.kv[request]
        if missing == 0:
            produce(requests, lane, rule, request)
        elif missing == 1 and requests.generated[request] > 0:
            join(requests, lane, rule, request)
        else:
            lane.partial[kept] = request
            kept += 1
    counts[PARTIAL] = kept


@inlined
def _end_flight(requests: RequestArrays, lane: LaneArrays, rule: LaneRule) -> None:
    """End the iteration in flight."""
    counts = lane.counts
    duration_s, flight = lane.time_s[FLIGHT_S], counts[FLIGHT]
    counts[FLIGHT] = NOTHING
    if flight == DECODES:
        _end_decodes(requests, lane, rule, 1, duration_s)
        return
    if rule.log_on:
        write_log(lane, duration_s, 1, flight == CHUNKS, True)
    if flight == CHUNKS:
        _step_decodes(lane, rule, 1, duration_s)
    pass_time(lane, duration_s)
    if flight == CHUNKS:
        finish_due(requests, lane, rule)
    _end_chunks(requests, lane, rule, duration_s)


@inlined
def _pull_arrivals(requests: RequestArrays, lane: LaneArrays) -> None:
    """Requests that have arrived by now start waiting."""
    counts = lane.counts
    while counts[NEXT_ARRIVAL] < len(lane.arrivals):
        request = lane.arrivals[counts[NEXT_ARRIVAL]]
        if requests.arrival_s[request] > lane.time_s[CLOCK]:
            return
        push_waiting(requests, lane, request)
        counts[NEXT_ARRIVAL] += 1


@inlined
def _next_arrival_s(requests: RequestArrays, lane: LaneArrays) -> float:
    if lane.counts[NEXT_ARRIVAL] < len(lane.arrivals):
        return float(requests.arrival_s[lane.arrivals[lane.counts[NEXT_ARRIVAL]]])
    return np.inf


@inlined
def _is_full(lane: LaneArrays, rule: LaneRule) -> bool:
    """No room for another interval or log row."""
    no_log = rule.log_on and lane.counts[LOGGED] >= len(lane.log)
    return bool(no_log or lane.counts[BUSY] >= len(lane.busy_s))


@inlined
def _begin(
    table: IterationTable,
    requests: RequestArrays,
    lane: LaneArrays,
    rule: LaneRule,
    horizon_s: float,
) -> int:
    """Begin the next iteration (a run of decodes also ends here); IDLE or STUCK if none."""
    counts = lane.counts
    counts[EVICTED] = 0
    _pull_arrivals(requests, lane)
    if rule.mixed:
        if _begin_chunks(table, requests, lane, rule):
            return HORIZON
    else:
        if _begin_prompts(table, requests, lane, rule):
            return HORIZON
        make_room_to_decode(requests, lane, rule)
    arrival_s = _next_arrival_s(requests, lane)
    if counts[DECODING] > 0:
        # With every seat taken an arrival changes nothing before the next finish.
        sees_s = arrival_s if counts[DECODING] < rule.max_requests else np.inf
        _run_decodes(table, requests, lane, rule, sees_s, horizon_s)
    elif counts[WAITING] > 0:
        return STUCK
    elif arrival_s < np.inf:
        lane.time_s[CLOCK] = min(arrival_s, horizon_s)
    else:
        return IDLE
    return HORIZON


@compiled
def advance(
    table: IterationTable,
    requests: RequestArrays,
    lane: LaneArrays,
    rule: LaneRule,
    horizon_s: float,
) -> int:
    """End every iteration that ends at or before `horizon_s`; one that ends later stays in flight.

    No iteration begins at or after the horizon. Returns HORIZON, IDLE (no request left; the clock
    stays at the last boundary), FULL (make the log or the intervals longer and call again), STUCK
    (the first waiting request can never be admitted) or FOLLOWED (a request that others wait for
    was answered at the clock's time).
    """
    enter(requests, lane, rule)
    status = HORIZON
    lane.counts[STOPPED] = 0
    while True:
        if lane.counts[STOPPED]:
            status = FOLLOWED
            break
        if _is_full(lane, rule):
            status = FULL
            break
        if lane.counts[FLIGHT] != NOTHING:
            if lane.time_s[CLOCK] + lane.time_s[FLIGHT_S] > horizon_s:
                break
            _end_flight(requests, lane, rule)
        elif lane.time_s[CLOCK] < horizon_s:
            status = _begin(table, requests, lane, rule, horizon_s)
            if status != HORIZON:
                break
        else:
            break
    leave(requests, lane)
    return status
