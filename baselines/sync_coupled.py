"""SyncCoupled and SyncFastGen: requests of one predicted length start and end together.

Paper      EcoServe (arXiv 2411.06364) sec. 2.2.
Idea       Waiting requests of the same predicted length are a group; groups join the batch until
           the KV is full, and again when a group has ended, not in every iteration.
Map        2.2 groups of one length    -> `_Replica`; until the KV is full -> `_place`
           2.2 SyncCoupled, SyncFastGen -> `allocates`: exact (prompt and answer) or blocks (the
           prompt, then block by block; a preempted request is computed again)
Constants  `rule`: forward size and most requests; `padding`: share added to a prediction;
           `bucket_tokens` 1: of the same length is equal to the token (50: the predictor that the
           paper cites, arXiv 2305.13144, is trained on lengths that are rounded up to 50)
Differs    the paper is silent on all of this: the group of the oldest request comes first; one that
           does not fit whole is split, and ends the filling; while nothing waits for room a
           newcomer joins at once; a group's prompts beyond the forward size follow in the next
           iterations. A preempted request is grouped by what is left of its answer. An answer
           that outgrows its exact allocation grows on block by block
Checked    baselines/tests/test_sync_coupled.py::test_groups_take_turns_by_hand
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import fill, is_decode, run_in_order
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder, Reservation
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Arrived, Event, Moved, Predicted
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView, missing_tokens

ALLOCATES = ("exact", "blocks")
_SIZES = (2, 4, 12)
"""Sizes of length groups that are counted: figure 2."""


@dataclass(slots=True)
class _Replica:
    """Requests that wait, by what is left of their answers, and that run, by group."""

    unsorted: dict[RequestId, None] = field(default_factory=dict)  # new, or with a new prediction
    lengths: dict[RequestId, int] = field(default_factory=dict)
    queue: list[RequestId] = field(default_factory=list)
    waiting: dict[int, list[RequestId]] = field(default_factory=dict)  # by length, as the queue
    running: dict[RequestId, int] = field(default_factory=dict)  # in the order of placing
    left: Counter[int] = field(default_factory=Counter)  # members of a group that still run
    newest: int = 0
    open_length: int | None = None  # of the group that still takes requests
    is_full: bool = False  # requests wait for room

    def add(self, name: RequestId, length: int) -> None:
        """Let a request wait, by its number among those of its length."""
        self.lengths[name] = length
        insort(self.queue, name)
        insort(self.waiting.setdefault(length, []), name)

    def remove(self, name: RequestId) -> None:
        """Remove a request from the waiting ones, if it is there."""
        self.unsorted.pop(name, None)
        length = self.lengths.pop(name, None)
        if length is None:
            return
        for names in (self.queue, self.waiting[length]):
            names.pop(bisect_left(names, name))
        if not self.waiting[length]:
            del self.waiting[length]

    def leave(self, name: RequestId) -> bool:
        """Stop a request; whether it was the last of its group."""
        group = self.running.pop(name)
        self.left[group] -= 1
        if self.left[group]:
            return False
        del self.left[group]
        return True

    def forget(self, name: RequestId) -> None:
        """The request has finished or moved; where its group has ended, others may join."""
        self.remove(name)
        if name in self.running and self.leave(name):
            self.is_full = False

    def next(self) -> RequestId:
        """The oldest that goes on with the open group, else the oldest."""
        return self.waiting.get(self.open_length or 0, self.queue)[0]


class SyncCoupled:
    """Scheduling policy: decides when a length group ends, or a request comes and nothing waits."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Moved, Predicted})

    def __init__(
        self, *, rule: ContinuousBatching, allocates: str, padding: float, bucket_tokens: int
    ) -> None:
        """`allocates` is one of `ALLOCATES`; lengths count in whole buckets.

        ValueError for another, for a padding below 0 and for buckets of no tokens.
        """
        if allocates not in ALLOCATES:
            raise ValueError(
                f"policy.allocates is {allocates}, it must be {' or '.join(ALLOCATES)}"
            )
        if not 0 <= padding < float("inf"):
            raise ValueError(f"policy.padding is {padding}, it must be at least 0")
        if bucket_tokens < 1:
            raise ValueError(f"policy.bucket_tokens is {bucket_tokens}, it must be at least 1")
        if not rule.chunked_prefill or rule.pads_prompts:
            raise ValueError("policy.rule must have chunked_prefill and not pads_prompts")
        self._rule, self._exact, self._padding = rule, allocates == "exact", padding
        self._bucket_tokens = bucket_tokens
        needs = {Capability.PREDICTIONS} | ({Capability.PROMISED_KV} if self._exact else set())
        self.requires = frozenset(needs)
        self._replicas: dict[GroupId, _Replica] = {}
        sized = [f"{kind}_of_{n}" for n in _SIZES for kind in ("groups", "requests_in_groups")]
        self._counts = Counter(dict.fromkeys(["groups", "placed", "preempted", *sized], 0))

    def observe(self, event: Event) -> None:
        """Note arrivals and new predictions; a length is read when a replica is asked."""
        if isinstance(event, Arrived | Moved):
            if isinstance(event, Moved):
                for replica in self._replicas.values():
                    replica.forget(event.request.id)
            self._of(event.group).unsorted[event.request.id] = None
        elif isinstance(event, Predicted):
            for replica in self._replicas.values():
                if event.request in replica.lengths:
                    replica.unsorted[event.request] = None

    def counts(self) -> Mapping[str, int]:
        """Length groups by size, requests placed in them, preemptions."""
        return self._counts

    def schedule(self, view: GroupView) -> Decision:
        """Placed requests run; length groups join once one has ended, or while there is room."""
        replica, draft = self._of(view.group.id), Draft(view)
        requests, running = view.requests, replica.running
        for name in [name for name in running if name not in requests]:
            replica.forget(name)
        for name in list(replica.unsorted):
            replica.remove(name)
            if name in requests:
                replica.add(name, self._left_tokens(view, requests[name]))
        views = [requests[name] for name in running]
        whole = self._run(draft, replica, views)
        if whole and replica.queue and not (views and replica.is_full):
            whole = self._place(draft, replica)
        return draft.decision(steady=whole)

    def _of(self, group: GroupId) -> _Replica:
        return self._replicas.setdefault(group, _Replica())

    def _left_tokens(self, view: GroupView, request: RequestView) -> int:
        """Predicted and padded, within the limit. ValueError where the KV can never hold it."""
        facts, kv, answer = request.facts, view.kv, request.facts.max_output_tokens
        if request.predicted is not None:
            known = request.predicted.mean_tokens
            if known <= 0:
                raise ValueError(f"r{facts.id} is predicted {known:g} tokens, it must be above 0")
            answer = min(answer, ceil((1 + self._padding) * known))
        left = max(1, answer - request.generated_tokens)
        limit = facts.max_output_tokens - request.generated_tokens
        left = max(1, min(-(-left // self._bucket_tokens) * self._bucket_tokens, limit))
        allocated = self._allocated_tokens(request, left)
        wanted, capacity = kv.blocks(allocated), kv.capacity_blocks(facts.service)
        if wanted > capacity:
            raise ValueError(
                f"r{facts.id} needs {wanted} blocks of KV for {allocated} tokens,"
                f" {capacity} are there"
            )
        return left

    def _allocated_tokens(self, request: RequestView, left: int) -> int:
        return request.context_tokens + (left if self._exact else 0)

    def _run(self, draft: Draft, replica: _Replica, views: list[RequestView]) -> bool:
        """Run what has been placed, decodes first; whether each runs for all that it misses."""
        most = self._rule.max_num_batched_tokens
        if not views or draft.try_run_all(views, most):
            return True
        decodes = list(filter(is_decode, views))
        if draft.try_run_all(decodes, most):
            prompts = [request for request in views if not draft.runs(request)]
            run_in_order(draft, prompts, budget=most - len(decodes))
        else:
            fill(draft, views, PriorityOrder(None, self._rule))
        for request in filter(draft.preempts, views):
            replica.leave(request.facts.id)
            replica.add(request.facts.id, self._left_tokens(draft.view, request))
            replica.is_full = True
            self._counts["preempted"] += 1
        return False

    def _place(self, draft: Draft, replica: _Replica) -> bool:
        """Add groups until KV or slots are full; False where the forward size ends it before."""
        view, most = draft.view, self._rule.max_num_batched_tokens
        budget = min(most - (view.max_num_batched_tokens - draft.tokens_left), draft.tokens_left)
        replica.is_full = False
        while replica.queue:
            request = view.requests[replica.next()]
            if budget <= 0:
                return False
            tokens = min(missing_tokens(request), budget)
            if not self._try_start(draft, replica, request, tokens):
                replica.is_full = True
                break
            budget -= tokens
            if tokens < missing_tokens(request):
                return False
        replica.open_length = None
        return True

    def _try_start(
        self, draft: Draft, replica: _Replica, request: RequestView, tokens: int
    ) -> bool:
        """Run a waiting request in its group if there are a slot and KV."""
        name, service, kv = request.facts.id, request.facts.service, draft.view.kv
        length = replica.lengths[name]
        allocated = self._allocated_tokens(request, length)
        spare = floor(self._rule.watermark * kv.capacity_blocks(service))
        needed = kv.blocks(allocated) + spare
        if (
            len(replica.running) >= self._rule.max_num_seqs
            # Before the draft's own ledger, which is a copy made when first asked for.
            or kv.free_blocks(service) < needed
            or draft.kv.free_blocks(service) < needed
            or not draft.has_room(request, tokens)
            or (self._exact and not draft.try_reserve(request, Reservation(allocated)))
        ):
            return False
        draft.try_add(request, tokens)
        replica.remove(name)
        if replica.open_length != length:
            replica.open_length, replica.newest = length, replica.newest + 1
            self._counts["groups"] += 1
        replica.running[name] = replica.newest
        replica.left[replica.newest] += 1
        self._count(replica.left[replica.newest])
        return True

    def _count(self, size: int) -> None:
        """A request has been placed in a group, which now has so many."""
        self._counts["placed"] += 1
        for least in _SIZES:
            self._counts[f"groups_of_{least}"] += size == least
            if size >= least:
                self._counts[f"requests_in_groups_of_{least}"] += least if size == least else 1
