"""SyncCoupled and SyncFastGen: requests of one predicted length start and end together.

Paper      EcoServe (arXiv 2411.06364) sec. 2.2.
Idea       Waiting requests of the same predicted length are a group; groups join the batch until
           the KV is full, and again when a group has ended, not in every iteration.
Map        2.2 groups of one length    -> `_in_order`; until the KV is full -> `_place`
           2.2 SyncCoupled, SyncFastGen -> `allocates`: exact (prompt and answer) or blocks (the
           prompt, then block by block; who is preempted is computed again)
Constants  `rule`: forward size and most requests; `padding`: share added to a prediction
Differs    the paper is silent on all of this: the group of the oldest request comes first; one that
           does not fit whole is split, and ends the filling; while nothing waits for room a
           newcomer joins at once; a group's prompts beyond the forward size follow in the next
           iterations. Who has been preempted is grouped by what is left of its answer. An answer
           that outgrows its exact allocation grows on block by block
Checked    baselines/tests/test_sync_coupled.py::test_groups_take_turns_by_hand
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Reservation
from harness.interface.draft import Draft
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Event
from harness.interface.filling import fill_continuous
from harness.interface.policies import Capability
from harness.interface.tables import Ints, RequestTable
from harness.interface.views import GroupView, RequestView, missing_tokens

ALLOCATES = ("exact", "blocks")
_SIZES = (2, 4, 12)
"""Sizes of length groups that are counted: figure 2."""


@dataclass(slots=True)
class _Replica:
    """Requests that run, in the order of their placement, with their length groups."""

    running: dict[RequestId, int] = field(default_factory=dict)
    left: Counter[int] = field(default_factory=Counter)  # members of a group that still run
    newest: int = 0
    open_length: int | None = None  # of the group that still takes requests
    is_full: bool = False  # requests wait for room

    def leave(self, name: RequestId) -> bool:
        """Stop a request; whether it was the last of its group."""
        group = self.running.pop(name)
        self.left[group] -= 1
        if self.left[group]:
            return False
        del self.left[group]
        return True


class SyncCoupled:
    """Scheduling policy: decides when a length group ends, or a request comes and nothing waits."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, allocates: str, padding: float) -> None:
        """`allocates` is one of `ALLOCATES`. ValueError for another, or a padding below 0."""
        if allocates not in ALLOCATES:
            raise ValueError(
                f"policy.allocates is {allocates}, it must be {' or '.join(ALLOCATES)}"
            )
        if not 0 <= padding < float("inf"):
            raise ValueError(f"policy.padding is {padding}, it must be at least 0")
        if not rule.chunked_prefill or rule.pads_prompts:
            raise ValueError("policy.rule must have chunked_prefill and not pads_prompts")
        self._rule, self._exact, self._padding = rule, allocates == "exact", padding
        self._replicas: dict[GroupId, _Replica] = {}
        names = ("groups", "placed")
        sized = [f"{kind}_of_{n}" for n in _SIZES for kind in ("groups", "requests_in_groups")]
        self._counts = Counter(dict.fromkeys([*names, *sized, "preempted"], 0))

    def observe(self, event: Event) -> None:
        """Nothing to learn: the view shows what has gone."""

    def counts(self) -> Mapping[str, int]:
        """Length groups by size, requests placed in them, preemptions."""
        return self._counts

    def schedule(self, view: GroupView) -> Decision:
        """Placed requests run; length groups join once one has ended, or while there is room."""
        replica, draft = self._replicas.setdefault(view.group.id, _Replica()), Draft(view)
        requests, running = view.requests, replica.running
        for name in [name for name in running if name not in requests]:
            replica.is_full &= not replica.leave(name)
        views = [requests[name] for name in running]
        whole = self._run(draft, replica, views)
        if whole and len(views) < len(requests) and not (views and replica.is_full):
            whole = self._place(draft, replica)
        return draft.decision(steady=whole)

    def _run(self, draft: Draft, replica: _Replica, views: list[RequestView]) -> bool:
        """Run what has been placed, decodes first; whether each runs for all that it misses."""
        if not views or draft.try_run_all(views, self._rule.max_num_batched_tokens):
            return True
        fill_continuous(draft, views, self._rule)
        for request in filter(draft.preempts, views):
            replica.leave(request.facts.id)
            replica.is_full = True
            self._counts["preempted"] += 1
        return False

    def _place(self, draft: Draft, replica: _Replica) -> bool:
        """Add groups until KV or seats are full; False where the forward size ends it before."""
        view, rule, table = draft.view, self._rule, draft.view.table
        (service,) = view.services
        spare = floor(rule.watermark * view.kv.capacity_blocks(service))
        rows = np.flatnonzero(~np.isin(table.id, list(replica.running)))
        answer = self._answers_tokens(table, rows)
        left = answer - table.generated_tokens[rows]
        allocated = table.prompt_tokens[rows] + (
            answer if self._exact else table.generated_tokens[rows]
        )
        self._refuse_too_long(view, table.id[rows], allocated)
        used = view.max_num_batched_tokens - draft.tokens_left
        budget = min(rule.max_num_batched_tokens - used, draft.tokens_left)
        replica.is_full = False
        for at in self._in_order(left, replica.open_length).tolist():
            request = view.requests[RequestId(int(table.id[rows[at]]))]
            if budget <= 0:
                return False
            tokens = min(missing_tokens(request), budget)
            replica.is_full = not (
                len(replica.running) < rule.max_num_seqs
                and draft.has_room(request, tokens)
                and draft.try_reserve(request, Reservation(int(allocated[at])), spare_blocks=spare)
            )
            if replica.is_full:
                break
            draft.try_add(request, tokens)
            budget -= tokens
            self._join(replica, request.facts.id, int(left[at]))
            if tokens < missing_tokens(request):
                return False
        replica.open_length = None
        return True

    def _answers_tokens(self, table: RequestTable, rows: Ints) -> Ints:
        """Predicted answers, padded, within the limit and beyond what has been generated."""
        known = table.predicted_mean_tokens[rows]
        if (known <= 0).any():
            raise ValueError(f"a predicted length of {known.min():g} tokens, it must be above 0")
        limit = table.max_output_tokens[rows]
        answer = np.where(np.isnan(known), limit, np.ceil((1 + self._padding) * known))
        longest: Ints = np.minimum(answer, limit).astype(np.int64)
        return np.maximum(longest, table.generated_tokens[rows] + 1)

    def _refuse_too_long(self, view: GroupView, names: Ints, allocated: Ints) -> None:
        (service,) = view.services
        capacity = view.kv.capacity_blocks(service)
        longest = int(np.argmax(allocated))
        wanted = view.kv.blocks(int(allocated[longest]))
        if wanted > capacity:
            raise ValueError(
                f"r{names[longest]} needs {wanted} blocks of KV for {allocated[longest]} tokens,"
                f" {capacity} are there"
            )

    def _in_order(self, left: Ints, open_length: int | None) -> Ints:
        """Rows by group: what goes on with the open one, then that of the oldest request."""
        lengths, oldest, group = np.unique(left, return_index=True, return_inverse=True)
        if open_length is not None:
            oldest[lengths == open_length] = -1
        order: Ints = np.argsort(oldest[group], kind="stable")
        return order

    def _join(self, replica: _Replica, name: RequestId, length: int) -> None:
        """Place a request in the open group, or open one for its length."""
        if replica.open_length != length:
            replica.open_length, replica.newest = length, replica.newest + 1
            self._counts["groups"] += 1
        replica.running[name] = replica.newest
        replica.left[replica.newest] += 1
        size = replica.left[replica.newest]
        self._counts["placed"] += 1
        for least in _SIZES:
            self._counts[f"groups_of_{least}"] += size == least
            if size >= least:
                self._counts[f"requests_in_groups_of_{least}"] += least if size == least else 1
