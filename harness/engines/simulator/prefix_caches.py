"""The caches of prefixes of compiled groups: where each is in the arrays of a run, and empty."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.layout import PAUSE
from harness.engines.simulator.kernel.prefixes import BLOCK, NUMBER_BITS, SIDE, CacheRecords


class _Sizes(NamedTuple):
    """Places of a group: for blocks, and in block tables as many rows of so many places."""

    buckets: int
    rows: int
    row_blocks: int


class _Part(NamedTuple):
    """Where a group's places begin in the arrays; the next group of its number has them, too."""

    first_block: int
    first_row: int
    sizes: _Sizes


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
        group, part = self.compiled.world.groups[number], self._parts.get(number)
        sizes = self._sizes(group)
        if part is None or part.sizes != sizes:
            part = self._add(number, sizes)
        else:
            places = slice(part.first_block, part.first_block + sizes.buckets)
            self._records.blocks[places] = np.zeros(1, BLOCK)
        group["first_block"], group["first_row"] = part.first_block, part.first_row
        group["buckets"], group["row_blocks"] = sizes.buckets, sizes.row_blocks
        group["blank_blocks"], group["found_blocks"] = group["capacity_blocks"], -1
        ring = self._records.blocks[part.first_block]
        ring["older"] = ring["newer"] = part.first_block

    def _sizes(self, group: Any) -> _Sizes:
        row_blocks = self.longest_tokens // int(group["block_tokens"])
        if row_blocks >> NUMBER_BITS:
            raise ValueError(
                f"contexts of {row_blocks} KV blocks, less than {1 << NUMBER_BITS} can be cached"
            )
        # The ring takes a place, and of a row that has been left the next one.
        places, rows = int(group["capacity_blocks"]) + 1, int(group["max_requests"])
        if group["displaces"] == PAUSE:
            # Each that pauses holds a block at least, as if it shared none.
            rows = min(int(group["capacity_blocks"]), len(self.compiled.requests.rows))
        return _Sizes(-(-places // SIDE) * SIDE, rows, row_blocks + 1)

    def _add(self, number: int, sizes: _Sizes) -> _Part:
        """The arrays are longer by the places of a group."""
        cache = self._records
        part = _Part(len(cache.blocks), len(cache.tables), sizes)
        blocks = np.zeros(part.first_block + sizes.buckets, BLOCK)
        blocks[: part.first_block] = cache.blocks
        tables = np.zeros(part.first_row + sizes.rows * sizes.row_blocks, np.int32)
        # Only the rows that requests have had: the others take no memory.
        for other, its in self._parts.items():
            rows = int(self.compiled.world.groups[other]["n_rows_had"])
            had = slice(its.first_row, its.first_row + rows * its.sizes.row_blocks)
            tables[had] = cache.tables[had]
        self._parts[number] = part
        self.compiled.cache = cache._replace(blocks=blocks, tables=tables)
        return part
