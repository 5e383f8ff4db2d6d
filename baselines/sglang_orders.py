"""SGLang's cache-aware orders: longest cached prefix, heaviest subtree, highest response ratio.

Paper      Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs,
           arXiv 2312.07104, section 3; its program, sgl-project/sglang,
           python/sglang/srt/managers/schedule_policy.py at commit 00550cd1. Aging is proposed in
           pull request 31723 (open), the highest response ratio is of 32911 (merged)
Idea       Every pass matches the waiting requests with the cache and sorts them. `Lpm`: the most
           cached tokens first; each pass that a request has waited may count as some more.
           `DfsWeight`: depth first through the tree of cached prefixes, the subtree with the most
           waiting requests first. `Hrrn`: the highest response ratio first, which is the prompt
           tokens computed since a request joined over those that its own prompt misses. In-batch
           rule of `Lpm` and `Hrrn`: of requests that share a beginning which is not cached, the
           first keeps its place and the others go last, so that they find it cached.
Map        _determine_active_policy         -> `CacheAware.schedule`, `_Sorted.order`
           _compute_prefix_matches          -> `_Sorted.deferred`
           _sort_by_longest_prefix, 31723   -> `Lpm.key`
           _sort_by_hrrn                    -> `Hrrn.key`
           _sort_by_dfs_weight              -> `DfsWeight.order`
Constants  `most_sorted` 128 waiting requests, beyond which lpm and hrrn are first come first
           served; `matched_tokens` and `shared_tokens` 32, of the in-batch rule; no aging; of its
           program, see scenarios/policy/lpm.yaml, lpm_aging.yaml, dfs_weight.yaml and hrrn.yaml
Differs    only the order is SGLang's; batches are filled as under vllm.yaml. So a pass is an
           iteration, prompts run beside decodes, and where KV is short the latest arrival gives
           way, in SGLang the request with the fewest output tokens. SGLang sorts its queue in
           place, so that ties, and the order above 128, follow the last sort; here both are by
           arrival. Ties of hrrn are by number, in SGLang by the request id as a text. Beginnings
           are compared in whole blocks, in SGLang in tokens. Not stated: whether passes above 128
           count as waiting (here they do), and whether aging lifts a request that the in-batch rule
           puts last (here it does not). Nothing is cached in host memory. Where prefixes are not
           cached, requests are served first come first served, as in SGLang, and so they are in
           real vLLM, which does not tell a policy what is cached
Checked    baselines/tests/test_sglang_orders.py::test_the_longest_cached_prefix_by_hand
           baselines/tests/test_sglang_orders.py::test_the_heaviest_subtree_by_hand
           baselines/tests/test_sglang_orders.py::test_the_highest_response_ratio_by_hand
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import fill, is_decode
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import Content, GroupId, RequestId
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView, KvView, RequestView


@dataclass(slots=True)
class WaitingQueue:
    """A group's waiting requests: prompt tokens computed when each joined, passes it has waited.

    `computed_tokens` counts the prompt tokens that the group has computed so far.
    """

    computed_tokens: int = 0
    joined_tokens: dict[RequestId, int] = field(default_factory=dict)
    passes: dict[RequestId, int] = field(default_factory=dict)

    def join(self, waiting: Sequence[RequestView]) -> None:
        """Update the queue: these requests wait, and no others."""
        joined, passes, now = self.joined_tokens, self.passes, self.computed_tokens
        names = [request.facts.id for request in waiting]
        self.joined_tokens = {name: joined.get(name, now) for name in names}
        self.passes = {name: passes.get(name, 0) for name in names}

    def count(self, decision: Decision, view: GroupView) -> None:
        """Count the prompt tokens of a batch, and a pass of each request that it leaves waiting."""
        ran = decision.launch[0].tokens if decision.launch else {}
        for name, tokens in ran.items():
            if not is_decode(view.requests[name]):
                self.computed_tokens += tokens
        for name in self.passes.keys() - ran.keys():
            self.passes[name] += 1


class CacheAware(ABC):
    """Scheduling policy: sorts the waiting requests of every iteration, by what is cached."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching) -> None:
        """Fill batches by `rule`."""
        self._by_arrival = PriorityOrder(None, rule)
        self._queues: defaultdict[GroupId, WaitingQueue] = defaultdict(WaitingQueue)

    def observe(self, event: Event) -> None:  # noqa: B027 - of all three
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Holders of KV by arrival, then the others in order; by arrival if nothing is cached."""
        if not view.kv.caches:
            return Decision(priority_order=self._by_arrival)
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        queue = self._queues[view.group.id]
        queue.join(waiting)
        order = self.order(view.kv, waiting, queue) if waiting else waiting
        draft = Draft(view)
        fill(draft, [*holders, *order], self._by_arrival)
        decision = draft.decision(steady=draft.runs_all)
        queue.count(decision, view)
        return decision

    @abstractmethod
    def order(
        self, kv: KvView, waiting: Sequence[RequestView], queue: WaitingQueue
    ) -> Sequence[RequestView]:
        """Sort waiting requests, which are in order of arrival, best first."""


class _Sorted(CacheAware):
    """By `key` while few requests wait; the in-batch rule puts some last."""

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        most_sorted: int,
        matched_tokens: int,
        shared_tokens: int,
    ) -> None:
        """Sort the waiting requests while they are at most `most_sorted`.

        A request with at most `matched_tokens` cached goes last if it has `shared_tokens` in common
        with an earlier such request; with -1 `matched_tokens`, none does. ValueError for less.
        """
        super().__init__(rule=rule)
        for name, value, least in (
            ("most_sorted", most_sorted, 0),
            ("matched_tokens", matched_tokens, -1),
            ("shared_tokens", shared_tokens, 1),
        ):
            if value < least:
                raise ValueError(f"policy.{name} is {value}, it must be at least {least}")
        self._most_sorted, self._matched_tokens = most_sorted, matched_tokens
        self._shared_tokens = shared_tokens

    def order(
        self, kv: KvView, waiting: Sequence[RequestView], queue: WaitingQueue
    ) -> Sequence[RequestView]:
        """By `key`, then by arrival, but where too many wait."""
        if len(waiting) > self._most_sorted:
            return waiting
        cached = {it.facts.id: kv.cached_tokens(it.facts.id) for it in waiting}
        last = self.deferred(kv, cached)

        def turn(request: RequestView) -> float:
            name = request.facts.id
            return inf if name in last else self.key(request, cached[name], queue)

        return sorted(waiting, key=turn)

    def deferred(self, kv: KvView, cached: dict[RequestId, int]) -> set[RequestId]:
        """Requests that share an uncached beginning with an earlier one."""
        blocks = -(-self._shared_tokens // kv.block_tokens)
        first, last = set[Content](), set[RequestId]()
        for request, tokens in cached.items():
            names = kv.beginning(request, blocks) if tokens <= self._matched_tokens else []
            if len(names) < blocks:
                continue
            # Equal names: all tokens up to the end of the block are equal.
            if names[-1] in first:
                last.add(request)
            first.add(names[-1])
        return last

    @abstractmethod
    def key(self, request: RequestView, cached_tokens: int, queue: WaitingQueue) -> float:
        """What a waiting request is sorted by, lowest first."""


class Lpm(_Sorted):
    """Longest prefix match."""

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        most_sorted: int,
        matched_tokens: int,
        shared_tokens: int,
        aging_tokens_per_pass: int,
    ) -> None:
        """A pass of waiting counts as `aging_tokens_per_pass` cached. ValueError if negative."""
        super().__init__(
            rule=rule,
            most_sorted=most_sorted,
            matched_tokens=matched_tokens,
            shared_tokens=shared_tokens,
        )
        if aging_tokens_per_pass < 0:
            raise ValueError(
                f"policy.aging_tokens_per_pass is {aging_tokens_per_pass}, it must be at least 0"
            )
        self._aging_tokens = aging_tokens_per_pass

    def key(self, request: RequestView, cached_tokens: int, queue: WaitingQueue) -> float:
        """The most cached tokens first."""
        return -(cached_tokens + self._aging_tokens * queue.passes[request.facts.id])


class Hrrn(_Sorted):
    """Highest response ratio next, in tokens of prompts."""

    def key(self, request: RequestView, cached_tokens: int, queue: WaitingQueue) -> float:
        """The highest ratio of waiting to the prompt's own work; a prompt without work first."""
        missing = request.facts.prompt_tokens - cached_tokens
        waited = queue.computed_tokens - queue.joined_tokens[request.facts.id]
        return -waited / missing if missing > 0 else -inf


class DfsWeight(CacheAware):
    """Depth first through the tree of cached prefixes, the heaviest subtree first."""

    def order(
        self, kv: KvView, waiting: Sequence[RequestView], queue: WaitingQueue
    ) -> Sequence[RequestView]:
        """Requests of a node come after those of its subtrees, equal subtrees by arrival."""
        paths: dict[RequestId, list[Content]] = {}
        first: dict[Content, RequestId] = {}
        for name in (request.facts.id for request in waiting):
            paths[name] = kv.beginning(name, kv.cached_tokens(name) // kv.block_tokens)
            for content in paths[name]:
                first.setdefault(content, name)
        weight = Counter(content for path in paths.values() for content in path)

        def turn(request: RequestView) -> list[tuple[int, int]]:
            name = request.facts.id
            # A path that ends at a node comes after those through its children.
            return [*((-weight[it], first[it]) for it in paths[name]), (1, name)]

        return sorted(waiting, key=turn)
