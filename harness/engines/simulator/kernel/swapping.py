"""KV that goes to host memory when its request is preempted, and comes back."""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import Record, Records
from harness.engines.simulator.kernel.order import before
from harness.engines.state import HOST, SWAP_BYTES, SWAP_S, SWAPS, Floats, Ints


@compiled
def swap_out(requests: Records, swap: Floats, group: Record, request: int) -> None:
    """A request that is preempted has its KV kept in host memory, if there is room."""
    held = requests[request].kv
    if held <= group.host_tokens - group.host_used_tokens:
        _copy(swap, group, request, held)
        swap[request, HOST] = held
        swap[request, SWAPS] += 1
        group.host_used_tokens += held
        group.n_swapped += 1


@compiled
def swap_in(requests: Records, swap: Floats, group: Record, request: int) -> None:
    """A request's KV comes back from host memory."""
    held = int(swap[request, HOST])
    _copy(swap, group, request, held)
    requests[request].kv = held
    swap[request, HOST] = 0.0
    group.host_used_tokens -= held
    group.n_swapped -= 1


@compiled
def _copy(swap: Floats, group: Record, request: int, tokens: int) -> None:
    """KV of so many tokens moves before the next iteration, or during it."""
    seconds = tokens * group.swap_token_s
    swap[request, SWAP_BYTES] += tokens * group.token_bytes
    swap[request, SWAP_S] += seconds
    group.swapping_s += seconds


@compiled
def first_swapped(requests: Records, swap: Floats, group: Record, queue: Ints) -> int:
    """Place in the waiting heap of the first request in order with KV in host memory."""
    first, left, i = -1, group.n_swapped, 0
    while left > 0:
        request = queue[group.queue_at + i]
        if swap[request, HOST] > 0:
            left -= 1
            if first < 0 or before(requests, request, queue[group.queue_at + first]):
                first = i
        i += 1
    return first
