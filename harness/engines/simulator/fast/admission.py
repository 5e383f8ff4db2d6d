"""What a lane's next iteration computes of prompts: whole ones or chunks."""

from harness.costs.compiled import inlined
from harness.engines.simulator.fast.heaps import (
    pop_waiting,
)
from harness.engines.simulator.fast.holders import (
    blocks,
    evict_last,
    start,
)
from harness.engines.simulator.fast.lane import (
    DECODING,
    PARTIAL,
    USED_BLOCKS,
    WAITING,
    LaneArrays,
    LaneRule,
    RequestArrays,
)


@inlined
def admit_whole(requests: RequestArrays, lane: LaneArrays, rule: LaneRule) -> int:
    """Move whole prompts from the waiting heap into `partial`; fills `work`, returns how many."""
    counts, work = lane.counts, lane.work
    work[:] = 0.0
    admitted = tokens = longest = 0
    while counts[WAITING] > 0 and counts[DECODING] + admitted < rule.max_requests:
        request = lane.waiting[0]
        context = requests.prompt[request] + requests.generated[request]
        total, most = tokens + context, max(longest, context)
        padded = (admitted + 1) * most if rule.pads else total
        needed = blocks(context, rule.block_tokens)
        if padded > rule.max_tokens or (rule.pads and padded - total > rule.max_padding):
            break
        if rule.capacity_blocks - counts[USED_BLOCKS] - needed < rule.spare_blocks:
            break
        pop_waiting(requests, lane)
        start(requests, lane, request)
        counts[USED_BLOCKS] += needed
        lane.partial[admitted] = request
        lane.chunk[admitted] = context
        admitted, tokens, longest = admitted + 1, total, most
        work[2] = padded
        work[3] = admitted * float(most) * most if rule.pads else work[3] + float(context) * context
    work[0], work[1] = admitted, tokens
    counts[PARTIAL] = admitted
    return admitted


@inlined
def continue_partial(requests: RequestArrays, lane: LaneArrays, rule: LaneRule, budget: int) -> int:
    """Give the partly prefilled their chunks, evicting from behind; returns the budget left."""
    counts = lane.counts
    i = 0
    while i < counts[PARTIAL]:
        request = lane.partial[i]
        held = requests.kv[request]
        tokens = min(requests.prompt[request] + requests.generated[request] - held, budget)
        needed = blocks(held + tokens, rule.block_tokens) - blocks(held, rule.block_tokens)
        if needed > rule.capacity_blocks - counts[USED_BLOCKS]:
            evict_last(requests, lane, rule)
            continue
        counts[USED_BLOCKS] += needed
        lane.chunk[i] = tokens
        budget -= tokens
        i += 1
    return budget


@inlined
def admit_chunked(requests: RequestArrays, lane: LaneArrays, rule: LaneRule, budget: int) -> None:
    """Newcomers behind the partly prefilled ones; only the last may be cut by the budget."""
    counts = lane.counts
    while (
        counts[WAITING] > 0
        and budget > 0
        and counts[DECODING] + counts[PARTIAL] < rule.max_requests
    ):
        request = lane.waiting[0]
        context = requests.prompt[request] + requests.generated[request]
        free = rule.capacity_blocks - counts[USED_BLOCKS]
        if free - blocks(context, rule.block_tokens) < rule.spare_blocks:
            break
        pop_waiting(requests, lane)
        start(requests, lane, request)
        tokens = min(context, budget)
        counts[USED_BLOCKS] += blocks(tokens, rule.block_tokens)
        lane.partial[counts[PARTIAL]] = request
        lane.chunk[counts[PARTIAL]] = tokens
        counts[PARTIAL] += 1
        budget -= tokens


@inlined
def sum_chunks(requests: RequestArrays, lane: LaneArrays) -> None:
    """Fill `work` from the chunks chosen."""
    work = lane.work
    work[:] = 0.0
    for i in range(lane.counts[PARTIAL]):
        tokens = lane.chunk[i]
        if tokens > 0:
            work[0] += 1
            work[1] += tokens
            work[3] += tokens * (2.0 * (requests.kv[lane.partial[i]] + tokens) - tokens)
    work[2] = work[1]
