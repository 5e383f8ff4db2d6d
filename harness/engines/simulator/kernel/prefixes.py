"""Full blocks of KV that requests share, and that stay while there is room.

What `core.prefix_ledger.PrefixLedger` does, in compiled code. A content is a number: the
request that owns the last token of a block, and which block of its context it is. Contexts that
begin alike have the same contents, so nothing is hashed but that number. Blocks without a holder
are a ring, least recently used first, which begins and ends at the first place of a group's part of
the blocks; that of the first group is place 0, so 0 is no block.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import Record, Records
from harness.engines.simulator.kernel.order import decodes

NUMBER_BITS = 20
"""In a content, the owner is above so many bits of the number of the block."""

SIDE = 8
"""Blocks in a row of one context, which lie in neighbouring buckets."""

_NONE = 0
_SPREAD, _HALF = np.uint64(11400714819323198485), np.uint64(32)
_ALL_TOKENS = 1 << 62

BLOCK = np.dtype(
    [
        ("content", np.int64),
        ("users", np.int32),  # requests that hold it
        ("older", np.int32),  # neighbours in the ring
        ("newer", np.int32),  # of a block without a content, the next such one
        ("next", np.int32),  # in its bucket
        ("first", np.int32),  # in the bucket of this number
    ],
    align=True,
)


class CacheRecords(NamedTuple):
    """The caches of all groups.

    Every group has its part of `blocks`, of more places than it has blocks, and of `tables`: a row
    for each request that may hold KV, of the full blocks that it holds and of one place more.
    `contexts` says, by request, which contexts begin alike.
    """

    blocks: Records
    tables: NDArray[np.int32]
    contexts: Records


@compiled
def _row_at(group: Record, row: int) -> int:
    """Where a row of the tables begins."""
    return int(group.first_row + row * group.row_blocks)


@compiled
def _next_row(group: Record) -> int:
    """The row of the next request: one that was left, or the first that no request has had."""
    if group.row_left > 0:
        return int(group.row_left - 1)
    return int(group.n_rows_had)


@compiled
def _link_at(group: Record, row: int) -> int:
    """Where a row that has been left says which one is taken after it: in its last place."""
    return _row_at(group, row + 1) - 1


@compiled
def _owner(cache: CacheRecords, request: int, end: int) -> tuple[int, int]:
    """The request that owns token number `end` of a context, and up to which token that holds."""
    until = _ALL_TOKENS
    while end <= cache.contexts[request].prefix_tokens:
        until = min(until, cache.contexts[request].prefix_tokens)
        request = cache.contexts[request].prefix
    return request, until


@compiled
def _bucket(group: Record, content: int) -> int:
    """The bucket of a content."""
    spread = (np.uint64(content // SIDE) * _SPREAD) >> _HALF
    side = (spread * np.uint64(group.buckets // SIDE)) >> _HALF
    return int(group.first_block + np.int64(side) * SIDE + content % SIDE)


@compiled
def _put(cache: CacheRecords, group: Record, content: int) -> int:
    """A block has become full: it has this content, behind equal ones, and one holder."""
    blocks, block = cache.blocks, int(group.unnamed)
    if block == _NONE:
        group.n_named += 1
        block = int(group.first_block + group.n_named)
    else:
        group.unnamed = blocks[block].newer
    blocks[block].content, blocks[block].users, blocks[block].next = content, 1, _NONE
    bucket = _bucket(group, content)
    last = blocks[bucket].first
    if last == _NONE:
        blocks[bucket].first = block
        return block
    while blocks[last].next != _NONE:
        last = blocks[last].next
    blocks[last].next = block
    return block


@compiled
def _evict(cache: CacheRecords, group: Record) -> None:
    """Empty the block that has been without a holder for longest."""
    blocks = cache.blocks
    block = blocks[group.first_block].newer
    _leave_ring(blocks, block)
    bucket, before = _bucket(group, blocks[block].content), _NONE
    at = blocks[bucket].first
    while at != block:
        before, at = at, blocks[at].next
    if before == _NONE:
        blocks[bucket].first = blocks[block].next
    else:
        blocks[before].next = blocks[block].next
    blocks[block].newer = group.unnamed
    group.unnamed = block
    group.blank_blocks += 1


@compiled
def _leave_ring(blocks: Records, block: int) -> None:
    """A block gets a holder, or loses its content."""
    older, newer = blocks[block].older, blocks[block].newer
    blocks[older].newer, blocks[newer].older = newer, older


@compiled
def _enter_ring(blocks: Records, end: int, block: int) -> None:
    """A block has lost its last holder: it is the most recently used one."""
    last = blocks[end].older
    blocks[block].older, blocks[block].newer = last, end
    blocks[last].newer = blocks[end].older = block


@compiled
def find(cache: CacheRecords, group: Record, request: int, context: int) -> tuple[int, int]:
    """Find what is cached of the beginning of a context, but for its last token.

    Returns how many blocks, which the row has that is next, and how many of them have holders.
    """
    row, of_block = _row_at(group, _next_row(group)), group.block_tokens
    found = held = until = 0
    owner = request
    for number in range((context - 1) // of_block):
        if (number + 1) * of_block > until:
            owner, until = _owner(cache, request, (number + 1) * of_block)
        content = (owner << NUMBER_BITS) + number
        block = cache.blocks[_bucket(group, content)].first
        while block != _NONE and cache.blocks[block].content != content:
            block = cache.blocks[block].next
        if block == _NONE:
            break
        cache.tables[row + number] = block
        held += cache.blocks[block].users > 0
        found += 1
    return found, held


@compiled
def begin(cache: CacheRecords, group: Record, request: int, found: int) -> None:
    """A request without KV holds the blocks that were just found."""
    blocks, row = cache.blocks, _row_at(group, _next_row(group))
    cache.contexts[request].row = _next_row(group)
    if group.row_left > 0:
        group.row_left = cache.tables[_link_at(group, group.row_left - 1)]
    else:
        group.n_rows_had += 1
    for number in range(found):
        block = cache.tables[row + number]
        if blocks[block].users == 0:
            _leave_ring(blocks, block)
        else:
            group.shared_blocks += 1
        blocks[block].users += 1


@compiled
def hold(cache: CacheRecords, group: Record, request: int, before: int, after: int) -> None:
    """A request holds more tokens: blocks are taken, and full ones get their contents."""
    of_block, row = group.block_tokens, _row_at(group, cache.contexts[request].row)
    for _ in range((after + of_block - 1) // of_block - (before + of_block - 1) // of_block):
        if group.blank_blocks <= 0:
            _evict(cache, group)
        group.blank_blocks -= 1
    owner, until = request, 0
    for number in range(before // of_block, after // of_block):
        if (number + 1) * of_block > until:
            owner, until = _owner(cache, request, (number + 1) * of_block)
        cache.tables[row + number] = _put(cache, group, (owner << NUMBER_BITS) + number)


@compiled
def grow(cache: CacheRecords, requests: Records, group: Record, steps: int) -> None:
    """All decoding requests hold the tokens of so many steps, which the group has not counted yet.

    Those of the first `grown` of them they hold already.
    """
    of_block, more = group.block_tokens, steps - group.grown
    for i in range(group.n_decoding if more > 0 else 0):
        request = group.decoding[i]
        before = requests[request].kv + group.steps + group.grown - requests[request].joined
        in_last = before % of_block
        # Else within its last block, which does not become full.
        if in_last == 0 or in_last + more >= of_block:
            hold(cache, group, request, before, before + more)


@compiled
def free(cache: CacheRecords, group: Record, request: int, held: int) -> int:
    """A request that holds so many tokens holds nothing any more; full blocks keep their contents.

    Returns how many blocks have no holder any more.
    """
    blocks, end = cache.blocks, int(group.first_block)
    row = _row_at(group, cache.contexts[request].row)
    freed = int(held % group.block_tokens > 0)
    group.blank_blocks += freed
    for number in range(held // group.block_tokens - 1, -1, -1):
        block = cache.tables[row + number]
        blocks[block].users -= 1
        if blocks[block].users == 0:
            _enter_ring(blocks, end, block)
            freed += 1
        else:
            group.shared_blocks -= 1
    left = cache.contexts[request].row
    cache.tables[_link_at(group, left)] = group.row_left
    group.row_left = left + 1
    return freed


@compiled
def steps_until_found(
    cache: CacheRecords, requests: Records, group: Record, request: int, most: int
) -> int:
    """Decode steps, at most `most`, until a waiting request may find more than it does now.

    That is when the first block that it misses becomes full, of which its owner is now decoding.
    """
    end = (group.found_blocks + 1) * group.block_tokens
    owner, _ = _owner(cache, request, end)
    if not decodes(requests, group, owner):
        return most
    held = requests[owner].kv + group.steps - requests[owner].joined
    # Requests look for it when the iteration has begun that fills it.
    return int(min(most, max(1, end - held - 1)))
