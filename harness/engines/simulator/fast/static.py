"""A replica under static batching: one batch after the other (`fill_static`, compiled).

Between batches all unfinished requests wait, those that have begun with their KV and promise.
"""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.costs.iteration import IterationTable, decode_run_seconds, iteration_seconds
from harness.engines.simulator.fast.arrays import (
    ALL,
    BATCH,
    CLOCK,
    FIRST,
    FIRST_S,
    FLIGHT,
    FLIGHT_S,
    LOG_CONTEXT,
    LOG_DECODES,
    LOG_DURATION,
    LOG_HELD,
    LOG_ITERATIONS,
    LOG_LONGEST,
    LOG_START,
    LOG_WORK,
    LOGGED,
    PARTIAL,
    PAUSED,
    WAITING,
    WHOLE,
    WORK_ATTENDED,
    WORK_PADDED,
    WORK_REQUESTS,
    WORK_TOKENS,
    WORKS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.heaps import before, push_waiting, take_waiting
from harness.engines.simulator.fast.holders import finish, note_preempted, pass_time, start
from harness.engines.simulator.fast.keys import set_key
from harness.engines.simulator.fast.kv import taken
from harness.engines.simulator.fast.log import write_use
from harness.engines.state import BRIEF, RequestArrays


@inlined
def waits_until_s(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> float:
    """How long the next batch waits for more requests; in the past if it does not."""
    counts = replica.counts
    if counts[PAUSED] > 0 or counts[WAITING] >= rule.max_requests:
        return -np.inf
    oldest_s = np.inf
    for i in range(counts[WAITING]):
        oldest_s = min(oldest_s, requests.arrival_s[replica.waiting[i]])
    return float(oldest_s + rule.max_wait_s)


@inlined
def _missing(requests: RequestArrays, request: int) -> int:
    context = requests.prompt[request] + requests.generated[request]
    return int(context - requests.kv[request])


@compiled
def _fill(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Move the first in order that fit into `partial`; holders alone where the first does not."""
    counts = replica.counts
    tokens = 0
    while counts[WAITING] > 0 and counts[PARTIAL] < rule.max_requests:
        request = replica.waiting[0]
        is_new = requests.kv[request] == 0
        needed = taken(requests, rule, request, 0) if is_new else 0
        tokens += _missing(requests, request)
        if tokens > rule.max_tokens or counts[PAUSED] + needed > rule.capacity_blocks:
            break
        counts[PAUSED] += needed
        _take(requests, replica, 0)
    if counts[PARTIAL] > 0 or counts[PAUSED] == 0:
        return
    tokens = 0
    while counts[PARTIAL] < rule.max_requests:
        best = -1
        for i in range(counts[WAITING]):
            request = replica.waiting[i]
            if requests.kv[request] > 0 and (
                best < 0 or before(requests, request, replica.waiting[best])
            ):
                best = i
        if best < 0:
            break
        tokens += _missing(requests, replica.waiting[best])
        if tokens > rule.max_tokens:
            break
        _take(requests, replica, best)


@inlined
def _take(requests: RequestArrays, replica: ReplicaArrays, at: int) -> None:
    """Who waits at this place of the heap is in the batch."""
    counts, request = replica.counts, replica.waiting[at]
    take_waiting(requests, replica, at)
    replica.partial[counts[PARTIAL]] = request
    replica.chunk[counts[PARTIAL]] = _missing(requests, request)
    counts[PARTIAL] += 1


@compiled
def begin_batch(
    table: IterationTable, requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> bool:
    """Begin a batch of those who come first and fit; False where nobody does."""
    counts, work = replica.counts, replica.work
    _fill(requests, replica, rule)
    if counts[PARTIAL] == 0:
        return False
    decodes, context, longest = _sum_first(requests, replica, rule)
    replica.time_s[FIRST_S] = rule.decide_s + iteration_seconds(
        table,
        int(work[WORK_REQUESTS]),
        int(work[WORK_TOKENS]),
        int(work[WORK_PADDED]),
        work[WORK_ATTENDED],
        decodes,
        context,
        longest,
    )
    counts[BATCH] = _iterations(requests, replica, rule)
    counts[FLIGHT] = WHOLE
    replica.time_s[FLIGHT_S] = replica.time_s[FIRST_S] + _later_s(table, requests, replica)
    if rule.log_columns > 0:
        _write_first(requests, replica, rule, decodes, context, longest)
    for i in range(counts[PARTIAL]):
        if requests.kv[replica.partial[i]] == 0 or rule.until == FIRST:
            start(requests, replica, replica.partial[i])
    if rule.until == FIRST and counts[PAUSED] > 0:
        _pass_over(requests, replica)
    return True


@inlined
def _sum_first(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> tuple[int, int, int]:
    """Fill `work` with the prompts of a batch's first iteration.

    Returns its decodes, and the sum and the longest of their contexts.
    """
    counts, work = replica.counts, replica.work
    work[:] = 0.0
    decodes = context = longest = prompt = 0
    for i in range(counts[PARTIAL]):
        request, tokens = replica.partial[i], replica.chunk[i]
        if requests.kv[request] > 0:
            total = requests.kv[request] + tokens
            decodes, context, longest = decodes + 1, context + total, max(longest, total)
        else:
            prompt = max(prompt, tokens)
            work[WORK_REQUESTS] += 1
            work[WORK_TOKENS] += tokens
            work[WORK_ATTENDED] += float(tokens) * tokens
    work[WORK_PADDED] = work[WORK_TOKENS]
    if rule.pads:
        work[WORK_PADDED] = work[WORK_REQUESTS] * prompt
        work[WORK_ATTENDED] = work[WORK_REQUESTS] * (float(prompt) * prompt)
    return decodes, context, longest


@inlined
def _iterations(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> int:
    """Iterations until the first or the last of a batch is answered."""
    least, most = np.int64(1 << 62), np.int64(0)
    for i in range(replica.counts[PARTIAL]):
        request = replica.partial[i]
        left = requests.output[request] - requests.generated[request]
        least, most = min(least, left), max(most, left)
    return int(most if rule.until == ALL else least)


@inlined
def _later_s(table: IterationTable, requests: RequestArrays, replica: ReplicaArrays) -> float:
    """Seconds of all iterations after the first: decodes of a batch that nobody leaves."""
    counts = replica.counts
    context, longest = _sum_later(requests, replica)
    return decode_run_seconds(table, counts[PARTIAL], context, longest, counts[BATCH] - 1)


@inlined
def _sum_later(requests: RequestArrays, replica: ReplicaArrays) -> tuple[int, int]:
    """Sum and longest of the contexts in a batch's second iteration, where all decode."""
    context = longest = 0
    for i in range(replica.counts[PARTIAL]):
        total = requests.kv[replica.partial[i]] + replica.chunk[i] + 1
        context, longest = context + total, max(longest, total)
    return context, longest


@inlined
def _pass_over(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Who has begun and is not in the batch is preempted, and keeps its KV."""
    for i in range(replica.counts[WAITING]):
        request = replica.waiting[i]
        if requests.kv[request] > 0 and np.isnan(requests.preempted_at_s[request]):
            note_preempted(requests, replica, request)


@inlined
def _write_first(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    decodes: int,
    context: int,
    longest: int,
) -> None:
    """A row for the first iteration of a batch that begins."""
    row, log = replica.counts[LOGGED], replica.log
    log[row, LOG_START], log[row, LOG_DURATION] = replica.time_s[CLOCK], replica.time_s[FIRST_S]
    log[row, LOG_ITERATIONS] = 1
    for i in range(WORKS):
        log[row, LOG_WORK + i] = replica.work[i]
    log[row, LOG_DECODES], log[row, LOG_CONTEXT] = decodes, context
    log[row, LOG_LONGEST] = longest
    if rule.log_columns > BRIEF:
        write_use(requests, replica, rule, False, True)
    replica.counts[LOGGED] += 1


@inlined
def _write_later(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """A row for the iterations of a batch after its first, if there are any.

    Who holds and who waits is as in the row before, but for the tokens that were promised.
    """
    counts, row, log = replica.counts, replica.counts[LOGGED], replica.log
    if counts[BATCH] <= 1:
        return
    log[row, LOG_START] = replica.time_s[CLOCK] + replica.time_s[FIRST_S]
    log[row, LOG_DURATION] = replica.time_s[FLIGHT_S] - replica.time_s[FIRST_S]
    log[row, LOG_ITERATIONS] = counts[BATCH] - 1
    for i in range(WORKS):
        log[row, LOG_WORK + i] = 0.0
    context, longest = _sum_later(requests, replica)
    log[row, LOG_DECODES], log[row, LOG_CONTEXT] = counts[PARTIAL], context
    log[row, LOG_LONGEST] = longest
    if log.shape[1] > BRIEF:
        for column in range(BRIEF, log.shape[1]):
            log[row, column] = log[row - 1, column]
        log[row, LOG_HELD] += counts[PARTIAL]
    counts[LOGGED] += 1


@compiled
def end_batch(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """A batch is over: tokens for all of it, answers, and the others wait again."""
    counts, start_s = replica.counts, replica.time_s[CLOCK]
    if rule.log_columns > 0:
        _write_later(requests, replica)
    pass_time(replica, replica.time_s[FLIGHT_S])
    seconds = replica.time_s[CLOCK] - start_s
    first_s = start_s + replica.time_s[FIRST_S] if rule.until == FIRST else replica.time_s[CLOCK]
    batch = counts[PARTIAL]
    counts[PARTIAL] = 0
    for i in range(batch):
        request = replica.partial[i]
        tokens = min(counts[BATCH], requests.output[request] - requests.generated[request])
        requests.gpu_s[request] += seconds
        if requests.kv[request] == 0:
            requests.prefill_s[request] += replica.time_s[FIRST_S]
        if requests.generated[request] == 0:
            requests.first_token_s[request] = first_s
        requests.kv[request] += replica.chunk[i] + tokens - 1
        requests.generated[request] += tokens
        if requests.generated[request] == requests.output[request]:
            counts[PAUSED] -= taken(requests, rule, request, 0)
            requests.kv[request] = 0
            finish(requests, replica, rule, request)
        else:
            if rule.moves:
                set_key(requests, replica, rule, request, False)
            push_waiting(requests, replica, request)
