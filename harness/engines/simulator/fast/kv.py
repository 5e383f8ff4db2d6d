"""KV blocks of a replica: what its holders take, and how decoding ones come to need more.

Who has KV set aside takes that much from the start and grows only beyond it.
"""

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    COVERED,
    DECODING,
    GROWING,
    STEPS,
    USED_BLOCKS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.state import RequestArrays

# Value of RequestArrays.grows for a request that ends within what is set aside for it
NEVER = 1 << 62


@inlined
def blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`."""
    return (tokens + block_tokens - 1) // block_tokens


@inlined
def taken(requests: RequestArrays, rule: ReplicaRule, request: int, tokens: int) -> int:
    """Blocks that a request takes while it holds `tokens`: those, or what is set aside."""
    return blocks(max(tokens, requests.reserved[request]), rule.block_tokens)


@inlined
def begin_growth(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """A request has joined the decoding ones: from when on does it need new blocks?"""
    counts, kv = replica.counts, requests.kv[request]
    aside = blocks(requests.reserved[request], rule.block_tokens) * rule.block_tokens
    grows = counts[STEPS] + max(0, aside - kv)
    if grows == counts[STEPS]:
        replica.phase[(kv - counts[STEPS]) % rule.block_tokens] += 1
        counts[GROWING] += 1
    elif grows < requests.ends[request]:
        counts[COVERED] += 1
    else:
        grows = NEVER
    requests.grows[request] = grows


@inlined
def end_growth(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int
) -> None:
    """A request leaves the decoding ones; its progress is written back."""
    counts = replica.counts
    if requests.grows[request] <= counts[STEPS]:
        replica.phase[(requests.kv[request] - counts[STEPS]) % rule.block_tokens] -= 1
        counts[GROWING] -= 1
    elif requests.grows[request] != NEVER:
        counts[COVERED] -= 1


@compiled
def uncover(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Decode steps have passed: who has used up what was set aside grows block by block."""
    counts = replica.counts
    for i in range(counts[DECODING]):
        if requests.grows[replica.decoding[i]] == counts[STEPS]:
            # What is set aside is whole blocks, so the next token needs a new one.
            replica.phase[-counts[STEPS] % rule.block_tokens] += 1
            counts[GROWING] += 1
            counts[COVERED] -= 1


@compiled
def steps_covered(requests: RequestArrays, replica: ReplicaArrays, most: int) -> int:
    """Decode steps, at most `most`, until somebody has used up what was set aside for it."""
    counts = replica.counts
    for i in range(counts[DECODING]):
        left = requests.grows[replica.decoding[i]] - counts[STEPS]
        if left > 0:
            most = min(most, left)
    return most


@inlined
def iterations_that_fit(replica: ReplicaArrays, rule: ReplicaRule, most: int) -> int:
    """Decode iterations, at most `most`, until the KV is full."""
    free = rule.capacity_blocks - replica.counts[USED_BLOCKS]
    if (most // rule.block_tokens + 1) * replica.counts[GROWING] <= free:
        return most
    cycles = free // max(1, replica.counts[GROWING])
    fit = min(most, cycles * rule.block_tokens)
    free -= cycles * replica.counts[GROWING]
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
    counts[USED_BLOCKS] += iterations // rule.block_tokens * counts[GROWING]
    for j in range(iterations % rule.block_tokens):
        counts[USED_BLOCKS] += replica.phase[-(counts[STEPS] + j) % rule.block_tokens]
