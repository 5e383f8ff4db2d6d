"""A decision being written: says at once whether the next line of it still fits.

Also the ways to fill a batch from an order of requests: `continuous_batch` for policies that
decide every iteration, and `fill` and `fill_whole`, which are what priority orders mean.
"""

from collections.abc import Sequence
from itertools import takewhile
from math import floor

import numpy as np

from harness.interface.decisions import (
    Batch,
    ContinuousBatching,
    Decision,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
    Until,
)
from harness.interface.entities import RequestId, ServiceId
from harness.interface.kv_ledger import KvLedger
from harness.interface.views import GroupView, RequestView


class Draft:
    """One decision, written one batch at a time.

    `tokens_left` is what the open batch may still compute, `requests_left` how many more may run
    at the same time. The first request run opens a batch of its service on all free SMs.
    """

    def __init__(self, view: GroupView) -> None:
        """Start an empty decision on `view`, which must not change while it is written."""
        self.view = view
        self.tokens_left = view.max_num_batched_tokens
        self.requests_left = view.max_num_seqs
        self.share_left = view.free_share
        # Only while something is in flight are requests worth asking whether they run.
        self._in_flight = view.in_flight
        for batch in self._in_flight:
            self.requests_left -= len(batch.tokens)
        self._kv: KvLedger | None = None
        self._preempt: dict[RequestId, PreemptionMode] = {}
        self._reserve: dict[RequestId, Reservation] = {}
        self._batches: list[tuple[ServiceId, float, dict[RequestId, int]]] = []
        self._runs: set[RequestId] = set()

    @property
    def kv(self) -> KvLedger:
        """A scratch copy of what will be held if the draft is applied, made when first needed."""
        if self._kv is None:
            self._kv = self.view.kv.copy()
            for _, _, tokens in self._batches:
                self._kv.grow_all(tokens)
        return self._kv

    @property
    def service(self) -> ServiceId | None:
        """Of the open batch; None before the first."""
        return self._batches[-1][0] if self._batches else None

    def runs(self, request: RequestView) -> bool:
        """Whether the request is in a batch of this draft."""
        return request.facts.id in self._runs

    def preempts(self, request: RequestView) -> bool:
        """Whether this draft preempts the request."""
        return request.facts.id in self._preempt

    def open_batch(self, service: ServiceId, gpu_share: float) -> None:
        """Close the open batch and start one on `gpu_share` (0..1) of the SMs.

        ValueError when that share is not free.
        """
        if not 0 < gpu_share <= self.share_left + 1e-9:
            raise ValueError(f"share {gpu_share:g} of the SMs asked, {self.share_left:g} is free")
        self._batches.append((service, gpu_share, {}))
        self.share_left = max(0.0, self.share_left - gpu_share)
        self.tokens_left = self.view.max_num_batched_tokens

    def has_room(self, request: RequestView, tokens: int) -> bool:
        """Whether the open batch may take the request, whatever its KV."""
        facts = request.facts
        return (
            0 < tokens <= self.tokens_left
            and self.requests_left > 0
            and tokens <= request.context_tokens - request.kv_tokens
            and (self._batches[-1][0] == facts.service if self._batches else self.share_left > 0)
            and facts.id not in self._runs
            and facts.id not in self._preempt
            and not (self._in_flight and request.is_running)
        )

    def try_run(self, request: RequestView, tokens: int) -> bool:
        """Add the request to the open batch if its service, slots, tokens and KV allow.

        False changes nothing. A request runs once, computes no more than it misses, and is not
        preempted by the same decision.
        """
        return self.has_room(request, tokens) and self._try_add(request, tokens)

    def _try_add(self, request: RequestView, tokens: int) -> bool:
        """`try_run` of one that there is room for."""
        name = request.facts.id
        if not self.kv.try_grow(name, tokens):
            return False
        self._add(request.facts.service, {name: tokens}, tokens)
        return True

    def _add(self, service: ServiceId, tokens: dict[RequestId, int], total: int) -> None:
        if not self._batches:
            self.open_batch(service, self.share_left)
        self._batches[-1][2].update(tokens)
        self._runs.update(tokens)
        self.tokens_left -= total
        self.requests_left -= len(tokens)

    def try_run_all(self, requests: Sequence[RequestView], budget: int) -> bool:
        """Run every request for all that it misses, if that is at most `budget` tokens and fits.

        False changes nothing. Costs far less than one `try_run` each but does not look as closely:
        it is False, too, where something runs already or the group has several services.
        """
        if self._batches or self._in_flight or len(self.view.services) > 1 or not requests:
            return False
        missing = {r.facts.id: r.context_tokens - r.kv_tokens for r in requests}
        total = sum(missing.values())
        if (
            not len(missing) == len(requests) <= self.requests_left
            or total > min(budget, self.tokens_left)
            or min(missing.values()) <= 0
            or self.share_left <= 0
            or not self._preempt.keys().isdisjoint(missing)
            or not (self._kv or self.view.kv).fits(missing)
        ):
            return False
        if self._kv is not None:
            self._kv.grow_all(missing)
        self._add(requests[0].facts.service, missing, total)
        return True

    def try_reserve(self, request: RequestView, promise: Reservation) -> bool:
        """Promise KV to the request if every promise made can still be kept.

        False changes nothing. ValueError for an impossible promise, and for a second promise to
        the same request from another lender: one decision says it once.
        """
        name = request.facts.id
        earlier = self._reserve.get(name)
        if earlier is not None and earlier.lender != promise.lender:
            raise ValueError(f"r{name} borrows from two lenders in one decision")
        if not self.kv.try_reserve(name, promise):
            return False
        self._reserve[name] = promise
        return True

    def preempt(self, request: RequestView, how: PreemptionMode = PreemptionMode.RECOMPUTE) -> None:
        """Drop the request's KV and promise.

        ValueError when it runs, or lends to a request by a promise of this draft: preemptions are
        applied first, so that promise could not be kept.
        """
        name = request.facts.id
        if name in self._runs or (self._in_flight and request.is_running):
            raise ValueError(f"r{name} is running and cannot be preempted")
        if guests := self.kv.borrowers(name) & self._reserve.keys():
            raise ValueError(f"r{name} has just lent to r{min(guests)} and cannot be preempted")
        if self._reserve.pop(name, None) is not None:
            self.kv.reserve(name, self.view.kv.reservation(name))
        self.kv.preempt(name)
        self._preempt[name] = how

    def decision(
        self,
        *,
        until: Until = Until.ITERATION,
        wake_s: float | None = None,
        steady: bool = False,
    ) -> Decision:
        """Return what was written; `until` holds for all its batches."""
        launch = tuple(
            Batch(service, tokens, gpu_share, until)
            for service, gpu_share, tokens in self._batches
            if tokens
        )
        return Decision(self._preempt, self._reserve, launch, wake_s, steady)


