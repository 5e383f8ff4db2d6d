"""EcoServe: the queues of a replica and the order of what waits, updated as requests come and go.

Paper      Shen and Sen, EcoServe, arXiv 2411.06364; sections below are its sections.
Idea       The nearest range of deadlines first, in it the most KV held, then the longest.
Map        3.3 three factors in ranges -> `Ranking`; waiting prompts -> `PromptQueue`; 3.2 the
           queues and the length groups that run -> `Queues`
Constants  `scale` 2 (section 4), ranges: examples of 3.3; `prompt_s`, `token_s`: of a scenario
Differs    a deadline is made from the predicted length, the paper's from the true one
Checked    systems/tests/test_ecoserve.py
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from harness.interface.entities import RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Deadline range, then occupied KV, then length; the larger first.

    A deadline is `scale` x (`prompt_s` + `token_s` x predicted length) after arrival. Without
    `slack_ranges_s` deadlines do not count.
    """

    prompt_s: float
    token_s: float
    scale: float
    slack_ranges_s: Sequence[float]
    kv_range_tokens: int
    length_range_tokens: int

    def __post_init__(self) -> None:
        """Refuse seconds below 0, ranges below one token and slacks out of order."""
        for name in ("prompt_s", "token_s", "scale"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"ranking.{name} is {getattr(self, name)}, it must be at least 0")
        for name in ("kv_range_tokens", "length_range_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"ranking.{name} is {getattr(self, name)}, it must be at least 1")
        if list(self.slack_ranges_s) != sorted(set(self.slack_ranges_s)):
            raise ValueError(f"ranking.slack_ranges_s is {self.slack_ranges_s}, it must ascend")

    def deadline_s(self, arrival_s: float, answer_tokens: int) -> float:
        """When an answer of the predicted length is due."""
        return arrival_s + self.scale * (self.prompt_s + self.token_s * answer_tokens)

    def slack_range(self, deadline_s: float, now_s: float) -> int:
        """The deadline range; 0 is the most urgent."""
        return bisect_left(self.slack_ranges_s, deadline_s - now_s)

    def within(self, kv_tokens: int, length_tokens: int) -> tuple[int, int]:
        """Order within a deadline range, lowest first."""
        return -(kv_tokens // self.kv_range_tokens), -(length_tokens // self.length_range_tokens)


@dataclass(slots=True)
class PromptQueue:
    """Prompts that hold no KV, in order; a change of deadline range costs O(log n)."""

    ranking: Ranking | None
    _heaps: list[list[tuple[int, RequestId, int]]] = field(init=False)
    _moves: list[list[tuple[float, RequestId, int]]] = field(init=False)
    _prompts: dict[RequestId, tuple[int, int, int, float]] = field(default_factory=dict)
    _entries: int = 0

    def __post_init__(self) -> None:
        """One heap for each deadline range."""
        ranges = 1 if self.ranking is None else 1 + len(self.ranking.slack_ranges_s)
        self._heaps = [[] for _ in range(ranges)]
        self._moves = [[] for _ in range(ranges)]

    def __contains__(self, request: RequestId) -> bool:
        """Whether it waits here."""
        return request in self._prompts

    def push(
        self, request: RequestId, context_tokens: int, deadline_s: float, now_s: float
    ) -> None:
        """Add a prompt, or replace what is known of it."""
        self._entries += 1
        length, at = 0, 0
        if self.ranking is not None:
            _, length = self.ranking.within(0, context_tokens)
            at = self.ranking.slack_range(deadline_s, now_s)
        self._prompts[request] = (self._entries, context_tokens, length, deadline_s)
        self._put(at, request)

    def remove(self, request: RequestId) -> None:
        """Forget a prompt, if it is here."""
        self._prompts.pop(request, None)

    def first(self, now_s: float) -> tuple[RequestId, int] | None:
        """The first prompt and its context; it stays here."""
        self._move(now_s)
        for heap in self._heaps:
            while heap:
                _, request, entry = heap[0]
                known = self._prompts.get(request)
                if known is not None and known[0] == entry:
                    return request, known[1]
                heappop(heap)
        return None

    def _put(self, at: int, request: RequestId) -> None:
        entry, _, length, deadline_s = self._prompts[request]
        heappush(self._heaps[at], (length, request, entry))
        if at > 0:
            heappush(self._moves[at], (deadline_s, request, entry))

    def _move(self, now_s: float) -> None:
        """Move prompts whose slack has shrunk to the range that they are now in."""
        if self.ranking is None:
            return
        for at in range(len(self._moves) - 1, 0, -1):
            moves = self._moves[at]
            while moves and self.ranking.slack_range(moves[0][0], now_s) < at:
                deadline_s, request, entry = heappop(moves)
                known = self._prompts.get(request)
                if known is None or known[0] != entry:
                    continue
                entry, context, length, _ = known
                self._entries += 1
                self._prompts[request] = (self._entries, context, length, deadline_s)
                self._put(self.ranking.slack_range(deadline_s, now_s), request)


@dataclass(slots=True)
class RunningGeneration:
    """A generation that runs: its length group, and how many hosts are above it."""

    group: int
    depth: int


@dataclass(slots=True)
class Queues:
    """Requests of one replica."""

    prompts: PromptQueue
    unsorted: dict[RequestId, None] = field(default_factory=dict)  # new, or with a new prediction
    predicted: set[RequestId] = field(default_factory=set)  # while they ran
    begun: dict[RequestId, None] = field(default_factory=dict)
    waiting: dict[RequestId, None] = field(default_factory=dict)
    running: dict[RequestId, RunningGeneration] = field(default_factory=dict)
    left: Counter[int] = field(default_factory=Counter)  # members of a length group that still run
    lengthened: dict[RequestId, int] = field(default_factory=dict)  # answers after an overrun
    overran: set[RequestId] = field(default_factory=set)
    held_blocks: int = 0  # by `waiting` and `begun`, while generations are placed
    groups: int = 0
    may_refill: bool = True
    changed: bool = True  # since the last decision, by more than the time

    def start(self, name: RequestId, depth: int) -> None:
        """Run a generation in the newest length group."""
        self.waiting.pop(name, None)
        self.running[name] = RunningGeneration(self.groups, depth)
        self.left[self.groups] += 1

    def leave(self, name: RequestId) -> None:
        """Stop a generation; when a length group has ended, others may be placed."""
        group = self.running.pop(name).group
        self.left[group] -= 1
        if not self.left[group]:
            del self.left[group]
            self.may_refill = True

    def learn(self, name: RequestId) -> None:
        """A prediction has come. Generations that wait are placed by it in any case."""
        self.lengthened.pop(name, None)  # it was lengthened by a guess
        if name in self.prompts:
            self.unsorted[name], self.changed = None, True
        elif name in self.running:
            self.predicted.add(name)
            self.changed = True

    def forget(self, name: RequestId) -> None:
        """The request has finished or gone to another replica."""
        queues = (self.unsorted, self.begun, self.waiting, self.running)
        self.changed |= name in self.prompts or any(name in queue for queue in queues)
        if name in self.running:
            self.leave(name)
        self.prompts.remove(name)
        self.overran.discard(name)
        self.predicted.discard(name)
        for queue in (self.unsorted, self.begun, self.waiting, self.lengthened):
            queue.pop(name, None)


def refuse_settings(
    shares: Mapping[str, float],
    counts: Mapping[str, int],
    words: Mapping[str, tuple[object, tuple[object, ...]]],
    *,
    padding: float,
) -> None:
    """Raise ValueError for a share outside 0 to 1, a count below 1 and an unknown value.

    Also for a padding below 0.
    """
    if not 0 <= padding < float("inf"):
        raise ValueError(f"padding is {padding}, it must be at least 0")
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is {share}, it must be from 0 to 1")
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is {count}, it must be at least 1")
    for name, (word, known) in words.items():
        if word not in known:
            raise ValueError(f"{name} is {word}, it must be {' or '.join(map(str, known))}")
