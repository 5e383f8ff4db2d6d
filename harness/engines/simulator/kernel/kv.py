"""KV blocks of a group: what its requests take, and how decoding ones come to need more.

A request for which KV is set aside takes all of that from the start, and grows beyond it only.
"""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import Group, Records

# Value of the field `grows` for a request that ends within what is set aside for it
NEVER = 1 << 62


@compiled
def blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`; in floating point, which is exact here and divides faster."""
    return int((tokens + block_tokens - 1) / block_tokens)


@compiled
def taken(requests: Records, group: Group, request: int, tokens: int) -> int:
    """Blocks that a request takes while it holds `tokens`: those, or what is set aside."""
    return blocks(max(tokens, requests[request].reserved), group.block_tokens)


@compiled
def held_blocks(requests: Records, group: Group, request: int) -> int:
    """Blocks that a request takes which does not decode."""
    held = requests[request].kv
    return taken(requests, group, request, held) if held > 0 else 0


@compiled
def begin_growth(requests: Records, group: Group, request: int) -> None:
    """Note from which decode step on a request needs new blocks; it has just joined."""
    kv = requests[request].kv
    aside = blocks(requests[request].reserved, group.block_tokens) * group.block_tokens
    grows = group.steps + max(0, aside - kv)
    if grows == group.steps:
        group.phase[(kv - group.steps) % group.block_tokens] += 1
        group.growing += 1
    elif grows < requests[request].ends:
        group.covered += 1
    else:
        grows = NEVER
    requests[request].grows = grows


@compiled
def end_growth(requests: Records, group: Group, request: int) -> None:
    """A request leaves the decoding ones; its progress has been written back."""
    if requests[request].grows <= group.steps:
        group.phase[(requests[request].kv - group.steps) % group.block_tokens] -= 1
        group.growing -= 1
    elif requests[request].grows != NEVER:
        group.covered -= 1


@compiled
def uncover(requests: Records, group: Group) -> None:
    """Decode steps have passed: requests that have used up what was set aside now grow."""
    for i in range(group.n_decoding):
        if requests[group.decoding[i]].grows == group.steps:
            # What is set aside is whole blocks, so the next token needs a new one.
            group.phase[-group.steps % group.block_tokens] += 1
            group.growing += 1
            group.covered -= 1


@compiled
def steps_covered(requests: Records, group: Group, most: int) -> int:
    """Decode steps, at most `most`, until a request has used up what was set aside for it."""
    for i in range(group.n_decoding):
        left = requests[group.decoding[i]].grows - group.steps
        if left > 0:
            most = min(most, left)
    return most


@compiled
def growth(group: Group) -> int:
    """Blocks that the next decode step needs."""
    return int(group.phase[-group.steps % group.block_tokens])


@compiled
def iterations_that_fit(group: Group, most: int) -> int:
    """Decode steps, at most `most`, until the KV is full."""
    free = group.capacity_blocks - group.used_blocks
    if (most // group.block_tokens + 1) * group.growing <= free:
        return most
    cycles = free // max(1, group.growing)
    fit = min(most, cycles * group.block_tokens)
    free -= cycles * group.growing
    while fit < most:
        free -= group.phase[-(group.steps + fit) % group.block_tokens]
        if free < 0:
            break
        fit += 1
    return int(fit)


@compiled
def take_blocks(group: Group, iterations: int) -> None:
    """Take the blocks that so many decode steps of all need."""
    group.used_blocks += iterations // group.block_tokens * group.growing
    for j in range(iterations % group.block_tokens):
        group.used_blocks += group.phase[-(group.steps + j) % group.block_tokens]
