"""What a replica's next iteration computes of prompts: whole ones or chunks."""

from harness.costs.compiled import inlined
from harness.engines.simulator.fast.arrays import (
    DECODING,
    PARTIAL,
    USED_BLOCKS,
    WAITING,
    WORK_ATTENDED,
    WORK_PADDED,
    WORK_REQUESTS,
    WORK_TOKENS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.heaps import pop_waiting
from harness.engines.simulator.fast.holders import preempt_last, start
from harness.engines.simulator.fast.kv import taken
from harness.engines.state import RequestArrays


@inlined
def admit_whole(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> int:
    """Move whole prompts from the waiting heap into `partial`; fills `work`, returns how many."""
    counts, work = replica.counts, replica.work
    work[:] = 0.0
    admitted = tokens = longest = 0
    while counts[WAITING] > 0 and counts[DECODING] + admitted < rule.max_requests:
        request = replica.waiting[0]
        context = requests.prompt[request] + requests.generated[request]
        total, most = tokens + context, max(longest, context)
        padded = (admitted + 1) * most if rule.pads else total
        needed = taken(requests, rule, request, context)
        if padded > rule.max_tokens or (rule.pads and padded - total > rule.max_padding):
            break
        if rule.capacity_blocks - counts[USED_BLOCKS] - needed < rule.watermark_blocks:
            break
        pop_waiting(requests, replica)
        start(requests, replica, request)
        counts[USED_BLOCKS] += needed
        replica.partial[admitted] = request
        replica.chunk[admitted] = context
        admitted, tokens, longest = admitted + 1, total, most
        work[WORK_PADDED] = padded
        work[WORK_ATTENDED] = (
            admitted * float(most) * most
            if rule.pads
            else work[WORK_ATTENDED] + float(context) * context
        )
    work[WORK_REQUESTS], work[WORK_TOKENS] = admitted, tokens
    counts[PARTIAL] = admitted
    return admitted


@inlined
def continue_partial(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, budget: int
) -> int:
    """Give the partly prefilled their chunks, preempting from behind; returns the budget left."""
    counts = replica.counts
    i = 0
    while i < counts[PARTIAL]:
        request = replica.partial[i]
        held = requests.kv[request]
        tokens = min(requests.prompt[request] + requests.generated[request] - held, budget)
        needed = taken(requests, rule, request, held + tokens)
        needed -= taken(requests, rule, request, held)
        if needed > rule.capacity_blocks - counts[USED_BLOCKS]:
            preempt_last(requests, replica, rule)
            continue
        counts[USED_BLOCKS] += needed
        replica.chunk[i] = tokens
        budget -= tokens
        i += 1
    return budget


@inlined
def admit_chunked(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, budget: int
) -> None:
    """Newcomers behind the partly prefilled ones; only the last may be cut by the budget."""
    counts = replica.counts
    while (
        counts[WAITING] > 0
        and budget > 0
        and counts[DECODING] + counts[PARTIAL] < rule.max_requests
    ):
        request = replica.waiting[0]
        context = requests.prompt[request] + requests.generated[request]
        free = rule.capacity_blocks - counts[USED_BLOCKS]
        if free - taken(requests, rule, request, context) < rule.watermark_blocks:
            break
        pop_waiting(requests, replica)
        start(requests, replica, request)
        tokens = min(context, budget)
        counts[USED_BLOCKS] += taken(requests, rule, request, tokens)
        replica.partial[counts[PARTIAL]] = request
        replica.chunk[counts[PARTIAL]] = tokens
        counts[PARTIAL] += 1
        budget -= tokens


@inlined
def sum_chunks(requests: RequestArrays, replica: ReplicaArrays) -> None:
    """Fill `work` from the chunks chosen."""
    work = replica.work
    work[:] = 0.0
    for i in range(replica.counts[PARTIAL]):
        tokens = replica.chunk[i]
        if tokens > 0:
            work[WORK_REQUESTS] += 1
            work[WORK_TOKENS] += tokens
            work[WORK_ATTENDED] += tokens * (
                2.0 * (requests.kv[replica.partial[i]] + tokens) - tokens
            )
    work[WORK_PADDED] = work[WORK_TOKENS]
