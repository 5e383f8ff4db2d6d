"""Ways to fill a batch from an order of requests.

`continuous_batch` is for policies that write a `Draft` every iteration; `fill_continuous`,
`fill_displacing`, `fill_by_phase` (in `shared_filling`) and `fill_static` are
what a `PriorityOrder` means, rule by rule.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import floor
from types import MappingProxyType

import numpy as np

from harness.core.draft import Draft
from harness.core.preemptive_admission import preempt_by, renew_promises, take_slots
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
)
from harness.interface.entities import RequestId
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView, RequestView, missing_tokens

NOTHING_RESERVED: Mapping[RequestId, int] = MappingProxyType({})


def is_decode(request: RequestView) -> bool:
    """Whether only the KV of its last output token is missing."""
    held = request.kv_tokens + request.swapped_tokens
    return 0 < held == request.context_tokens - 1 >= request.facts.prompt_tokens


def next_tokens(draft: Draft, request: RequestView, chunk: int) -> int:
    """Tokens the request can compute next: the rest of its context, at most `chunk`."""
    return min(draft.missing_tokens(request), chunk)


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
    the order; there may be no victim. `budget` bounds the tokens added here. A non-preemptive
    policy puts requests that hold KV first: a newcomer then has none behind it to preempt, and
    waits. Requests of another service than the open batch's are passed over, but may be preempted.
    A request to be swapped out that finds no room in host memory is recomputed.
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
        tokens = next_tokens(draft, request, min(left, draft.tokens_left))
        if tokens <= 0 or draft.requests_left <= 0:
            return
        if not draft.has_room(request, tokens):
            continue
        while not draft.try_add(request, tokens):
            # Of the order itself, only those behind the request give way.
            victim = _last_but_for(request, yielding, draft, place + 1 if victims is None else 0)
            if victim is None:
                return
            preempt_by(draft, victim, how)
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


def in_priority_order(
    view: GroupView, table: RequestTable, priority_order: PriorityOrder, key: Floats
) -> list[RequestView]:
    """Return the requests of a table that are not running, lowest key first, then lowest id.

    Under continuous batching without requests that hold no KV and are behind the first
    `max_num_seqs`: an iteration cannot admit them. Every request where holders are swapped out,
    where those of another service may be admitted, or where services may starve.
    """
    rule = priority_order.rule
    is_cut = priority_order.starves_after_s is None and (
        priority_order.displaces is not None
        or (priority_order.gives_way is PreemptionMode.RECOMPUTE and len(view.services) == 1)
    )
    if not is_cut or isinstance(rule, StaticBatching):
        return by_key(view, table, key)
    return by_key(view, table, key, max_num_seqs=rule.max_num_seqs)


def by_key(
    view: GroupView,
    table: RequestTable,
    key: Floats,
    *,
    max_num_seqs: int | None = None,
) -> list[RequestView]:
    """The same by the keys (n,) of a table's requests.

    Behind the first `max_num_seqs`, if that is given, only requests that hold KV.
    """
    rows, requests = np.lexsort((table.id, key)), view.requests
    if max_num_seqs is not None:
        front, behind = rows[:max_num_seqs], rows[max_num_seqs:]
        rows = np.concatenate([front, behind[table.kv_tokens[behind] > 0]])
    ordered = (requests[RequestId(name)] for name in table.id[rows].tolist())
    return [request for request in ordered if not request.is_running]


def fill_continuous(
    draft: Draft,
    order: Sequence[RequestView],
    rule: ContinuousBatching,
    reserved: Mapping[RequestId, int] = NOTHING_RESERVED,
    gives_way: PreemptionMode = PreemptionMode.RECOMPUTE,
) -> None:
    """Fill one iteration by a rule of continuous batching, preempting as said if KV is short.

    `order` has all requests of the group that are not running, best first. Holders of KV are
    preempted from its end; under chunked prefill decodes come before requests in mid-prompt.
    Admission is head-of-line: it ends at the first newcomer that does not fit. Requests whose
    KV is in host memory are admitted after the holders, and no newcomer while there are any.
    `reserved` has the context tokens to set KV aside for when a request is admitted.
    ValueError for a chunked-prefill rule that pads prompts.
    """
    if rule.chunked_prefill and rule.pads_prompts:
        raise ValueError("a chunked-prefill batch does not pad its prompts")
    if not order:
        return
    renew_promises(draft, order, reserved)
    holders = [request for request in order if request.kv_tokens > 0]
    newcomers = [request for request in order if request.kv_tokens <= 0]
    swapped = [request for request in newcomers if request.swapped_tokens > 0]
    if rule.chunked_prefill:
        # A decode never waits for the chunks of another request's prompt.
        holders.sort(key=lambda request: not is_decode(request))
    elif not swapped and admit_prompts(draft, newcomers, rule, len(holders), reserved):
        return
    left, kept = run_holders(draft, holders, rule.max_num_batched_tokens, gives_way)
    if kept == len(holders) and (swapped or rule.chunked_prefill):
        _admit_chunks(draft, swapped or newcomers, rule, left, kept, reserved)


def fill_displacing(
    draft: Draft,
    order: Sequence[RequestView],
    rule: ContinuousBatching,
    how: Displaced,
    reserved: Mapping[RequestId, int] = NOTHING_RESERVED,
) -> None:
    """Fill one iteration with the first requests of the order, displacing requests behind them.

    Arguments as of `fill_continuous`. Those with slots that decode all run, and prompts share what
    they leave of the budget; without chunked prefill, whole prompts run alone first.
    """
    renew_promises(draft, order, reserved)
    in_slots = take_slots(draft, order, rule, how, reserved)
    decodes = list(filter(is_decode, in_slots))
    prompts = [request for request in in_slots if not is_decode(request)]
    if draft.kv.caches:
        # In the order in which vLLM takes KV: what is cached depends on it.
        prompts.sort(key=lambda request: request.kv_tokens <= 0)
    if not rule.chunked_prefill:
        fitting = whole_prompts(prompts, rule)
        for request in fitting or decodes:
            _promise_and_run(draft, request, draft.missing_tokens(request), reserved)
        return
    if not draft.try_run_all(decodes, rule.max_num_batched_tokens):
        for request in decodes:
            draft.try_run(request, 1)
    left = rule.max_num_batched_tokens - len(decodes)
    for request in prompts:
        tokens = next_tokens(draft, request, left)
        if tokens <= 0 or not _promise_and_run(draft, request, tokens, reserved):
            break
        left -= tokens


def run_holders(
    draft: Draft,
    holders: Sequence[RequestView],
    budget: int,
    gives_way: PreemptionMode,
    *,
    victims: Sequence[RequestView] | None = None,
) -> tuple[int, int]:
    """Run requests that hold KV in order, preempting from the end where KV is short.

    That is the end of `victims`, if given: the holders and others, in order. Returns what is left
    of the token budget, and how many of those have not been preempted.
    """
    yielding = holders if victims is None else victims
    left, kept = budget, len(yielding)
    if draft.try_run_all(holders, budget):
        return budget - (draft.view.max_num_batched_tokens - draft.tokens_left), kept
    for request in holders:
        tokens = next_tokens(draft, request, left)
        if not draft.has_room(request, tokens):
            break
        while not draft.try_run(request, tokens):
            kept -= 1
            preempt_by(draft, yielding[kept], gives_way)
            if yielding[kept] is request:
                break
        else:
            left -= tokens
    return left, kept


def whole_prompts(
    prompts: Sequence[RequestView], rule: ContinuousBatching
) -> Sequence[RequestView]:
    """As many of these prompts, in order, as one iteration may compute whole, cached or not."""
    useful = longest = 0
    for place, request in enumerate(prompts):
        useful += request.context_tokens
        longest = max(longest, request.context_tokens)
        padded = (place + 1) * longest if rule.pads_prompts else useful
        if padded > rule.max_num_batched_tokens or (
            rule.pads_prompts and padded - useful > rule.max_padding_tokens
        ):
            return prompts[:place]
    return prompts


def admit_prompts(
    draft: Draft,
    newcomers: Sequence[RequestView],
    rule: ContinuousBatching,
    holders: int,
    reserved: Mapping[RequestId, int],
) -> int:
    """Admit whole prompts in order while the rule allows, and return how many."""
    admitted = 0
    for request in whole_prompts(newcomers[: max(0, rule.max_num_seqs - holders)], rule):
        tokens = draft.missing_tokens(request)
        if not _leaves_watermark(draft, request, rule, reserved) or not _promise_and_run(
            draft, request, tokens, reserved
        ):
            break
        admitted += 1
    return admitted


def _admit_chunks(
    draft: Draft,
    newcomers: Sequence[RequestView],
    rule: ContinuousBatching,
    left: int,
    holders: int,
    reserved: Mapping[RequestId, int],
) -> None:
    """Admit prompts in order, cut to what is left of the budget; KV must do for all of each."""
    for admitted, request in enumerate(newcomers):
        tokens = next_tokens(draft, request, left)
        if (
            holders + admitted >= rule.max_num_seqs
            or left <= 0
            or not _leaves_watermark(draft, request, rule, reserved)
            or not _promise_and_run(draft, request, tokens, reserved)
        ):
            break
        left -= tokens


def _promise_and_run(
    draft: Draft, request: RequestView, tokens: int, reserved: Mapping[RequestId, int]
) -> bool:
    """`try_run`, after what is reserved for a newcomer has been promised to it."""
    wanted = reserved.get(request.facts.id, 0)
    if not draft.has_room(request, tokens):
        return False
    if (
        wanted > 0
        and request.kv_tokens <= 0
        and not draft.try_reserve(request, Reservation(wanted))
    ):
        return False
    return draft.try_add(request, tokens)


def _leaves_watermark(
    draft: Draft,
    request: RequestView,
    rule: ContinuousBatching,
    reserved: Mapping[RequestId, int],
) -> bool:
    """Whether the watermark would stay free with the whole context held, or what is reserved."""
    service, kv = request.facts.service, draft.kv
    spare = floor(rule.watermark * kv.capacity_blocks(service))
    tokens = max(request.context_tokens, reserved.get(request.facts.id, 0))
    return kv.free_blocks(service) - kv.newcomer_blocks(request.facts.id, tokens) >= spare


def fill_static(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> float | None:
    """Fill one batch by a rule of static batching, best first.

    `order` has all requests of the group, of which no one runs. Returns when (seconds) to ask again
    if the batch should wait for more requests, else None. A batch in which some hold KV, because
    they have run before, does not wait.
    """
    holders = [request for request in order if request.kv_tokens > 0]
    if order and not holders and len(order) < rule.max_num_seqs:
        due_s = min(request.facts.arrival_s for request in order) + rule.max_wait_s
        if draft.view.now_s < due_s:
            return due_s
    if not _run_whole(draft, order, rule):
        # The first in order is a newcomer that does not fit beside requests that hold KV.
        _run_whole(draft, holders, rule)
    return None


def _run_whole(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> int:
    """Run requests in order, each with KV for its longest answer, and return how many fit."""
    for place, request in enumerate(order[: rule.max_num_seqs]):
        facts, missing = request.facts, missing_tokens(request)
        longest = Reservation(facts.prompt_tokens + facts.max_output_tokens)
        if (
            not draft.has_room(request, missing)
            or (request.reservation != longest and not draft.try_reserve(request, longest))
            or not draft.try_run(request, missing)
        ):
            return place
    return min(len(order), rule.max_num_seqs)