def is_decode(request: RequestView) -> bool:
    """Whether only the KV of its last output token is missing."""
    held = request.kv_tokens
    return 0 < held == request.context_tokens - 1 >= request.facts.prompt_tokens


def next_tokens(request: RequestView, chunk: int) -> int:
    """Tokens the request can compute next: the rest of its context, at most `chunk`."""
    return min(request.context_tokens - request.kv_tokens, chunk)


def continuous_batch(
    draft: Draft,
    order: Sequence[RequestView],
    *,
    how: PreemptionMode = PreemptionMode.RECOMPUTE,
    budget: int | None = None,
) -> None:
    """Run requests in order, best first; when KV is short, preempt from behind in the same order.

    `budget` bounds the tokens added here. Non-preemptive policies put requests that hold KV
    first, so a newcomer has nobody behind it to preempt and waits. Requests of another service than
    the open batch are passed over, but may be preempted.
    """
    left = draft.tokens_left if budget is None else budget
    if draft.try_run_all(order, left):
        return
    # Where newcomers wait for KV, those before them often fit all the same.
    front = list(takewhile(_holds_kv, order))
    first = 0
    if len(front) < len(order) and draft.try_run_all(front, left):
        first = len(front)
        left -= draft.view.max_num_batched_tokens - draft.tokens_left
    behind = len(order)
    for place in range(first, len(order)):
        request = order[place]
        tokens = next_tokens(request, min(left, draft.tokens_left))
        if tokens <= 0 or draft.requests_left <= 0:
            return
        if not draft.has_room(request, tokens):
            continue
        while not draft._try_add(request, tokens):
            behind -= 1
            while behind > place and not _can_be_preempted(draft, order[behind]):
                behind -= 1
            if behind <= place:
                return
            draft.preempt(order[behind], how)
        left -= tokens


def _holds_kv(request: RequestView) -> bool:
    return request.kv_tokens > 0


def _can_be_preempted(draft: Draft, request: RequestView) -> bool:
    return (
        request.kv_tokens > 0
        and not draft.runs(request)
        and not (draft._in_flight and request.is_running)
        and not draft.preempts(request)
    )


def in_priority_order(view: GroupView, priority_order: PriorityOrder) -> list[RequestView]:
    """Return the requests that are not running, lowest key first, then lowest id.

    ValueError when the key does not give one number per request.
    """
    table = view.table
    key = table.arrival_s if priority_order.key is None else priority_order.key(table)
    if key.shape != table.id.shape:
        raise ValueError(f"key of shape {key.shape} for {len(table.id)} requests")
    ordered = (
        view.requests[RequestId(int(name))] for name in table.id[np.lexsort((table.id, key))]
    )
    return [request for request in ordered if not request.is_running]


