"""Which calls of a workload wait for the answers of others."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.interface.tables import Bools, Ints

NO_CALL = -1


@dataclass(frozen=True, slots=True)
class Edges:
    """Pairs of calls, by row of the workload: `child` waits for `parent`, which has a lower row.

    `carries` says whether the child's prompt contains the parent's answer.
    """

    parent: Ints
    child: Ints
    carries: Bools

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.parent)

    def carried(self, answer_tokens: Ints) -> Ints:
        """Tokens of answers that each call's prompt contains, given those of every call."""
        total = np.zeros_like(answer_tokens)
        kept = self.carries
        np.add.at(total, self.child[kept], answer_tokens[self.parent[kept]])
        return total


def no_edges() -> Edges:
    """The edges of a workload whose calls do not wait for each other."""
    return Edges(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))


@dataclass(frozen=True)
class Graph:
    """The edges of `count` calls, ready to be followed; `service` gives each call's service.

    A call of service NO_CALL is in no chain.
    """

    edges: Edges
    service: Ints

    @cached_property
    def waits(self) -> Ints:
        """How many answers each call waits for."""
        return np.bincount(self.edges.child, minlength=len(self.service))

    @cached_property
    def _first(self) -> Ints:
        """Where the children of each call begin among those of all, and where they end."""
        counts = np.bincount(self.edges.parent, minlength=len(self.service))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    @cached_property
    def child_lists(self) -> tuple[Ints, Ints]:
        """Where the children of each call begin among those of all, with an end; and these."""
        return self._first, self.edges.child[np.argsort(self.edges.parent, kind="stable")]

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        """The same as lists: they are asked for one call at a time."""
        first, children = self.child_lists
        return first.tolist(), children.tolist()

    def children(self, call: int) -> list[int]:
        """Calls that wait for this one, in the order of the edges."""
        first, children = self._lists
        return children[first[call] : first[call + 1]]

    @cached_property
    def chain(self) -> Ints:
        """The only call that waits for each, if it waits for no other and asks the same service.

        NO_CALL where there is none.
        """
        parent, child = self.edges.parent, self.edges.child
        alone = (np.diff(self._first)[parent] == 1) & (self.waits[child] == 1)
        same = (self.service[parent] == self.service[child]) & (self.service[parent] != NO_CALL)
        follower = np.full(len(self.service), NO_CALL)
        follower[parent[alone & same]] = child[alone & same]
        return follower

    @cached_property
    def predecessor(self) -> Ints:
        """The call before each in its chain; NO_CALL where there is none."""
        found = np.full(len(self.service), NO_CALL)
        parents = np.flatnonzero(self.chain != NO_CALL)
        found[self.chain[parents]] = parents
        return found
