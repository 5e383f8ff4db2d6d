"""Compiled stepping of a replica: what `ask.one_batch` means, many iterations at once.

An iteration begins (requests admitted or preempted, blocks taken, duration known) and ends (tokens
produced). One that would end after the horizon stays in flight, as in a step-by-step engine.
"""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.costs.iteration import IterationTable, iteration_seconds
from harness.engines.simulator.fast.admission import (
    admit_chunked,
    admit_whole,
    continue_partial,
    sum_chunks,
)
from harness.engines.simulator.fast.arrays import (
    BUSY,
    CHUNKS,
    CLOCK,
    CONTEXT,
    DECODES,
    DECODING,
    FLIGHT,
    FLIGHT_S,
    LOGGED,
    LONGEST,
    NOTHING,
    PARTIAL,
    PREEMPTED,
    PROMPTS,
    STEPS,
    STOPPED,
    SWAPPING,
    USED_BLOCKS,
    WAITING,
    WHOLE,
    WORK_ATTENDED,
    WORK_PADDED,
    WORK_REQUESTS,
    WORK_TOKENS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.coming import next_arrival_s, next_turn_s, pull_all
from harness.engines.simulator.fast.decodes import (
    begin_decodes,
    end_decodes,
    run_decodes,
    step_decodes,
)
from harness.engines.simulator.fast.holders import (
    enter,
    finish_due,
    join,
    leave,
    make_room_to_decode,
    pass_time,
    produce,
)
from harness.engines.simulator.fast.keys import must_ask
from harness.engines.simulator.fast.log import write_log
from harness.engines.simulator.fast.overruns import renew_promises
from harness.engines.simulator.fast.seats import seat_chunks, seat_whole, take_seats
from harness.engines.simulator.fast.static import begin_batch, end_batch, waits_until_s
from harness.engines.simulator.fast.swaps import with_swaps
from harness.engines.state import RequestArrays

# Why `advance` returned
HORIZON, IDLE, FULL, STUCK, FOLLOWED, ASKED = range(6)


@inlined
def _begin_prompts(
    table: IterationTable, requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> bool:
    """Begin an iteration of whole prompts, if one can be admitted."""
    if rule.displaces:
        admitted = seat_whole(requests, replica, rule)
    else:
        admitted = admit_whole(requests, replica, rule)
    if admitted == 0:
        return False
    work = replica.work
    seconds = iteration_seconds(
        table, admitted, work[WORK_TOKENS], work[WORK_PADDED], work[WORK_ATTENDED], 0, 0, 0
    )
    replica.time_s[FLIGHT_S] = with_swaps(replica, rule, seconds)
    replica.counts[FLIGHT] = PROMPTS
    return True


@inlined
def _choose_chunks(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Decodes first, then those in mid-prompt, then newcomers."""
    counts = replica.counts
    make_room_to_decode(requests, replica, rule)
    needed = replica.phase[-counts[STEPS] % rule.block_tokens]
    counts[USED_BLOCKS] += needed
    budget = continue_partial(requests, replica, rule, rule.max_tokens - counts[DECODING])
    if counts[PREEMPTED] == 0:
        admit_chunked(requests, replica, rule, budget)
    counts[USED_BLOCKS] -= needed


@inlined
def _begin_chunks(
    table: IterationTable, requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> bool:
    """Begin an iteration of decodes and chunks, if there is a chunk to run."""
    counts, work = replica.counts, replica.work
    if rule.displaces:
        seat_chunks(requests, replica, rule)
    else:
        _choose_chunks(requests, replica, rule)
    if counts[PARTIAL] == 0:
        return False
    sum_chunks(requests, replica)
    longest = counts[LONGEST] + counts[STEPS] if counts[DECODING] > 0 else 0
    seconds = iteration_seconds(
        table,
        int(work[WORK_REQUESTS]),
        work[WORK_TOKENS],
        work[WORK_PADDED],
        work[WORK_ATTENDED],
        counts[DECODING],
        counts[CONTEXT],
        longest,
    )
    replica.time_s[FLIGHT_S] = with_swaps(replica, rule, seconds)
    counts[FLIGHT] = CHUNKS
    return True


@inlined
def _end_chunks(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, duration_s: float
) -> None:
    """The KV of prompts or chunks is there; whoever is complete produces a token."""
    counts = replica.counts
    chunks, kept = counts[PARTIAL], 0
    for i in range(chunks):
        request = replica.partial[i]
        if replica.chunk[i] > 0:
            requests.kv[request] += replica.chunk[i]
            requests.gpu_s[request] += duration_s
            requests.prefill_s[request] += duration_s
        missing = requests.prompt[request] + requests.generated[request] - requests.kv[request]
        if missing == 0:
            produce(requests, replica, rule, request)
        elif missing == 1 and requests.generated[request] > 0:
            join(requests, replica, rule, request)
        else:
            replica.partial[kept] = request
            kept += 1
    counts[PARTIAL] = kept


@inlined
def _end_flight(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """End the iteration in flight."""
    counts = replica.counts
    duration_s, flight = replica.time_s[FLIGHT_S], counts[FLIGHT]
    counts[FLIGHT] = NOTHING
    if flight == WHOLE:
        end_batch(requests, replica, rule)
        return
    if flight == DECODES:
        end_decodes(requests, replica, rule, 1, duration_s)
        return
    if rule.log_columns > 0:
        write_log(requests, replica, rule, duration_s, 1, flight == CHUNKS, True)
    if flight == CHUNKS:
        step_decodes(requests, replica, rule, 1, duration_s)
    pass_time(replica, duration_s)
    if flight == CHUNKS:
        finish_due(requests, replica, rule)
    _end_chunks(requests, replica, rule, duration_s)


@inlined
def _is_full(replica: ReplicaArrays, rule: ReplicaRule) -> bool:
    """No room for another interval or log row."""
    no_log = rule.log_columns > 0 and replica.counts[LOGGED] >= len(replica.log)
    return bool(no_log or replica.counts[BUSY] >= len(replica.busy_s))


@inlined
def _begin_static(
    table: IterationTable,
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    horizon_s: float,
) -> int:
    """Begin the next static batch, or wait for requests; IDLE or STUCK if none."""
    counts, clock_s = replica.counts, replica.time_s[CLOCK]
    next_s = next_arrival_s(requests, replica)
    if counts[WAITING] == 0:
        if next_s == np.inf:
            return IDLE
        replica.time_s[CLOCK] = min(next_s, horizon_s)
        return HORIZON
    until_s = waits_until_s(requests, replica, rule)
    if clock_s < until_s:
        replica.time_s[CLOCK] = min(until_s, next_s, horizon_s)
        return HORIZON
    return HORIZON if begin_batch(table, requests, replica, rule) else STUCK


@inlined
def _begin_continuous(
    table: IterationTable, requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> bool:
    """Begin an iteration that computes prompts, if there are any to compute now."""
    if rule.displaces:
        take_seats(requests, replica, rule)
    if rule.chunked_prefill:
        return _begin_chunks(table, requests, replica, rule)
    if _begin_prompts(table, requests, replica, rule):
        return True
    if not rule.displaces:
        make_room_to_decode(requests, replica, rule)
    return False


@inlined
def _begin(
    table: IterationTable,
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    horizon_s: float,
) -> int:
    """Begin the next iteration (a run of decodes also ends here); IDLE or STUCK if none."""
    counts = replica.counts
    counts[PREEMPTED] = 0
    pull_all(requests, replica)
    if rule.until:
        return _begin_static(table, requests, replica, rule, horizon_s)
    if rule.asks and must_ask(requests, replica, rule):
        return ASKED
    if rule.renews:
        renew_promises(requests, replica, rule)
    if _begin_continuous(table, requests, replica, rule):
        return HORIZON
    arrival_s = next_arrival_s(requests, replica)
    if counts[DECODING] > 0 and replica.time_s[SWAPPING] > 0.0:
        begin_decodes(table, replica, rule)
    elif counts[DECODING] > 0:
        # With every slot taken who comes changes nothing before a finish, unless by displacing.
        sees_s = np.inf
        if rule.displaces or counts[DECODING] < rule.max_requests:
            sees_s = min(arrival_s, next_turn_s(requests, replica))
        run_decodes(table, requests, replica, rule, sees_s, horizon_s)
    elif counts[WAITING] + counts[PARTIAL] > 0:
        return STUCK
    elif arrival_s < np.inf:
        replica.time_s[CLOCK] = min(arrival_s, horizon_s)
    else:
        return IDLE
    return HORIZON


@compiled
def advance(
    table: IterationTable,
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    horizon_s: float,
) -> int:
    """End every iteration that ends at or before `horizon_s`; one that ends later stays in flight.

    No iteration begins at or after the horizon. Returns HORIZON, IDLE (no request left; the clock
    stays at the last boundary), FULL (make the log or the intervals longer and call again), STUCK
    (the first waiting one can never be admitted), FOLLOWED (at the clock's time one was answered
    that others wait for, or an overrun is to be told) or ASKED (a running key is to be told anew).
    """
    enter(requests, replica, rule)
    status, replica.counts[STOPPED] = HORIZON, 0
    while True:
        if replica.counts[STOPPED]:
            status = FOLLOWED
            break
        if _is_full(replica, rule):
            status = FULL
            break
        if replica.counts[FLIGHT] != NOTHING:
            if replica.time_s[CLOCK] + replica.time_s[FLIGHT_S] > horizon_s:
                break
            _end_flight(requests, replica, rule)
        elif replica.time_s[CLOCK] < horizon_s:
            status = _begin(table, requests, replica, rule, horizon_s)
            if status != HORIZON:
                break
        else:
            break
    leave(requests, replica)
    return status
