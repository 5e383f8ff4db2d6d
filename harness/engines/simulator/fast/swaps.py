"""KV of a replica's requests that goes to host memory and comes back, and how long that takes."""

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    HOST_TOKENS,
    SWAPPING,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.state import HOST, SWAP_BYTES, SWAP_S, SWAPS, RequestArrays


@inlined
def _copy(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int, tokens: int
) -> None:
    """KV of so many tokens moves before the next iteration, or during it."""
    seconds = tokens * rule.swap_token_s
    requests.swap[request, SWAP_BYTES] += tokens * rule.token_bytes
    requests.swap[request, SWAP_S] += seconds
    replica.time_s[SWAPPING] += seconds


@compiled
def swap_out(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """A request that is preempted has its KV kept in host memory, if there is room."""
    held = requests.kv[request]
    if held > rule.host_tokens - replica.counts[HOST_TOKENS]:
        return
    _copy(requests, replica, rule, request, held)
    requests.swap[request, HOST] = held
    requests.swap[request, SWAPS] += 1
    replica.counts[HOST_TOKENS] += held


@compiled
def swap_in(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """A request's KV comes back from host memory."""
    held = int(requests.swap[request, HOST])
    _copy(requests, replica, rule, request, held)
    requests.kv[request] = held
    requests.swap[request, HOST] = 0.0
    replica.counts[HOST_TOKENS] -= held


@inlined
def with_swaps(replica: ReplicaArrays, rule: ReplicaRule, seconds: float) -> float:
    """Seconds of the iteration that begins now, with what is copied before or during it."""
    swapping_s = float(replica.time_s[SWAPPING])
    replica.time_s[SWAPPING] = 0.0
    if rule.swap_overlaps:
        return max(seconds, swapping_s)
    return seconds + swapping_s