def fill(draft: Draft, order: Sequence[RequestView], rule: ContinuousBatching) -> None:
    """Fill one batch as a priority order asks, preempting (RECOMPUTE) from behind if KV is short.

    `order` holds all requests of the group that are not running, best first; in a batch of chunked
    prefill those that decode stand before those in mid-prompt. Nobody overtakes: the first newcomer
    that cannot be admitted ends admission.
    ValueError for a chunked-prefill rule that pads prompts.
    """
    if rule.chunked_prefill and rule.pads_prompts:
        raise ValueError("a chunked-prefill batch does not pad its prompts")
    if not order:
        return
    holders = [request for request in order if request.kv_tokens > 0]
    newcomers = [request for request in order if request.kv_tokens <= 0]
    if rule.chunked_prefill:
        # A decode never waits behind somebody else's prompt.
        holders.sort(key=lambda request: not is_decode(request))
        left, kept = _run_holders(draft, holders, rule.max_num_batched_tokens)
        if kept == len(holders):
            _admit_chunks(draft, newcomers, rule, left, kept)
    elif not _admit_prompts(draft, newcomers, rule, len(holders)):
        _run_holders(draft, holders, None)


def fill_whole(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> float | None:
    """Fill one batch of whole requests, best first.

    `order` holds all requests of the group, none of which runs. Returns when to look again where
    the batch is to wait for more requests. Who has run before is not kept waiting.
    """
    holders = [request for request in order if request.kv_tokens > 0]
    if order and not holders and len(order) < rule.max_num_seqs:
        due_s = min(request.facts.arrival_s for request in order) + rule.max_wait_s
        if draft.view.now_s < due_s:
            return due_s
    if not _run_whole(draft, order, rule):
        # The best newcomer does not fit beside those that hold KV already.
        _run_whole(draft, holders, rule)
    return None


def _run_whole(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> int:
    """Run requests in order for all that they miss, with KV for their longest answers; how many."""
    for place, request in enumerate(order[: rule.max_num_seqs]):
        facts, missing = request.facts, request.context_tokens - request.kv_tokens
        longest = Reservation(facts.prompt_tokens + facts.max_output_tokens)
        if (
            not draft.has_room(request, missing)
            or (request.reservation != longest and not draft.try_reserve(request, longest))
            or not draft.try_run(request, missing)
        ):
            return place
    return min(len(order), rule.max_num_seqs)


def _run_holders(
    draft: Draft, holders: Sequence[RequestView], budget: int | None
) -> tuple[int, int]:
    """Run holders in order, the last giving way to the first; tokens left, and holders kept.

    Without a budget there is no bound, and no tokens left are told.
    """
    left, kept = budget, len(holders)
    for place, request in enumerate(holders):
        if place >= kept:
            break
        missing = request.context_tokens - request.kv_tokens
        tokens = missing if left is None else min(missing, left)
        if not draft.has_room(request, tokens):
            break
        while not draft.try_run(request, tokens):
            kept -= 1
            draft.preempt(holders[kept])
            if kept == place:
                break
        else:
            left = None if left is None else left - tokens
    return left or 0, kept


def _admit_prompts(
    draft: Draft, newcomers: Sequence[RequestView], rule: ContinuousBatching, holders: int
) -> int:
    """Run whole prompts in order while the rule allows; how many."""
    admitted = useful = longest = 0
    for request in newcomers:
        count = admitted + 1
        useful += request.context_tokens
        longest = max(longest, request.context_tokens)
        padded = count * longest if rule.pads_prompts else useful
        if (
            holders + count > rule.max_num_seqs
            or padded > rule.max_num_batched_tokens
            or (rule.pads_prompts and padded - useful > rule.max_padding_tokens)
            or not _leaves_spare(draft, request, rule)
            or not draft.try_run(request, request.context_tokens)
        ):
            break
        admitted = count
    return admitted


def _admit_chunks(
    draft: Draft,
    newcomers: Sequence[RequestView],
    rule: ContinuousBatching,
    left: int,
    holders: int,
) -> None:
    """Start prompts in order with what is left of the budget, if they will fit whole."""
    for admitted, request in enumerate(newcomers):
        tokens = min(request.context_tokens, left)
        if (
            holders + admitted >= rule.max_num_seqs
            or left <= 0
            or not _leaves_spare(draft, request, rule)
            or not draft.try_run(request, tokens)
        ):
            break
        left -= tokens


def _leaves_spare(draft: Draft, request: RequestView, rule: ContinuousBatching) -> bool:
    """Whether the watermark stays free when the request's whole context is held."""
    service = request.facts.service
    spare = floor(rule.watermark * draft.kv.capacity_blocks(service))
    return draft.kv.free_blocks(service) - draft.kv.blocks(request.context_tokens) >= spare
