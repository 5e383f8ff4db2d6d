"""Ways to fill a batch from an order of requests.

`continuous_batch` is for policies that write a `Draft` every iteration; `fill_continuous` and
`fill_static` are what a `PriorityOrder` means, rule by rule.
"""

from collections.abc import Sequence
from itertools import takewhile
from math import floor

import numpy as np

from harness.interface.decisions import (
    ContinuousBatching,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
)
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView, RequestView


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
    victims: Sequence[RequestView] | None = None,
) -> None:
    """Run requests in order, best first; when KV is short, preempt from the end of the order.

    Where `victims` are given, those are preempted instead, the last one first, wherever they are in
    the order; they may be nobody. `budget` bounds the tokens added here. A non-preemptive policy
    puts requests that hold KV first: a newcomer then has none behind it to preempt, and waits.
    Requests of another service than the open batch's are passed over, but may be preempted.
    """
    left = draft.tokens_left if budget is None else budget
    if draft.try_run_all(order, left):
        return
    # Where newcomers wait for KV, the holders before them often fit all at once.
    front = list(takewhile(_holds_kv, order))
    first = 0
    if len(front) < len(order) and draft.try_run_all(front, left):
        first = len(front)
        left -= draft.view.max_num_batched_tokens - draft.tokens_left
    yielding = list(order if victims is None else victims)
    for place in range(first, len(order)):
        request = order[place]
        tokens = next_tokens(request, min(left, draft.tokens_left))
        if tokens <= 0 or draft.requests_left <= 0:
            return
        if not draft.has_room(request, tokens):
            continue
        while not draft.try_add(request, tokens):
            # Of the order itself, only those behind the request give way.
            victim = _last_but_for(request, yielding, draft, place + 1 if victims is None else 0)
            if victim is None:
                return
            draft.preempt(victim, how)
        left -= tokens


def _last_but_for(
    request: RequestView, yielding: list[RequestView], draft: Draft, first: int
) -> RequestView | None:
    """Take those from the end, but for the `first` ones, until one can be preempted."""
    while len(yielding) > first:
        victim = yielding.pop()
        if victim is not request and draft.can_preempt(victim):
            return victim
    return None


def _holds_kv(request: RequestView) -> bool:
    return request.kv_tokens > 0


def keys_of(table: RequestTable, priority_order: PriorityOrder) -> Floats:
    """The key of every request; one that has none yet, a NaN, comes last like an infinite one.

    ValueError when the key does not give one number per request.
    """
    key = table.arrival_s if priority_order.key is None else priority_order.key(table)
    if key.shape != table.id.shape:
        raise ValueError(f"key of shape {key.shape} for {len(table.id)} requests")
    return np.where(np.isnan(key), np.inf, key)


def in_priority_order(view: GroupView, priority_order: PriorityOrder) -> list[RequestView]:
    """Return the requests that are not running, lowest key first, then lowest id."""
    table = view.table
    key = keys_of(table, priority_order)
    ordered = (
        view.requests[RequestId(int(name))] for name in table.id[np.lexsort((table.id, key))]
    )
    return [request for request in ordered if not request.is_running]


def fill_continuous(draft: Draft, order: Sequence[RequestView], rule: ContinuousBatching) -> None:
    """Fill one iteration by a rule of continuous batching, preempting (RECOMPUTE) if KV is short.

    `order` has all requests of the group that are not running, best first. Holders of KV are
    preempted from its end; under chunked prefill those that decode come before those in mid-prompt.
    Admission is head-of-line: it ends at the first newcomer that does not fit.
    ValueError for a chunked-prefill rule that pads prompts.
    """
    if rule.chunked_prefill and rule.pads_prompts:
        raise ValueError("a chunked-prefill batch does not pad its prompts")
    if not order:
        return
    holders = [request for request in order if request.kv_tokens > 0]
    newcomers = [request for request in order if request.kv_tokens <= 0]
    if rule.chunked_prefill:
        # A decode never waits for the chunks of another request's prompt.
        holders.sort(key=lambda request: not is_decode(request))
        left, kept = _run_holders(draft, holders, rule.max_num_batched_tokens)
        if kept == len(holders):
            _admit_chunks(draft, newcomers, rule, left, kept)
    elif not _admit_prompts(draft, newcomers, rule, len(holders)):
        _run_holders(draft, holders, None)


def fill_static(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> float | None:
    """Fill one batch by a rule of static batching, best first.

    `order` has all requests of the group, none of which runs. Returns when (seconds) to ask again
    if the batch should wait for more requests, else None. A batch in which some hold KV, because
    they have run before, does not wait.
    """
    holders = [request for request in order if request.kv_tokens > 0]
    if order and not holders and len(order) < rule.max_num_seqs:
        due_s = min(request.facts.arrival_s for request in order) + rule.max_wait_s
        if draft.view.now_s < due_s:
            return due_s
    if not _run_whole(draft, order, rule):
        # The first in order is a newcomer that does not fit beside those that hold KV.
        _run_whole(draft, holders, rule)
    return None


def _run_whole(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> int:
    """Run requests in order, each with KV for its longest answer, and return how many fit."""
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
    """Run those that hold KV in order, preempting from the end where KV is short.

    Returns what is left of the token budget (0 without one), and how many have not been preempted.
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
    """Admit whole prompts in order while the rule allows, and return how many."""
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
            or not _leaves_watermark(draft, request, rule)
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
    """Admit prompts in order, cut to what is left of the budget; KV must do for all of each."""
    for admitted, request in enumerate(newcomers):
        tokens = min(request.context_tokens, left)
        if (
            holders + admitted >= rule.max_num_seqs
            or left <= 0
            or not _leaves_watermark(draft, request, rule)
            or not draft.try_run(request, tokens)
        ):
            break
        left -= tokens


def _leaves_watermark(draft: Draft, request: RequestView, rule: ContinuousBatching) -> bool:
    """Whether the rule's watermark would stay free with the request's whole context held."""
    service = request.facts.service
    spare = floor(rule.watermark * draft.kv.capacity_blocks(service))
    return draft.kv.free_blocks(service) - draft.kv.blocks(request.context_tokens) >= spare
