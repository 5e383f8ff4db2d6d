"""The caches of prefixes of compiled groups: where each is in the arrays of a run, and empty."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.prefixes import (
    BLOCK,
    NO_BLOCK,
    NUMBER_BITS,
    SIDE,
    CacheRecords,
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A group's places in the arrays of blocks and of block tables, which it keeps for the next."""

    first_block: int
    buckets: int
    first_row: int
    row_blocks: int
    rows: int


@dataclass(slots=True)
class PrefixCaches:
    """Those of a run, in which no context is longer than `longest_tokens`."""

    compiled: CompiledGroups
    longest_tokens: int
    _parts: dict[int, _Part] = field(default_factory=dict)

    @classmethod
    def of(cls, compiled: CompiledGroups) -> "PrefixCaches":
        """No group has one yet; contexts that begin alike are those of the requests."""
        requests = compiled.requests
        records = CacheRecords(np.zeros(0, BLOCK), np.zeros(0, np.int32), requests.contexts)
        compiled.cache = records
        return cls(compiled, int((requests.prompt + requests.output).max(initial=0)))

    @property
    def _records(self) -> CacheRecords:
        records = self.compiled.cache
        assert records is not None
        return records

    def open(self, number: int) -> None:
        """A group that has no requests begins without any content.

        ValueError where its contexts would have more blocks than can be told apart.
        """
        group = self.compiled.world.groups[number]
        blocks = self.longest_tokens // int(group["block_tokens"])
        if blocks >> NUMBER_BITS:
            raise ValueError(
                f"contexts of {blocks} KV blocks, less than {1 << NUMBER_BITS} can be cached"
            )
        needed = _Part(
            first_block=len(self._records.blocks),
            buckets=-(-(int(group["capacity_blocks"]) + 1) // SIDE) * SIDE,
            first_row=len(self._records.tables),
            row_blocks=blocks + 1,
            rows=int(group["max_requests"]),
        )
        part = self._parts.get(number, needed)
        if replace(needed, first_block=part.first_block, first_row=part.first_row) != part:
            part = needed
        if part is needed:
            self._add(number, part)
        self._empty(group, part)

    def _add(self, number: int, part: _Part) -> None:
        """The arrays are longer by a part."""
        self._parts[number] = part
        cache = self._records
        blocks = np.zeros(part.first_block + part.buckets, BLOCK)
        tables = np.zeros(part.first_row + part.rows * part.row_blocks, np.int32)
        blocks[: part.first_block], tables[: part.first_row] = cache.blocks, cache.tables
        self.compiled.cache = cache._replace(blocks=blocks, tables=tables)

    def _empty(self, group: Any, part: _Part) -> None:
        """Blocks without contents, in order, and rows without requests, in order."""
        cache, capacity = self._records, int(group["capacity_blocks"])
        for name in ("first_block", "buckets", "first_row", "row_blocks"):
            group[name] = getattr(part, name)
        first = part.first_block
        blocks = cache.blocks[first : first + part.buckets]
        blocks["first"], blocks["newer"] = NO_BLOCK, first + 1 + np.arange(part.buckets)
        blocks["older"][capacity] = blocks["newer"][capacity] = first + capacity
        group["blank_blocks"], group["unnamed"] = capacity, first
        last = np.arange(1, part.rows + 1)
        cache.tables[part.first_row + last * part.row_blocks - 1] = last
