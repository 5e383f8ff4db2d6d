"""KV accounting with a prefix cache, as vLLM V1 has it.

A full block has a content, which its tokens and those before them decide. Requests that begin alike
share blocks; a block that no request holds any more stays until its space is needed, the least
recently used first.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Self

from harness.interface.decisions import Reservation
from harness.interface.entities import Request, RequestId, Service, ServiceId
from harness.interface.kv_ledger import KvLedger

Content = tuple[int, int]
"""Name of a full block: the request to which its last token belongs, and its number."""

Contents = Callable[[RequestId, int], Content]
"""Names of full blocks by request and number: equal where the contexts are, up to their end."""


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
        self._next = 0
        # Full blocks of each request, how many requests hold each block that is held, which blocks
        # have a content (oldest first), and what is in blocks without a holder (least recently used
        # first). Few and small: a draft of every iteration begins with copies of them.
        self._tables: dict[RequestId, list[int]] = {}
        self._users: dict[int, int] = {}
        self._blocks: dict[Content, tuple[int, ...]] = {}
        self._unused: dict[int, Content] = {}
        # Most tokens that each request may find cached: all but the last of its context.
        self._findable: dict[RequestId, int] = {}
        # The last request that was looked up, with what it would find: nothing has changed since.
        self._found: tuple[RequestId, list[int]] | None = None

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

    def newcomer_blocks(self, request: RequestId, tokens: int) -> int:
        """Free blocks that a request which holds none takes: what others hold is there already."""
        held = sum(block in self._users for block in self._hits(request))
        return self.blocks(tokens) - held

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
        table = self._tables.pop(request, [])
        for number in reversed(range(len(table))):
            block = table[number]
            if self._users[block] > 1:
                self._users[block] -= 1
                self._shared -= 1
            else:
                del self._users[block]
                self._unused[block] = self._contents(request, number)
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
        for number in range(self._findable[request] // self.block_tokens):
            blocks = self._blocks.get(self._contents(request, number))
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
        found = self._hits(request)
        for block in found:
            if block in self._users:
                self._shared += 1
                self._users[block] += 1
            else:
                del self._unused[block]
                self._users[block] = 1
        self._tables[request], self._found = list(found), None
        return len(found) * self.block_tokens

    def _hold(self, request: RequestId, before: int, after: int) -> None:
        """Take blocks for more tokens, evicting what is cached, and cache the full ones."""
        for _ in range(self.blocks(after) - self.blocks(before)):
            if self._blank <= 0 and self._unused:
                self._evict()
            self._blank -= 1
        full, held = after // self.block_tokens, before // self.block_tokens
        if full > held:
            table = self._tables[request]
            for number in range(held, full):
                block, content = self._next, self._contents(request, number)
                self._next += 1
                table.append(block)
                self._users[block] = 1
                self._blocks[content] = (*self._blocks.get(content, ()), block)
        self._held[request], self._found = after, None

    def _evict(self) -> None:
        """Empty the block that has been unused for longest."""
        block = next(iter(self._unused))
        content = self._unused.pop(block)
        left = tuple(other for other in self._blocks.pop(content) if other != block)
        if left:
            self._blocks[content] = left
        self._blank += 1

    def _count(self) -> None:
        """Free is what has no content or no holder."""
        free_blocks = self._blank + len(self._unused)
        self._free_bytes = self._spare_bytes + free_blocks * self._block_bytes[self._service_id]

    def _become(self, other: Self) -> None:
        super()._become(other)
        self._tables = {request: list(table) for request, table in other._tables.items()}
        self._users, self._blocks = other._users.copy(), other._blocks.copy()
        self._unused = other._unused.copy()
        self._findable, self._found = other._findable.copy(), None
