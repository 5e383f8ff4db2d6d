"""Requests that hold KV in a replica: how they join, grow, leave, are preempted and finish."""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    BUSY,
    CLOCK,
    CONTEXT,
    COVERED,
    DECODED,
    DECODING,
    DONE,
    FLIGHT,
    GROWING,
    HEAP,
    LONGEST,
    NOTHING,
    PARTIAL,
    PREEMPTED,
    RANKED,
    STEPS,
    STOPPED,
    USED_BLOCKS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.coming import come_later
from harness.engines.simulator.fast.heaps import (
    before,
    pop_end,
    push_end,
    push_waiting,
    withdraw_end,
)
from harness.engines.simulator.fast.keys import move_keys
from harness.engines.simulator.fast.kv import begin_growth, end_growth, taken
from harness.engines.simulator.fast.lasts import rank, take_last
from harness.engines.simulator.fast.overruns import note_overrun
from harness.engines.state import ELSEWHERE, RequestArrays
from harness.interface.graph import NOBODY


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
    begin_growth(requests, replica, rule, request)
    requests.gpu_s[request] -= replica.time_s[DECODED]
    push_end(requests, replica, request)
    if counts[RANKED] > 0:
        rank(requests, replica, request)


@inlined
def _sync(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """Write a decoding request's progress back into the arrays."""
    done = replica.counts[STEPS] - requests.joined[request]
    requests.joined[request] = replica.counts[STEPS]
    requests.generated[request] += done
    requests.kv[request] += done
    requests.gpu_s[request] += replica.time_s[DECODED]


@inlined
def part(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int) -> None:
    """A decoding request leaves the replica's list with its KV; progress is written back."""
    counts = replica.counts
    _sync(requests, replica, request)
    step = counts[STEPS]
    context = requests.prompt[request] + requests.generated[request]
    counts[CONTEXT] -= context
    counts[DECODING] -= 1
    moved = replica.decoding[counts[DECODING]]
    replica.decoding[requests.place[request]] = moved
    requests.place[moved] = requests.place[request]
    end_growth(requests, replica, rule, request)
    if context - step == counts[LONGEST]:
        _find_longest(requests, replica)


@compiled
def _find_longest(requests: RequestArrays, replica: ReplicaArrays) -> None:
    longest = np.int64(-(1 << 62))
    for i in range(replica.counts[DECODING]):
        other = replica.decoding[i]
        longest = max(
            longest, requests.prompt[other] + requests.generated[other] - requests.joined[other]
        )
    replica.counts[LONGEST] = longest


@inlined
def drop(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int) -> None:
    """Free the KV of a request that does not decode."""
    replica.counts[USED_BLOCKS] -= taken(requests, rule, request, requests.kv[request])
    requests.kv[request] = 0


@inlined
def note_preempted(requests: RequestArrays, replica: ReplicaArrays, request: int) -> None:
    """A request is preempted now; when it begins again, what it then wants is set aside.

    That may be less than before, so those that wait are looked at again after one iteration.
    """
    replica.counts[PREEMPTED] = 1
    requests.reserved[request] = requests.wanted[request]
    requests.preemptions[request] += 1
    requests.preempted_at_s[request] = replica.time_s[CLOCK]


@compiled
def forget_ends(replica: ReplicaArrays, requests: RequestArrays) -> None:
    """Rebuild the heap of ends after some have stopped decoding."""
    replica.counts[HEAP] = 0
    for i in range(replica.counts[DECODING]):
        push_end(requests, replica, replica.decoding[i])


@inlined
def _last_decoding(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> int:
    """The last in order of those that decode."""
    if not rule.moves:
        return take_last(requests, replica)
    last: int = replica.decoding[0]
    for i in range(1, replica.counts[DECODING]):
        if before(requests, last, replica.decoding[i]):
            last = replica.decoding[i]
    return last


@compiled
def preempt_last(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Preempt the last holder in order: partly prefilled ones stand behind decoding ones."""
    counts = replica.counts
    move_keys(requests, replica, rule)
    if counts[PARTIAL] > 0:
        counts[PARTIAL] -= 1
        victim = replica.partial[counts[PARTIAL]]
    else:
        victim = _last_decoding(requests, replica, rule)
        part(requests, replica, rule, victim)
        withdraw_end(requests, replica, victim)
    drop(requests, replica, rule, victim)
    note_preempted(requests, replica, victim)
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
def finish(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """Note the end of a request; whoever follows it in this replica arrives, or is to come."""
    clock_s = replica.time_s[CLOCK]
    requests.finished_s[request] = clock_s
    replica.done[replica.counts[DONE]] = request
    replica.counts[DONE] += 1
    follower = requests.next[request]
    if follower == ELSEWHERE:
        replica.counts[STOPPED] = 1
    elif follower != NOBODY:
        at_s = clock_s + rule.hand_over_s
        requests.arrival_s[follower] = requests.key[follower] = at_s
        if at_s > clock_s:
            come_later(replica, follower)
        else:
            push_waiting(requests, replica, follower)


@inlined
def finish_due(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Finish every decoding request whose last token has just been produced."""
    counts = replica.counts
    while counts[HEAP] > 0 and requests.ends[replica.heap[0]] <= counts[STEPS]:
        request = replica.heap[0]
        pop_end(requests, replica)
        part(requests, replica, rule, request)
        drop(requests, replica, rule, request)
        finish(requests, replica, rule, request)


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
        finish(requests, replica, rule, request)
        drop(requests, replica, rule, request)
    else:
        join(requests, replica, rule, request)
        context = requests.prompt[request] + requests.generated[request]
        note_overrun(requests, replica, rule, request, context)


@inlined
def enter(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Derive the replica's sums from its holders and the iteration in flight."""
    counts = replica.counts
    holders = counts[DECODING]
    counts[STEPS] = counts[DECODING] = counts[CONTEXT] = counts[HEAP] = counts[USED_BLOCKS] = 0
    counts[GROWING] = counts[COVERED] = counts[RANKED] = 0
    counts[LONGEST] = -(1 << 62)
    replica.phase[:] = 0
    replica.time_s[DECODED] = 0.0
    for i in range(holders):
        request = replica.decoding[i]
        counts[USED_BLOCKS] += taken(requests, rule, request, requests.kv[request])
        join(requests, replica, rule, request)
    for i in range(counts[PARTIAL]):
        request = replica.partial[i]
        begun = replica.chunk[i] if counts[FLIGHT] != NOTHING else 0
        counts[USED_BLOCKS] += taken(requests, rule, request, requests.kv[request] + begun)


@inlined
def leave(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Write every decoding request's progress back."""
    for i in range(replica.counts[DECODING]):
        _sync(requests, replica, replica.decoding[i])
