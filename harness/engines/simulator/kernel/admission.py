"""What a group's next iteration computes of prompts: whole prompts, or chunks of them."""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.kv import growth, taken
from harness.engines.simulator.kernel.layout import Group, Records
from harness.engines.simulator.kernel.queues import pop_waiting
from harness.engines.simulator.kernel.running import make_room_to_decode, preempt_last, start
from harness.engines.state import Floats, Ints


@compiled
def no_work(group: Group) -> None:
    """The iteration computes no prompts so far."""
    group.work_requests = group.work_tokens = group.work_padded = 0
    group.work_attended = 0.0


@compiled
def admit_whole(requests: Records, group: Group, queue: Ints) -> int:
    """Move whole prompts from the waiting heap into `partial`; sums them up, returns how many."""
    no_work(group)
    admitted = tokens = longest = 0
    while group.n_waiting > 0 and group.n_decoding + admitted < group.max_requests:
        request = queue[group.queue_at]
        context = requests[request].prompt + requests[request].generated
        total, most = tokens + context, max(longest, context)
        padded = (admitted + 1) * most if group.pads else total
        needed = taken(requests, group, request, context)
        if padded > group.max_tokens or (group.pads and padded - total > group.max_padding):
            break
        if group.capacity_blocks - group.used_blocks - needed < group.watermark_blocks:
            break
        pop_waiting(requests, group, queue)
        start(requests, group, request)
        group.used_blocks += needed
        group.partial[admitted] = request
        group.chunk[admitted] = context
        admitted, tokens, longest = admitted + 1, total, most
        group.work_padded = padded
        if group.pads:
            group.work_attended = admitted * float(most) * most
        else:
            group.work_attended += float(context) * context
    group.work_requests, group.work_tokens = admitted, tokens
    group.n_partial = admitted
    return admitted


@compiled
def choose_chunks(requests: Records, pieces: Floats, group: Group, queue: Ints) -> None:
    """Decodes first, then requests in mid-prompt, then newcomers."""
    make_room_to_decode(requests, pieces, group, queue)
    needed = growth(group)
    group.used_blocks += needed
    left = _continue_partial(requests, pieces, group, queue, group.max_tokens - group.n_decoding)
    if not group.preempted:
        _admit_chunked(requests, group, queue, left)
    group.used_blocks -= needed


@compiled
def _continue_partial(
    requests: Records, pieces: Floats, group: Group, queue: Ints, budget: int
) -> int:
    """Give partly prefilled requests their chunks, preempting from behind.

    Returns the budget left.
    """
    i = 0
    while i < group.n_partial:
        request = group.partial[i]
        held = requests[request].kv
        tokens = min(requests[request].prompt + requests[request].generated - held, budget)
        needed = taken(requests, group, request, held + tokens)
        needed -= taken(requests, group, request, held)
        if needed > group.capacity_blocks - group.used_blocks:
            preempt_last(requests, pieces, group, queue)
            continue
        group.used_blocks += needed
        group.chunk[i] = tokens
        budget -= tokens
        i += 1
    return budget


@compiled
def _admit_chunked(requests: Records, group: Group, queue: Ints, budget: int) -> None:
    """Admit newcomers behind the partly prefilled ones; the budget may cut only the last."""
    while (
        group.n_waiting > 0
        and budget > 0
        and group.n_decoding + group.n_partial < group.max_requests
    ):
        request = queue[group.queue_at]
        context = requests[request].prompt + requests[request].generated
        free = group.capacity_blocks - group.used_blocks
        if free - taken(requests, group, request, context) < group.watermark_blocks:
            break
        pop_waiting(requests, group, queue)
        start(requests, group, request)
        tokens = min(context, budget)
        group.used_blocks += taken(requests, group, request, tokens)
        group.partial[group.n_partial] = request
        group.chunk[group.n_partial] = tokens
        group.n_partial += 1
        budget -= tokens


@compiled
def sum_chunks(requests: Records, group: Group) -> None:
    """Sum up what the chunks compute."""
    no_work(group)
    for i in range(group.n_partial):
        tokens = group.chunk[i]
        if tokens > 0:
            group.work_requests += 1
            group.work_tokens += tokens
            held = requests[group.partial[i]].kv
            group.work_attended += tokens * (2.0 * (held + tokens) - tokens)
    group.work_padded = group.work_tokens
