"""Prefixes that the contexts of requests have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.workloads.workload import Ints, Workload

Content = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Contexts of a workload as its columns `prefix` and `prefix_tokens` declare them.

    A token belongs to one request: going back through declared prefixes, the first request of which
    the token is not in the prefix. Equal tokens of two contexts belong to the same request.
    """

    _prefix: list[int] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, workload: Workload) -> "Prefixes":
        """What a workload declares; nothing where it has no such columns."""
        return cls(workload.prefix.tolist(), workload.prefix_tokens.tolist())

    def owner(self, request: int, end: int) -> int:
        """The request to which token number `end` (from 1) of a context belongs."""
        if self._tokens:
            while end <= self._tokens[request]:
                request = self._prefix[request]
        return request

    def contents(self, block_tokens: int) -> Callable[[int, int], Content]:
        """A name for each full block of a context by its number: equal ones have equal names."""
        return lambda request, number: (self.owner(request, (number + 1) * block_tokens), number)

    def blocks(self, request: int, count: int, block_tokens: int) -> list[Content]:
        """Names of the first `count` full blocks of a context, as `contents` has them."""
        found: list[Content] = []
        for number in reversed(range(count)):
            request = self.owner(request, (number + 1) * block_tokens)
            found.append((request, number))
        return found[::-1]

    def token_owners(self, request: int, count: int) -> list[int]:
        """The request to which each of the first `count` tokens of a context belongs."""
        parts, end = [], count
        while end:
            begin = min(end, self._tokens[request]) if self._tokens else 0
            parts.append([request] * (end - begin))
            request, end = self._prefix[request] if begin else request, begin
        return [owner for part in reversed(parts) for owner in part]


def prefixes_of_hashes(
    hashes: Sequence[Sequence[int]], block_tokens: int, prompt_tokens: Ints
) -> tuple[Ints, Ints]:
    """Columns `prefix` and `prefix_tokens` of prompts whose blocks have hashes, as in some traces.

    A prompt begins with the longest run of blocks that an earlier one begins with, too.
    """
    prefix, tokens = np.full(len(hashes), -1), np.zeros(len(hashes), np.int64)
    # For a run of blocks, by its number, and the hash of the next: its longer run and request.
    runs: dict[tuple[int, int], tuple[int, int]] = {}
    for row, blocks in enumerate(hashes):
        run = 0
        for count, block in enumerate(blocks, start=1):
            longer, first = runs.setdefault((run, block), (len(runs) + 1, row))
            if first != row:
                shared = min(count * block_tokens, prompt_tokens[row], prompt_tokens[first])
                prefix[row], tokens[row] = first, shared
            run = longer
    return prefix, tokens


def hash_tokens(prompt_tokens: Ints, hashes: Ints, documented: int) -> int | None:
    """Tokens of a block of prompts that have so many hashes; None where no size fits all prompts.

    Either every block of a prompt has a hash, the last one though it is not full, or every full
    block has. Of the sizes that fit the `documented` one is taken, else the least power of two, or
    the only size.
    """
    has = hashes > 0
    if not has.any():
        return documented
    count, prompt = hashes[has], prompt_tokens[has]
    none = int(prompt_tokens[~has].max(initial=0)) + 1  # without a full block
    several = count > 1
    least = int((-(-prompt // count)).max())
    below = int((-(-prompt[several] // (count[several] - 1))).min(initial=2**31))
    full_least = max(none, int((prompt // (count + 1)).max()) + 1)
    full_below = int((prompt // count).min()) + 1
    ranges = [(least, below), (full_least, full_below)]
    # A prompt without a hash has no full block.
    ranges = ranges if has.all() else ranges[::-1]
    for low, end in ranges:
        if low <= documented < end:
            return documented
    for low, end in ranges:
        power = 1 << (low - 1).bit_length()
        if power < end or low == end - 1:
            return min(power, end - 1)
    return None
