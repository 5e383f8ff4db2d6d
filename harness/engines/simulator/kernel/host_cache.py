"""Contents in host memory that calls of an LLM read when they begin: LoRA adapters, KV of contexts.

A content that is not there is loaded from disk, or a context is computed again. What makes room is
what is wanted least; among equals, what was used the longest time ago.
"""

from typing import NamedTuple

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import Record, Records
from harness.engines.state import Floats, Ints

NOT_WANTED = 1 << 40
"""The value of `wanted` of a content that no policy asks for."""

NOT_BEGUN, WARM, LOADING, COLD = range(4)
"""How a call has found its content when it first began."""

CONTENT = np.dtype(
    [
        ("size", np.float64),
        ("ready_s", np.float64),  # when it is in host memory; infinite while it is on disk alone
        ("used_s", np.float64),
        ("wanted", np.int64),  # rank; the lowest is wanted most
    ],
    align=True,
)

CACHE = np.dtype(
    [
        ("capacity", np.float64),
        ("used", np.float64),
        ("load_s", np.float64),  # from disk, by unit of size
        ("copy_s", np.float64),  # to the GPU, by unit of what is read
        ("grows", np.bool_),  # whether a content is a context, which grows and can be computed
        ("loads_until_s", np.float64),  # the load that `want` has begun
    ],
    align=True,
)


class HeldRecords(NamedTuple):
    """The cache of a run (one record; none without), its contents, and by request what is read.

    `content` is the one that a call reads (-1: none), `reads` how much of it, `found` how the call
    found it when it first began, and `waited_s` how much longer its iteration took.
    """

    cache: Records = np.zeros(0, CACHE)
    contents: Records = np.zeros(0, CONTENT)
    content: Ints = np.zeros(0, np.int64)
    reads: Ints = np.zeros(0, np.int64)
    found: Ints = np.zeros(0, np.int64)
    waited_s: Floats = np.zeros(0)


@compiled
def _yields(content: Record, wanted: int, used_s: float, now_s: float) -> bool:
    """Whether a content in host memory makes room for one so wanted and last used then."""
    if content.ready_s > now_s:
        return False
    return bool(content.wanted > wanted or (content.wanted == wanted and content.used_s < used_s))


@compiled
def _make_room(held: HeldRecords, size: float, wanted: int, used_s: float, now_s: float) -> bool:
    """Evict what yields until there is room for so much; nothing where that is not enough."""
    cache, contents = held.cache[0], held.contents
    room = cache.capacity - cache.used
    for i in range(len(contents)):
        if room < size and _yields(contents[i], wanted, used_s, now_s):
            room += contents[i].size
    if room < size:
        return False
    while cache.capacity - cache.used < size:
        victim = -1
        for i in range(len(contents)):
            if _yields(contents[i], wanted, used_s, now_s) and (
                victim < 0
                or _yields(contents[i], contents[victim].wanted, contents[victim].used_s, now_s)
            ):
                victim = i
        cache.used -= contents[victim].size
        contents[victim].ready_s = np.inf
    cache.used += size
    return True


@compiled
def read(held: HeldRecords, request: int, now_s: float, waited_s: float) -> tuple[int, float]:
    """A call begins: tokens of its prompt that need not be computed, and seconds to get them.

    An adapter is waited for, a context that is not in host memory is computed. Other calls of the
    iteration have waited for `waited_s` already: adapters are loaded one after the other, and one
    that several calls read is loaded once.
    """
    cache, number = held.cache[0], held.content[request]
    if number < 0 or held.reads[request] == 0:
        return 0, 0.0
    content, reads = held.contents[number], held.reads[request]
    found = WARM if content.ready_s <= now_s else LOADING if content.ready_s < np.inf else COLD
    content.used_s = now_s
    seconds, spared, at_s = 0.0, 0, now_s + waited_s
    if found == LOADING and not cache.grows:
        seconds = max(0.0, content.ready_s - at_s)
    elif found == COLD and not cache.grows:
        seconds = content.size * cache.load_s
        if _make_room(held, content.size, -1, now_s, now_s):
            content.ready_s = at_s + seconds
    if found == WARM or not cache.grows:
        seconds += reads * cache.copy_s
        spared = reads if cache.grows else 0
    if held.found[request] == NOT_BEGUN:
        held.found[request], held.waited_s[request] = found, seconds
    return spared, seconds


@compiled
def read_all(held: HeldRecords, requests: Records, group: Record) -> None:
    """The whole prompts in `partial` begin: the work that is summed up is less what is cached."""
    waited_s = 0.0
    for i in range(group.n_partial):
        request = group.partial[i]
        if group.chunk[i] > 0:
            spared, seconds = read(held, request, group.clock_s, waited_s)
            waited_s += seconds
            spared = min(spared, group.chunk[i] - 1)
            group.work_tokens -= spared
            group.work_padded -= spared
            group.work_attended -= float(spared) * spared
    group.swapping_s += waited_s


@compiled
def store(held: HeldRecords, request: int, tokens: int, now_s: float) -> None:
    """A call is answered: its context is written to host memory and, in any case, to disk.

    Whatever is there makes room for it, contents that are wanted last: the next call of the
    application may come at once.
    """
    number = held.content[request]
    if number < 0 or not held.cache[0].grows:
        return
    cache, content = held.cache[0], held.contents[number]
    if content.ready_s < np.inf:
        cache.used -= content.size
        content.ready_s = np.inf
    content.size = max(content.size, tokens)
    content.used_s = now_s
    if _make_room(held, content.size, -1, now_s, now_s):
        content.ready_s = now_s


@compiled
def want(held: HeldRecords, order: Ints, now_s: float, share: float) -> int:
    """Rank contents as wanted in this order, the others not at all.

    Returns the first that is not in host memory, of those that fit in a share of it together, when
    it begins to load; -1 where there is none, no room, or the one before still loads. What calls
    wait for is loaded beside it, and neither slows the other down.
    """
    cache, contents = held.cache[0], held.contents
    for i in range(len(contents)):
        contents[i].wanted = NOT_WANTED
    for rank in range(len(order)):
        contents[order[rank]].wanted = rank
    total = 0.0
    for rank in range(len(order)):
        content = contents[order[rank]]
        total += content.size
        if total > share * cache.capacity:
            return -1
        if content.size > 0 and content.ready_s == np.inf and cache.loads_until_s <= now_s:
            if not _make_room(held, content.size, rank, now_s, now_s):
                return -1
            content.ready_s = cache.loads_until_s = now_s + content.size * cache.load_s
            return int(order[rank])
    return -1
