"""Requests that hold KV in a lane: how they join, grow, leave, are evicted and finish."""

import numpy as np

from harness.costs.compiled import inlined
from harness.engines.simulator.fast.heaps import (
    before,
    pop_end,
    push_end,
    push_waiting,
)
from harness.engines.simulator.fast.lane import (
    BUSY,
    CLOCK,
    CONTEXT,
    DECODED,
    DECODING,
    DONE,
    ELSEWHERE,
    EVICTED,
    FLIGHT,
    HEAP,
    LOGGED,
    LONGEST,
    NOBODY,
    NOTHING,
    PARTIAL,
    STEPS,
    STOPPED,
    USED_BLOCKS,
    LaneArrays,
    LaneRule,
    RequestArrays,
)


@inlined
def blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`."""
    return (tokens + block_tokens - 1) // block_tokens


@inlined
def join(requests: RequestArrays, lane: LaneArrays, rule: LaneRule, request: int) -> None:
    """A request whose KV is complete but for its last token starts decoding."""
    counts = lane.counts
    step = counts[STEPS]
    requests.joined[request] = step
    requests.ends[request] = step + requests.output[request] - requests.generated[request]
    requests.place[request] = counts[DECODING]
    lane.decoding[counts[DECODING]] = request
    counts[DECODING] += 1
    context = requests.prompt[request] + requests.generated[request]
    counts[CONTEXT] += context
    # Contexts grow alike, so the longest stays the longest: kept as if at step 0.
    counts[LONGEST] = max(counts[LONGEST], context - step)
    lane.phase[(requests.kv[request] - step) % rule.block_tokens] += 1
    requests.gpu_s[request] -= lane.time_s[DECODED]
    push_end(requests, lane, request)


@inlined
def _sync(requests: RequestArrays, lane: LaneArrays, request: int) -> None:
    """Write a decoding request's progress back into the arrays."""
    done = lane.counts[STEPS] - requests.joined[request]
    requests.joined[request] = lane.counts[STEPS]
    requests.generated[request] += done
    requests.kv[request] += done
    requests.gpu_s[request] += lane.time_s[DECODED]


@inlined
def _part(requests: RequestArrays, lane: LaneArrays, rule: LaneRule, request: int) -> None:
    """A decoding request leaves the lane's list and frees its KV; its progress is written back."""
    counts = lane.counts
    _sync(requests, lane, request)
    step = counts[STEPS]
    context = requests.prompt[request] + requests.generated[request]
    counts[CONTEXT] -= context
    counts[DECODING] -= 1
    moved = lane.decoding[counts[DECODING]]
    lane.decoding[requests.place[request]] = moved
    requests.place[moved] = requests.place[request]
    lane.phase[(requests.kv[request] - step) % rule.block_tokens] -= 1
    counts[USED_BLOCKS] -= blocks(requests.kv[request], rule.block_tokens)
    requests.kv[request] = 0
    if context - step == counts[LONGEST]:
        _find_longest(requests, lane)


@inlined
def _find_longest(requests: RequestArrays, lane: LaneArrays) -> None:
    longest = np.int64(-(1 << 62))
    for i in range(lane.counts[DECODING]):
        other = lane.decoding[i]
        longest = max(
            longest, requests.prompt[other] + requests.generated[other] - requests.joined[other]
        )
    lane.counts[LONGEST] = longest


@inlined
def _forget_end(lane: LaneArrays, requests: RequestArrays) -> None:
    """Rebuild the heap of ends after an eviction (rare)."""
    lane.counts[HEAP] = 0
    for i in range(lane.counts[DECODING]):
        push_end(requests, lane, lane.decoding[i])


@inlined
def evict_last(requests: RequestArrays, lane: LaneArrays, rule: LaneRule) -> None:
    """Evict the last holder in order: partly prefilled ones stand behind decoding ones."""
    counts = lane.counts
    if counts[PARTIAL] > 0:
        counts[PARTIAL] -= 1
        victim = lane.partial[counts[PARTIAL]]
        counts[USED_BLOCKS] -= blocks(requests.kv[victim], rule.block_tokens)
        requests.kv[victim] = 0
    else:
        victim = lane.decoding[0]
        for i in range(1, counts[DECODING]):
            if before(requests, victim, lane.decoding[i]):
                victim = lane.decoding[i]
        _part(requests, lane, rule, victim)
        _forget_end(lane, requests)
    counts[EVICTED] = 1
    requests.preemptions[victim] += 1
    requests.evicted_s[victim] = lane.time_s[CLOCK]
    push_waiting(requests, lane, victim)


@inlined
def make_room_to_decode(requests: RequestArrays, lane: LaneArrays, rule: LaneRule) -> None:
    """Evict from behind until every remaining decode fits."""
    counts = lane.counts
    while (
        lane.phase[-counts[STEPS] % rule.block_tokens] > rule.capacity_blocks - counts[USED_BLOCKS]
    ):
        evict_last(requests, lane, rule)


@inlined
def iterations_that_fit(lane: LaneArrays, rule: LaneRule, most: int) -> int:
    """Decode iterations, at most `most`, until the KV is full."""
    free = rule.capacity_blocks - lane.counts[USED_BLOCKS]
    if (most // rule.block_tokens + 1) * lane.counts[DECODING] <= free:
        return most
    cycles = free // max(1, lane.counts[DECODING])
    fit = min(most, cycles * rule.block_tokens)
    free -= cycles * lane.counts[DECODING]
    while fit < most:
        free -= lane.phase[-(lane.counts[STEPS] + fit) % rule.block_tokens]
        if free < 0:
            break
        fit += 1
    return int(fit)


@inlined
def take_blocks(lane: LaneArrays, rule: LaneRule, iterations: int) -> None:
    """Blocks that `iterations` decode steps of everybody need."""
    counts = lane.counts
    counts[USED_BLOCKS] += iterations // rule.block_tokens * counts[DECODING]
    for j in range(iterations % rule.block_tokens):
        counts[USED_BLOCKS] += lane.phase[-(counts[STEPS] + j) % rule.block_tokens]


@inlined
def _finish(requests: RequestArrays, lane: LaneArrays, request: int) -> None:
    """Note the end of a request; whoever follows it in this lane arrives."""
    clock_s = lane.time_s[CLOCK]
    requests.finished_s[request] = clock_s
    lane.done[lane.counts[DONE]] = request
    lane.counts[DONE] += 1
    follower = requests.next[request]
    if follower == ELSEWHERE:
        lane.counts[STOPPED] = 1
    elif follower != NOBODY:
        requests.arrival_s[follower] = requests.key[follower] = clock_s
        push_waiting(requests, lane, follower)


@inlined
def finish_due(requests: RequestArrays, lane: LaneArrays, rule: LaneRule) -> None:
    """Finish every decoding request whose last token has just been produced."""
    counts = lane.counts
    while counts[HEAP] > 0 and requests.ends[lane.heap[0]] <= counts[STEPS]:
        request = lane.heap[0]
        pop_end(requests, lane)
        _part(requests, lane, rule, request)
        _finish(requests, lane, request)


@inlined
def pass_time(lane: LaneArrays, duration_s: float) -> None:
    """Advance the clock and extend or open a busy interval."""
    start_s = lane.time_s[CLOCK]
    lane.time_s[CLOCK] = start_s + duration_s
    last = lane.counts[BUSY] - 1
    if last >= 0 and lane.busy_s[last, 1] == start_s:
        lane.busy_s[last, 1] = lane.time_s[CLOCK]
    else:
        lane.busy_s[last + 1, 0] = start_s
        lane.busy_s[last + 1, 1] = lane.time_s[CLOCK]
        lane.counts[BUSY] += 1


@inlined
def write_log(
    lane: LaneArrays, duration_s: float, iterations: int, decodes: bool, prefills: bool
) -> None:
    """One row: a run of equal iterations that is about to be timed."""
    counts = lane.counts
    row, log = counts[LOGGED], lane.log
    log[row, 0], log[row, 1], log[row, 2] = lane.time_s[CLOCK], duration_s, iterations
    for i in range(4):
        log[row, 3 + i] = lane.work[i] if prefills else 0.0
    runs = decodes and counts[DECODING] > 0
    log[row, 7] = counts[DECODING] if runs else 0
    log[row, 8] = counts[CONTEXT] if runs else 0
    log[row, 9] = counts[LONGEST] + counts[STEPS] if runs else 0
    counts[LOGGED] += 1


@inlined
def start(requests: RequestArrays, lane: LaneArrays, request: int) -> None:
    """Note when a request begins to run, first or again."""
    clock_s = lane.time_s[CLOCK]
    if np.isnan(requests.started_s[request]):
        requests.started_s[request] = clock_s
    elif not np.isnan(requests.evicted_s[request]):
        requests.preempted_s[request] += clock_s - requests.evicted_s[request]
        requests.evicted_s[request] = np.nan


@inlined
def produce(requests: RequestArrays, lane: LaneArrays, rule: LaneRule, request: int) -> None:
    """A request whose context is computed produces a token; it ends or goes on decoding."""
    if requests.generated[request] == 0:
        requests.first_token_s[request] = lane.time_s[CLOCK]
    requests.generated[request] += 1
    if requests.generated[request] == requests.output[request]:
        _finish(requests, lane, request)
        lane.counts[USED_BLOCKS] -= blocks(requests.kv[request], rule.block_tokens)
        requests.kv[request] = 0
    else:
        join(requests, lane, rule, request)


@inlined
def enter(requests: RequestArrays, lane: LaneArrays, rule: LaneRule) -> None:
    """Derive the lane's sums from its holders and the iteration in flight."""
    counts = lane.counts
    holders = counts[DECODING]
    counts[STEPS] = counts[DECODING] = counts[CONTEXT] = counts[HEAP] = counts[USED_BLOCKS] = 0
    counts[LONGEST] = -(1 << 62)
    lane.phase[:] = 0
    lane.time_s[DECODED] = 0.0
    for i in range(holders):
        request = lane.decoding[i]
        counts[USED_BLOCKS] += blocks(requests.kv[request], rule.block_tokens)
        join(requests, lane, rule, request)
    for i in range(counts[PARTIAL]):
        begun = lane.chunk[i] if counts[FLIGHT] != NOTHING else 0
        counts[USED_BLOCKS] += blocks(requests.kv[lane.partial[i]] + begun, rule.block_tokens)


@inlined
def leave(requests: RequestArrays, lane: LaneArrays) -> None:
    """Write every decoding request's progress back."""
    for i in range(lane.counts[DECODING]):
        _sync(requests, lane, lane.decoding[i])
