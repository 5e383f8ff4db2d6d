"""Requests that hold KV in a replica: how they join, grow, leave, are preempted and finish."""

import numpy as np

from harness.costs.compiled import inlined
from harness.engines.simulator.fast.arrays import (
    BUSY,
    CLOCK,
    CONTEXT,
    DECODED,
    DECODING,
    DONE,
    FLIGHT,
    HEAP,
    LONGEST,
    NOTHING,
    PARTIAL,
    PREEMPTED,
    STEPS,
    STOPPED,
    USED_BLOCKS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.heaps import (
    before,
    pop_end,
    push_end,
    push_waiting,
)
from harness.engines.state import ELSEWHERE, RequestArrays
from harness.interface.graph import NOBODY


@inlined
def blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`."""
    return (tokens + block_tokens - 1) // block_tokens


@inlined
def join(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int) -> None:
    """A request whose KV is complete but for its last token starts decoding."""
    counts = replica.counts
    step = counts[STEPS]
    requests.joined[request] = step
    requests.ends[request] = step + requests.output[request] - requests.generated[request]
    requests.place[request] = counts[DECODING]
    replica.decoding[counts[DECODING]] = request
    counts[DECODING] += 1
    context = requests.prompt[request] + requests.generated[request]
    counts[CONTEXT] += context
    # Contexts grow alike, so the longest stays the longest: kept as if at step 0.
    counts[LONGEST] = max(counts[LONGEST], context - step)
    replica.phase[(requests.kv[request] - step) % rule.block_tokens] += 1
    requests.gpu_s[request] -= replica.time_s[DECODED]
    push_end(requests, replica, request)


@inlined
def _sync(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Write a decoding request's progress back into the arrays."""
    done = replica.counts[STEPS] - requests.joined[request]
    requests.joined[request] = replica.counts[STEPS]
    requests.generated[request] += done
    requests.kv[request] += done
    requests.gpu_s[request] += replica.time_s[DECODED]


@inlined
def _part(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int) -> None:
    """A decoding request leaves the replica's list and frees its KV; progress is written back."""
    counts = replica.counts
    _sync(requests, replica, request)
    step = counts[STEPS]
    context = requests.prompt[request] + requests.generated[request]
    counts[CONTEXT] -= context
    counts[DECODING] -= 1
    moved = replica.decoding[counts[DECODING]]
    replica.decoding[requests.place[request]] = moved
    requests.place[moved] = requests.place[request]
    replica.phase[(requests.kv[request] - step) % rule.block_tokens] -= 1
    counts[USED_BLOCKS] -= blocks(requests.kv[request], rule.block_tokens)
    requests.kv[request] = 0
    if context - step == counts[LONGEST]:
        _find_longest(requests, replica)


@inlined
def _find_longest(requests: RequestArrays, replica: ReplicaArrays) -> None:
    longest = np.int64(-(1 << 62))
    for i in range(replica.counts[DECODING]):
        other = replica.decoding[i]
        longest = max(
            longest, requests.prompt[other] + requests.generated[other] - requests.joined[other]
        )
    replica.counts[LONGEST] = longest


@inlined
def _forget_end(replica: ReplicaArrays, requests: RequestArrays) -> None:
    """Rebuild the heap of ends after a preemption (rare)."""
    replica.counts[HEAP] = 0
    for i in range(replica.counts[DECODING]):
        push_end(requests, replica, replica.decoding[i])


@inlined
def preempt_last(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Preempt the last holder in order: partly prefilled ones stand behind decoding ones."""
    counts = replica.counts
    if counts[PARTIAL] > 0:
        counts[PARTIAL] -= 1
        victim = replica.partial[counts[PARTIAL]]
        counts[USED_BLOCKS] -= blocks(requests.kv[victim], rule.block_tokens)
        requests.kv[victim] = 0
    else:
        victim = replica.decoding[0]
        for i in range(1, counts[DECODING]):
            if before(requests, victim, replica.decoding[i]):
                victim = replica.decoding[i]
        _part(requests, replica, rule, victim)
        _forget_end(replica, requests)
    counts[PREEMPTED] = 1
    requests.preemptions[victim] += 1
    requests.preempted_at_s[victim] = replica.time_s[CLOCK]
    push_waiting(requests, replica, victim)


@inlined
def make_room_to_decode(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Preempt from behind until every remaining decode fits."""
    counts = replica.counts
    while (
        replica.phase[-counts[STEPS] % rule.block_tokens]
        > rule.capacity_blocks - counts[USED_BLOCKS]
    ):
        preempt_last(requests, replica, rule)


@inlined
def iterations_that_fit(replica: ReplicaArrays, rule: ReplicaRule, most: int) -> int:
    """Decode iterations, at most `most`, until the KV is full."""
    free = rule.capacity_blocks - replica.counts[USED_BLOCKS]
    if (most // rule.block_tokens + 1) * replica.counts[DECODING] <= free:
        return most
    cycles = free // max(1, replica.counts[DECODING])
    fit = min(most, cycles * rule.block_tokens)
    free -= cycles * replica.counts[DECODING]
    while fit < most:
        free -= replica.phase[-(replica.counts[STEPS] + fit) % rule.block_tokens]
        if free < 0:
            break
        fit += 1
    return int(fit)


@inlined
def take_blocks(replica: ReplicaArrays, rule: ReplicaRule, iterations: int) -> None:
    """Blocks that `iterations` decode steps of everybody need."""
    counts = replica.counts
    counts[USED_BLOCKS] += iterations // rule.block_tokens * counts[DECODING]
    for j in range(iterations % rule.block_tokens):
        counts[USED_BLOCKS] += replica.phase[-(counts[STEPS] + j) % rule.block_tokens]


@inlined
def _finish(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Note the end of a request; whoever follows it in this replica arrives."""
    clock_s = replica.time_s[CLOCK]
    requests.finished_s[request] = clock_s
    replica.done[replica.counts[DONE]] = request
    replica.counts[DONE] += 1
    follower = requests.next[request]
    if follower == ELSEWHERE:
        replica.counts[STOPPED] = 1
    elif follower != NOBODY:
        requests.arrival_s[follower] = requests.key[follower] = clock_s
        push_waiting(requests, replica, follower)


@inlined
def finish_due(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Finish every decoding request whose last token has just been produced."""
    counts = replica.counts
    while counts[HEAP] > 0 and requests.ends[replica.heap[0]] <= counts[STEPS]:
        request = replica.heap[0]
        pop_end(requests, replica)
        _part(requests, replica, rule, request)
        _finish(requests, replica, request)


@inlined
def pass_time(replica: ReplicaArrays, duration_s: float) -> None:
    """Advance the clock and extend or open a busy interval."""
    start_s = replica.time_s[CLOCK]
    replica.time_s[CLOCK] = start_s + duration_s
    last = replica.counts[BUSY] - 1
    if last >= 0 and replica.busy_s[last, 1] == start_s:
        replica.busy_s[last, 1] = replica.time_s[CLOCK]
    else:
        replica.busy_s[last + 1, 0] = start_s
        replica.busy_s[last + 1, 1] = replica.time_s[CLOCK]
        replica.counts[BUSY] += 1


@inlined
def start(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Note when a request begins to run, first or again."""
    clock_s = replica.time_s[CLOCK]
    if np.isnan(requests.started_s[request]):
        requests.started_s[request] = clock_s
    elif not np.isnan(requests.preempted_at_s[request]):
        requests.preempted_s[request] += clock_s - requests.preempted_at_s[request]
        requests.preempted_at_s[request] = np.nan


@inlined
def produce(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """A request whose context is computed produces a token; it ends or goes on decoding."""
    if requests.generated[request] == 0:
        requests.first_token_s[request] = replica.time_s[CLOCK]
    requests.generated[request] += 1
    if requests.generated[request] == requests.output[request]:
        _finish(requests, replica, request)
        replica.counts[USED_BLOCKS] -= blocks(requests.kv[request], rule.block_tokens)
        requests.kv[request] = 0
    else:
        join(requests, replica, rule, request)


@inlined
def enter(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Derive the replica's sums from its holders and the iteration in flight."""
    counts = replica.counts
    holders = counts[DECODING]
    counts[STEPS] = counts[DECODING] = counts[CONTEXT] = counts[HEAP] = counts[USED_BLOCKS] = 0
    counts[LONGEST] = -(1 << 62)
    replica.phase[:] = 0
    replica.time_s[DECODED] = 0.0
    for i in range(holders):
        request = replica.decoding[i]
        counts[USED_BLOCKS] += blocks(requests.kv[request], rule.block_tokens)
        join(requests, replica, rule, request)
    for i in range(counts[PARTIAL]):
        begun = replica.chunk[i] if counts[FLIGHT] != NOTHING else 0
        counts[USED_BLOCKS] += blocks(requests.kv[replica.partial[i]] + begun, rule.block_tokens)


@inlined
def leave(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Write every decoding request's progress back."""
    for i in range(replica.counts[DECODING]):
        _sync(requests, replica, replica.decoding[i])
