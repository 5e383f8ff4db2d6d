"""Filling a batch from an order of requests, best first: what a `PriorityOrder` means.

Engines take `one_batch`. Policies that write a `Draft` fill a batch by a rule with `fill`, or parts
of one with `run_in_order` and `admit`.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import floor, inf
from types import MappingProxyType

from harness.core.draft import Draft
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
    has_phases,
)
from harness.interface.entities import RequestId, ServiceId
from harness.interface.tables import TIE_S
from harness.interface.views import GroupView, RequestView, missing_tokens

NOTHING_RESERVED: Mapping[RequestId, int] = MappingProxyType({})


def is_decode(request: RequestView) -> bool:
    """Whether only the KV of its last output token is missing."""
    held = request.kv_tokens + request.swapped_tokens
    return 0 < held == request.context_tokens - 1 >= request.facts.prompt_tokens


def _holds_kv(request: RequestView) -> bool:
    return request.kv_tokens > 0


def one_batch(
    group: GroupView,
    priority_order: PriorityOrder,
    order: Sequence[RequestView],
    reserved: Mapping[RequestId, int] = NOTHING_RESERVED,
    wake_s: float | None = None,
    *,
    ran_s: Mapping[ServiceId, float],
    moves: bool = False,
) -> Decision:
    """What a priority order means now: the batch of the first requests in it that fit.

    `order` has the requests of the group, of which none runs, best first. `reserved` has the
    context tokens to set KV aside for when a request is admitted, `ran_s` when the last batch of
    each service ended, `moves` says whether keys move with progress. The policy is asked again at
    `wake_s`, or before where the batch rule says so.
    """
    draft, rule = Draft(group), priority_order.rule
    if isinstance(rule, StaticBatching):
        times_s = [s for s in (_fill_static(draft, order, rule), wake_s) if s is not None]
        return draft.decision(until=rule.until, wake_s=min(times_s, default=None))
    if not has_phases(group.group.services, priority_order):
        fill(draft, order, priority_order, reserved)
        return draft.decision(wake_s=wake_s)
    starves_s = _starves_s(order, priority_order, ran_s)
    starved = [service for service, at_s in starves_s.items() if at_s <= group.now_s]
    first = sorted(order, key=lambda request: request.facts.service not in starved)
    in_slots = fill(draft, first, priority_order)
    is_looked_at = wake_s is not None or priority_order.promotion is not None
    stays = _stays(draft, in_slots, priority_order, moves=moves)
    if is_looked_at or draft.service in starved or not stays:
        return draft.decision(wake_s=wake_s)
    times_s = [at_s for service, at_s in starves_s.items() if service != draft.service]
    stays_s = min([at_s for at_s in times_s if group.now_s < at_s < inf], default=None)
    return draft.decision(wake_s=stays_s, steady=True)


def _starves_s(
    requests: Sequence[RequestView], order: PriorityOrder, ran_s: Mapping[ServiceId, float]
) -> dict[ServiceId, float]:
    """When services with requests are starved if they do not run."""
    if order.starves_after_s is None:
        return {}
    came_s: dict[ServiceId, float] = {}
    for facts in (request.facts for request in requests):
        came_s[facts.service] = min(facts.arrival_s, came_s.get(facts.service, inf))
    return {
        service: max(first_s, ran_s.get(service, 0.0)) + order.seconds_to_starve(service) - TIE_S
        for service, first_s in came_s.items()
    }


def _stays(
    draft: Draft, in_slots: Sequence[RequestView], priority_order: PriorityOrder, *, moves: bool
) -> bool:
    """Whether the next batches are the same decodes of one service, while no other is starved.

    They are not after a preemption. Newcomers that cannot be admitted now cannot be with less free
    KV, and growing contexts take slots only where KV is short.
    """
    rule, displaces = priority_order.rule, priority_order.displaces
    own = [request for request in in_slots if request.facts.service == draft.service]
    if draft.is_empty or any(map(draft.preempts, in_slots)):
        return False
    if not all(is_decode(r) if draft.runs(r) else r.kv_tokens <= 0 for r in own):
        return False
    if draft.runs_all:
        return True
    if displaces is not None and not all(map(draft.runs, in_slots)):
        return False
    # Keys that move may change which service comes first, and which requests have slots.
    prompts_first = isinstance(rule, ContinuousBatching) and rule.prompts_first
    is_alone = displaces is None and prompts_first and len(own) == len(in_slots)
    return is_alone or not moves


# ---- one iteration ----


def fill(
    draft: Draft,
    order: Sequence[RequestView],
    priority_order: PriorityOrder,
    reserved: Mapping[RequestId, int] = NOTHING_RESERVED,
) -> Sequence[RequestView]:
    """Fill one iteration as a priority order of continuous batching says; see `PriorityOrder`.

    `order` has the requests of the group that are not running, best first; the keys of
    `priority_order` are not asked. `reserved` has the context tokens to set KV aside for when a
    request is admitted. Returns the requests with slots: all, where the order does not displace.
    ValueError for a chunked-prefill rule that pads prompts.
    """
    rule, displaces = priority_order.rule, priority_order.displaces
    assert isinstance(rule, ContinuousBatching)
    if rule.chunked_prefill and rule.pads_prompts:
        raise ValueError("a chunked-prefill batch does not pad its prompts")
    _renew_promises(draft, order, reserved)
    in_slots = order
    if displaces is not None:
        in_slots = _take_slots(draft, order, rule, displaces, reserved)
    if not has_phases(draft.view.group.services, priority_order):
        _fill_turn(draft, in_slots, priority_order, rule, reserved)
        return in_slots
    holders = list(filter(_holds_kv, in_slots))
    for service in dict.fromkeys(request.facts.service for request in in_slots):
        own = [request for request in in_slots if request.facts.service == service]
        _fill_turn(draft, own, priority_order, rule, reserved, holders=holders)
        if not draft.is_empty:
            break
    return in_slots


def _fill_turn(
    draft: Draft,
    own: Sequence[RequestView],
    priority_order: PriorityOrder,
    rule: ContinuousBatching,
    reserved: Mapping[RequestId, int],
    *,
    holders: Sequence[RequestView] | None = None,
) -> None:
    """Run decodes and admit newcomers of some requests with slots, or only one of the two.

    Under chunked prefill, decodes come before prompts that have begun. Admission is head-of-line:
    it ends at the first newcomer that does not fit. Those whose KV is in host memory are admitted
    after the holders, and no newcomer while there are any. Nothing is admitted beside a preemption.
    Where each turn is of a service, `holders` are those of all, which give way to each other.
    """
    has_slots, chunks = priority_order.displaces is not None, rule.chunked_prefill
    # With a slot, a prompt that has begun is computed in turn with those that have not.
    is_begun = is_decode if has_slots and holders is None else _holds_kv
    begun = list(filter(is_begun, own))
    prompts = [request for request in own if not is_begun(request)]
    swapped = [request for request in prompts if request.swapped_tokens > 0 and not has_slots]
    if has_slots and draft.view.kv.caches:
        # In the order in which vLLM takes KV: what is cached depends on it.
        prompts.sort(key=lambda request: request.kv_tokens <= 0)
    if chunks:
        begun.sort(key=lambda request: not is_decode(request))
    elif not swapped and not any(map(draft.preempts, holders or ())):
        if rule.prompts_first or not is_begun(own[0]):
            admit(draft, prompts, rule, len(begun), reserved, has_slots=has_slots)
        if not draft.is_empty:
            return
    first = begun if holders is None else begun[: rule.max_num_seqs]
    budget, how = rule.max_num_batched_tokens, priority_order.gives_way
    left = run_in_order(draft, first, budget=budget, how=how, victims=holders, itself=True)
    if (chunks or swapped) and not any(map(draft.preempts, begun)):
        some = swapped or prompts
        admit(draft, some, rule, len(begun), reserved, left=left, has_slots=has_slots)


def run_in_order(
    draft: Draft,
    order: Sequence[RequestView],
    *,
    budget: int | None = None,
    how: PreemptionMode = PreemptionMode.RECOMPUTE,
    victims: Sequence[RequestView] | None = None,
    itself: bool = False,
) -> int:
    """Run requests in order, best first; where KV is short, preempt from the end of the order.

    Where `victims` are given, those are preempted instead, the last one first, wherever they are in
    the order; there may be none. A request that finds no victim ends the batch; with `itself`, it
    is one when those behind it are preempted, and the next ones go on. Requests of another service
    than the open batch's are passed over, but may be preempted. A request to be swapped out that
    finds no room in host memory is recomputed. `budget` bounds the tokens added here; returns what
    is left of it. A non-preemptive policy puts requests that hold KV first: a newcomer then has
    none behind it to preempt, and waits.
    """
    most = draft.tokens_left if budget is None else min(budget, draft.tokens_left)
    beyond = draft.tokens_left - most
    if draft.try_run_all(order, most):
        return draft.tokens_left - beyond
    # Where newcomers wait for KV, the holders before them often fit all at once.
    front = list(takewhile(_holds_kv, order))
    first = len(front) if len(front) < len(order) and draft.try_run_all(front, most) else 0
    yielding = list(order if victims is None else victims)
    for place in range(first, len(order)):
        request, left = order[place], draft.tokens_left - beyond
        tokens = min(draft.missing_tokens(request), left)
        if tokens <= 0 or draft.requests_left <= 0:
            break
        # Of the order itself, only those behind the request give way.
        kept = place if victims is None else 0
        while draft.has_room(request, tokens) and not draft.try_add(request, tokens):
            victim = _last_of(yielding, kept, draft, None if itself else request)
            if victim is None:
                return left
            _preempt(draft, victim, how)
    return draft.tokens_left - beyond


def _last_of(
    yielding: list[RequestView], kept: int, draft: Draft, besides: RequestView | None
) -> RequestView | None:
    """Take those from the end, but for the first `kept`, until one can be preempted."""
    while len(yielding) > kept:
        victim = yielding.pop()
        if victim is not besides and draft.can_preempt(victim):
            return victim
    return None


def _preempt(draft: Draft, request: RequestView, how: PreemptionMode) -> None:
    """Preempt; a request to be swapped out that finds no room in host memory is recomputed."""
    swaps = how is PreemptionMode.SWAP and draft.can_swap_out(request)
    draft.preempt(request, how if swaps else PreemptionMode.RECOMPUTE)


def admit(
    draft: Draft,
    newcomers: Sequence[RequestView],
    rule: ContinuousBatching,
    holders: int,
    reserved: Mapping[RequestId, int] = NOTHING_RESERVED,
    *,
    left: int | None = None,
    has_slots: bool = False,
) -> int:
    """Admit prompts in order while the rule allows beside so many holders; return how many.

    They are whole; or cut to what is `left` of the token budget, and KV must do for all of each.
    Of requests that have slots the watermark has been kept already.
    """
    first = newcomers[: max(0, rule.max_num_seqs - holders)]
    if left is None:
        first, left = _whole_prompts(first, rule), rule.max_num_batched_tokens
    for admitted, request in enumerate(first):
        tokens = min(draft.missing_tokens(request), left)
        if (
            tokens <= 0
            or not (has_slots or _leaves_watermark(draft, request, rule, reserved))
            or not _promise_and_run(draft, request, tokens, reserved)
        ):
            return admitted
        left -= tokens
    return len(first)


def _whole_prompts(
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


def _promise_and_run(
    draft: Draft, request: RequestView, tokens: int, reserved: Mapping[RequestId, int]
) -> bool:
    """`try_run`, after what is reserved for a newcomer has been promised to it."""
    aside = 0 if request.kv_tokens > 0 else reserved.get(request.facts.id, 0)
    return (
        draft.has_room(request, tokens)
        and (aside <= 0 or draft.try_reserve(request, Reservation(aside)))
        and draft.try_add(request, tokens)
    )


def _leaves_watermark(
    draft: Draft, request: RequestView, rule: ContinuousBatching, reserved: Mapping[RequestId, int]
) -> bool:
    """Whether the watermark would stay free with the whole context held, or what is reserved."""
    service, kv = request.facts.service, draft.kv
    tokens = max(request.context_tokens, reserved.get(request.facts.id, 0))
    left_blocks = kv.free_blocks(service) - kv.newcomer_blocks(request.facts.id, tokens)
    return left_blocks >= _watermark_blocks(draft, service, rule)


def _watermark_blocks(draft: Draft, service: ServiceId, rule: ContinuousBatching) -> int:
    return floor(rule.watermark * draft.view.kv.capacity_blocks(service))


# ---- slots, and what is set aside ----


def _take_slots(
    draft: Draft,
    order: Sequence[RequestView],
    rule: ContinuousBatching,
    how: Displaced,
    reserved: Mapping[RequestId, int],
) -> list[RequestView]:
    """Return the front of the order that has slots, and preempt of the rest as `how` says.

    The order, the contexts and the promises alone decide. A slot takes KV for the whole context or
    what is reserved, whichever is more. The front ends at the first that finds no slot; before a
    newcomer, or a request that comes back from host memory, the rule's watermark must stay free.
    A request with KV in host memory gets it back with its slot.
    """
    slots, used_bytes = _front(draft, order, rule, reserved)
    in_slots, displaced = list(order[:slots]), list(filter(_holds_kv, order[slots:]))
    kept = 0
    if how is Displaced.PAUSE:
        for request in displaced:
            used_bytes += _kv_bytes(draft, request, request.kv_tokens, reserved)
            if used_bytes > draft.kv.capacity_bytes:
                break
            kept += 1
    by = PreemptionMode.SWAP if how is Displaced.SWAP else PreemptionMode.RECOMPUTE
    for request in displaced[kept:]:
        _preempt(draft, request, by)
    for request in in_slots if how is Displaced.SWAP else ():
        aside = reserved.get(request.facts.id, 0)
        if draft.try_swap_in(request) and aside > 0:
            draft.try_reserve(request, Reservation(aside))
    return in_slots


def _front(
    draft: Draft,
    order: Sequence[RequestView],
    rule: ContinuousBatching,
    reserved: Mapping[RequestId, int],
) -> tuple[int, int]:
    """How many of the order have slots, and the bytes of KV that these take."""
    kv, used_bytes, slots = draft.kv, 0, 0
    for request in order[: rule.max_num_seqs]:
        service = request.facts.service
        spare_blocks = 0 if request.kv_tokens > 0 else _watermark_blocks(draft, service, rule)
        need_bytes = _kv_bytes(draft, request, request.context_tokens, reserved)
        spare_bytes = spare_blocks * kv.block_bytes(service)
        if used_bytes + need_bytes + spare_bytes > kv.capacity_bytes:
            break
        used_bytes, slots = used_bytes + need_bytes, slots + 1
    return slots, used_bytes


def _kv_bytes(
    draft: Draft, request: RequestView, tokens: int, reserved: Mapping[RequestId, int]
) -> int:
    """KV of so many tokens, or what is or would be promised to the request if that is more."""
    kv, name, service = draft.kv, request.facts.id, request.facts.service
    aside = reserved.get(name, 0)
    if request.kv_tokens > 0:
        promise = kv.reservation(name)
        aside = promise.own_tokens if promise is not None else 0
    return kv.blocks(max(tokens, aside), service) * kv.block_bytes(service)


def _renew_promises(
    draft: Draft, order: Sequence[RequestView], reserved: Mapping[RequestId, int]
) -> None:
    """Promise requests that have just outgrown what was set aside for them what now would be.

    If that is more and there is room, in this order; else they grow block by block.
    """
    for request in order if reserved else ():
        promise = request.reservation if request.kv_tokens > 0 else None
        if promise is not None and request.context_tokens == promise.own_tokens + 1:
            wanted = reserved[request.facts.id]
            if wanted > promise.own_tokens:
                draft.try_reserve(request, Reservation(wanted))


# ---- whole requests ----


def _fill_static(draft: Draft, order: Sequence[RequestView], rule: StaticBatching) -> float | None:
    """Fill one batch by a rule of static batching, best first.

    Returns when (seconds) to ask again if the batch should wait for more requests, else None. A
    batch in which some hold KV, because they have run before, does not wait.
    """
    holders = list(filter(_holds_kv, order))
    if order and not holders and len(order) < rule.max_num_seqs:
        due_s = min(request.facts.arrival_s for request in order) + rule.max_wait_s
        if draft.view.now_s < due_s:
            return due_s
    for requests in (order, holders):
        # The first in order may be a newcomer that does not fit beside requests that hold KV.
        for request in requests[: rule.max_num_seqs] if draft.is_empty else ():
            if not _run_whole(draft, request):
                break
    return None


def _run_whole(draft: Draft, request: RequestView) -> bool:
    """Run a request with KV for its longest answer, if that fits."""
    facts, missing = request.facts, missing_tokens(request)
    longest = Reservation(facts.prompt_tokens + facts.max_output_tokens)
    return (
        draft.has_room(request, missing)
        and (request.reservation == longest or draft.try_reserve(request, longest))
        and draft.try_run(request, missing)
    )
