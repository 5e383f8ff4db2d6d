"""KV accounting with a prefix cache, as vLLM V1 has it.

A full block has a content, which its tokens and those before them decide. Requests that begin alike
share blocks; a block that no request holds any more stays until its space is needed, the least
recently used first.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Self
from weakref import ref

from harness.core.kv_ledger import KvLedger
from harness.interface.decisions import Reservation
from harness.interface.entities import Content, Request, RequestId, Service, ServiceId

Contents = Callable[[RequestId, int], Content]
"""Names of full blocks by request and number: equal where the contexts are, up to their end."""


_USERS, _NAMED, _UNUSED, _TABLES = range(4)
"""Places in the `parts` of `_Blocks`."""
_Change = tuple[int, Any, Any]
"""A part, a key of it, and the value that it gets there; None for none."""
MOST_STALE = 1000
"""Entries of `freed` beyond twice those that count before it is made anew."""


class _Version:
    """Blocks at some time: the `changes`, last first, lead to it from the version `after` it.

    The one that the blocks are at has no changes, and none after it. One that `is_fixed` is not
    written on.
    """

    __slots__ = ("__weakref__", "after", "changes", "is_fixed")

    def __init__(self) -> None:
        self.changes: list[_Change] = []
        self.after: _Version | None = None
        self.is_fixed = False


class _Blocks:
    """Full blocks of a group, in the version `at`: ledgers copied from one another share them.

    `users` says how many requests hold each block that is held, `named` which blocks have a content
    (oldest first), `unused` when a block without a holder was freed and what is in it, and `tables`
    the blocks of each request. `freed` is a heap of blocks by when they were freed, also of some
    that are held again. `next` is the number of the next block, `frees` how often one was freed.
    `journal` are the changes that lead back to the version `before`, where there is still a ledger
    at that.
    """

    def __init__(self) -> None:
        self.users: dict[int, int] = {}
        self.named: dict[Content, tuple[int, ...]] = {}
        self.unused: dict[int, tuple[int, Content]] = {}
        self.tables: dict[RequestId, tuple[int, ...]] = {}
        self.parts: tuple[dict[Any, Any], ...]
        self.parts = self.users, self.named, self.unused, self.tables
        self.freed: list[tuple[int, int]] = []
        self.next = self.frees = 0
        self.at = _Version()
        self.before: Callable[[], _Version | None] = lambda: None
        self.journal: list[_Change] = []

    def begin(self) -> _Version:
        """A new version, which begins as the one that the blocks are at."""
        before, self.at = self.at, _Version()
        before.after, self.journal = self.at, before.changes
        self.before = ref(before)
        return self.at

    def tidy(self) -> None:
        """Forget what no ledger goes back to, and entries of `freed` that have long been stale."""
        if self.before() is None:
            self.journal.clear()
        if len(self.freed) > 2 * len(self.unused) + MOST_STALE:
            self.freed = [(at, block) for block, (at, _) in self.unused.items()]
            heapify(self.freed)

    def go_to(self, version: _Version) -> None:
        """Make them what they were or are in another version."""
        path, reached = list[_Version](), version
        while reached.after is not None:
            path.append(reached)
            reached = reached.after
        for reached in reversed(path):
            undone, reached.changes = reached.changes, []
            self.journal = self.at.changes = []
            for change in reversed(undone):
                self.set(*change)
            self.at.after, reached.after, self.at = reached, None, reached
        # Others may lead here, which its changes would lead elsewhere.
        version.is_fixed = True

    def set(self, part: int, key: Any, value: Any) -> None:
        """Replace a value in a part; None stands for none."""
        values = self.parts[part]
        self.journal.append((part, key, values.get(key)))
        if value is None:
            del values[key]
        else:
            values[key] = value
            if part == _UNUSED:
                heappush(self.freed, (value[0], key))

    def add(self, request: RequestId, contents: Iterable[Content]) -> None:
        """A request holds new blocks of these contents at the end of its table."""
        table = list(self.tables[request])
        for content in contents:
            table.append(self.next)
            self.set(_USERS, self.next, 1)
            self.set(_NAMED, content, (*self.named.get(content, ()), self.next))
            self.next += 1
        self.set(_TABLES, request, tuple(table))

    def free(self, block: int, content: Content) -> None:
        """No request holds a block any more."""
        self.frees += 1
        self.set(_USERS, block, None)
        self.set(_UNUSED, block, (self.frees, content))

    def evict(self, count: int) -> int:
        """Empty so many blocks, those unused for longest, or all; returns how many."""
        left = count = min(count, len(self.unused))
        while left > 0:
            at, block = heappop(self.freed)
            if block not in self.unused or self.unused[block][0] != at:
                continue
            left -= 1
            content = self.unused[block][1]
            self.set(_UNUSED, block, None)
            others = tuple(other for other in self.named[content] if other != block)
            self.set(_NAMED, content, others or None)
        return count


class PrefixLedger(KvLedger):
    """KV held on one group of one service, with what is cached.

    A request that holds nothing and grows begins with the longest run of cached blocks, from its
    first, of all but the last token of its context; `grow` adds to that. Its full blocks are cached
    as soon as it holds them, so the next request of the same batch may find them. What it frees is
    used again from the end of its context to the beginning, after all that was freed before; blocks
    that are not full are used first. Nothing is promised or lent.
    """

    caches: ClassVar[bool] = True

    def __init__(
        self,
        *,
        capacity_bytes: int,
        services: Mapping[ServiceId, Service],
        block_tokens: int | Mapping[ServiceId, int] = 16,
        contents: Contents,
    ) -> None:
        """An empty ledger. ValueError where it is not of one service."""
        super().__init__(
            capacity_bytes=capacity_bytes, services=services, block_tokens=block_tokens
        )
        if len(services) != 1:
            raise ValueError(
                f"prefixes are cached in groups of one service, this one has {len(services)}"
            )
        (self._service_id,) = services
        self._contents = contents
        self._blank = self.capacity_blocks(self._service_id)
        self._spare_bytes = capacity_bytes - self._blank * self._block_bytes[self._service_id]
        self._shared = 0
        self._blocks = _Blocks()
        self._version = self._blocks.at
        # Most tokens that each request may find cached: all but the last of its context.
        self._findable: dict[RequestId, int] = {}
        # The last request that was looked up, with what it would find: nothing has changed since.
        self._found: tuple[RequestId, list[int]] | None = None

    def copy(self) -> Self:
        """A scratch ledger that starts equal. See `KvLedger.copy`.

        It shares the blocks. To use another ledger than the last costs all that both have changed
        since they were equal, so that copies are for trials: `emptied` makes a ledger that stays.
        """
        self._version.is_fixed = True
        twin = super().copy()
        twin._findable, twin._found = self._findable.copy(), None
        return twin

    def emptied(self) -> Self:
        """An empty ledger of the same size, in which nothing is cached."""
        return type(self)(
            capacity_bytes=self.capacity_bytes,
            services=self.services,
            block_tokens=self._block_tokens,
            contents=self._contents,
        )

    def _read(self) -> _Blocks:
        """The blocks as this ledger has them, not to be changed."""
        if self._blocks.at is not self._version:
            self._blocks.go_to(self._version)
        return self._blocks

    def _write(self) -> _Blocks:
        """The blocks as this ledger has them, to be changed."""
        blocks = self._read()
        if self._version.is_fixed:
            self._version = blocks.begin()
        blocks.tidy()
        return blocks

    def open(self, request: Request, generated_tokens: int = 0) -> None:
        """Start an empty account. See `KvLedger.open`."""
        super().open(request, generated_tokens)
        self._findable[request.id] = request.prompt_tokens + generated_tokens - 1

    def close(self, request: RequestId) -> None:
        """Free the KV of a request, and forget it; its blocks stay cached."""
        super().close(request)
        del self._findable[request]

    def cached_tokens(self, request: RequestId) -> int:
        """Tokens of its context whose KV a request that holds none finds here when it begins."""
        return 0 if self.holding(request) else len(self._hits(request)) * self.block_tokens

    def beginning(self, request: RequestId, blocks: int) -> list[Content]:
        """Names of the first full blocks of the context of a request that holds none."""
        full = (self._findable[request] + 1) // self.block_tokens
        return [self._contents(request, number) for number in range(min(blocks, full))]

    def own_blocks(self, request: RequestId) -> int:
        """Blocks that this request holds and no other does."""
        blocks, is_cut = self._read(), self.holding(request) % self.block_tokens > 0
        return is_cut + sum(blocks.users[it] == 1 for it in blocks.tables.get(request, ()))

    def newcomer_blocks(self, request: RequestId, tokens: int) -> int:
        """Free blocks that a request which holds none takes: what others hold is there already."""
        hits, users = self._hits(request), self._read().users
        return self.blocks(tokens) - sum(block in users for block in hits)

    @property
    def shared_tokens(self) -> int:
        """How many more tokens requests hold than there are, since they share blocks."""
        return self._shared * self.block_tokens

    def grow_all(self, tokens: Mapping[RequestId, int]) -> None:
        """Hold as many tokens more as each is given, in this order, beside what each finds."""
        self.changes += 1
        held, of_block = self._held, self.block_tokens
        for request, more in tokens.items():
            if more < 0:
                raise ValueError(f"r{request} cannot grow by {more} tokens: KV shrinks by `free`")
            before = held.get(request) or self.holding(request)
            if 0 < before % of_block < of_block - more:
                # Within its last block, which does not become full.
                held[request] = before + more
            elif more:
                before = before or self._begin(request)
                self._hold(request, before, before + more)
        self._count()

    def try_grow(self, request: RequestId, tokens: int) -> bool:
        """Hold `tokens` more if they fit; False changes nothing, evicts nothing."""
        if self._taken(request, tokens) > self.free_blocks(self._service_id):
            return False
        self.grow_all({request: tokens})
        return True

    def fits(self, tokens: Mapping[RequestId, int]) -> bool:
        """Whether all would fit if each request held so many tokens more."""
        held, of_block = self._held, self.block_tokens
        if all(map(held.get, tokens)):
            beyond = [more - -held[request] % of_block for request, more in tokens.items()]
            taken = sum([-(-tokens // of_block) for tokens in beyond if tokens > 0])
            return taken <= self.free_blocks(self._service_id)
        trial = self.copy()
        return all(trial.try_grow(request, more) for request, more in tokens.items())

    def free(self, request: RequestId) -> None:
        """Hold nothing any more; what was full stays cached until its space is needed."""
        held = self.holding(request)
        self.changes += 1
        self._held.pop(request, None)
        self._findable[request] = max(self._findable[request], held)
        self._blank += held % self.block_tokens > 0
        blocks = self._write()
        table = blocks.tables.get(request, ())
        for number in reversed(range(len(table))):
            block = table[number]
            if (users := blocks.users[block]) > 1:
                blocks.set(_USERS, block, users - 1)
                self._shared -= 1
            else:
                blocks.free(block, self._contents(request, number))
        if request in blocks.tables:
            blocks.set(_TABLES, request, None)
        self._found = None
        self._count()

    def reserve(self, request: RequestId, promise: Reservation | None) -> None:
        """Promise nothing. ValueError where that is not what is asked."""
        if promise is not None:
            raise ValueError(f"r{request} is promised KV, which is not done where it is cached")

    def _hits(self, request: RequestId) -> list[int]:
        """Cached blocks of the beginning of a context, as many as there are."""
        known = self._found
        if known is not None and known[0] == request:
            return known[1]
        found: list[int] = []
        named, contents = self._read().named, self._contents
        for number in range(self._findable[request] // self.block_tokens):
            blocks = named.get(contents(request, number))
            if blocks is None:
                break
            found.append(blocks[0])
        self._found = request, found
        return found

    def _taken(self, request: RequestId, more: int) -> int:
        """Free blocks that a request takes which holds so many tokens more."""
        if before := self.holding(request):
            return self.blocks(before + more) - self.blocks(before)
        return self.newcomer_blocks(request, self.cached_tokens(request) + more) if more else 0

    def _begin(self, request: RequestId) -> int:
        """Hold what is cached; returns its tokens."""
        found, blocks = self._hits(request), self._write()
        for block in found:
            users = blocks.users.get(block, 0)
            if users:
                self._shared += 1
            else:
                blocks.set(_UNUSED, block, None)
            blocks.set(_USERS, block, users + 1)
        blocks.set(_TABLES, request, tuple(found))
        self._found = None
        return len(found) * self.block_tokens

    def _hold(self, request: RequestId, before: int, after: int) -> None:
        """Take blocks for more tokens, evicting what is cached, and cache the full ones."""
        blocks = self._write()
        more = self.blocks(after) - self.blocks(before)
        if more > self._blank:
            self._blank += blocks.evict(more - max(0, self._blank))
        self._blank -= more
        full, held = after // self.block_tokens, before // self.block_tokens
        if full > held:
            contents = self._contents
            blocks.add(request, (contents(request, number) for number in range(held, full)))
        self._held[request], self._found = after, None

    def _count(self) -> None:
        """Free is what has no content or no holder."""
        free_blocks = self._blank + len(self._read().unused)
        self._free_bytes = self._spare_bytes + free_blocks * self._block_bytes[self._service_id]
