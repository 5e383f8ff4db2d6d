"""Which requests run under a priority order that displaces: the first ones that fit.

Nothing but the order, the contexts and the promises decides, so whoever knows them knows who has a
slot; that is what lets an engine follow such an order through many iterations at once.
"""

from collections.abc import Mapping, Sequence
from math import floor

from harness.core.draft import Draft
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PreemptionMode,
    Reservation,
)
from harness.interface.entities import RequestId
from harness.interface.views import RequestView


def take_slots(
    draft: Draft,
    order: Sequence[RequestView],
    rule: ContinuousBatching,
    how: Displaced,
    reserved: Mapping[RequestId, int],
) -> list[RequestView]:
    """Return the front of the order that has slots, and preempt of the rest as `how` says.

    A slot takes KV for the whole context or what is reserved, whichever is more. The front ends
    at the first that finds no slot; before a newcomer, or a request that comes back from host
    memory, the rule's watermark must stay free. Whose KV is there gets it back with the slot.
    `reserved` has the context tokens to set aside for newcomers.
    """
    kv = draft.kv
    slots, used_bytes = _front(draft, order, rule, reserved)
    displaced, kept = [request for request in order[slots:] if request.kv_tokens > 0], 0
    if how is Displaced.PAUSE:
        for request in displaced:
            used_bytes += _kv_bytes(draft, request, request.kv_tokens, reserved)
            if used_bytes > kv.capacity_bytes:
                break
            kept += 1
    by = PreemptionMode.SWAP if how is Displaced.SWAP else PreemptionMode.RECOMPUTE
    for request in displaced[kept:]:
        preempt_by(draft, request, by)
    if how is Displaced.SWAP:
        _bring_back(draft, order[:slots], reserved)
    return list(order[:slots])


def _front(
    draft: Draft,
    order: Sequence[RequestView],
    rule: ContinuousBatching,
    reserved: Mapping[RequestId, int],
) -> tuple[int, int]:
    """How many of the order have slots, and the bytes of KV that these take.

    Where all have, the bytes are not added up: no request is behind them.
    """
    if len(order) <= rule.max_num_seqs and not reserved and _all_fit(draft, order, rule):
        return len(order), 0
    kv, used_bytes, slots = draft.kv, 0, 0
    for request in order[: rule.max_num_seqs]:
        service = request.facts.service
        is_new = request.kv_tokens <= 0
        spare_blocks = floor(rule.watermark * kv.capacity_blocks(service)) if is_new else 0
        need_bytes = _kv_bytes(draft, request, request.context_tokens, reserved)
        spare_bytes = spare_blocks * kv.block_bytes(service)
        if used_bytes + need_bytes + spare_bytes > kv.capacity_bytes:
            break
        used_bytes, slots = used_bytes + need_bytes, slots + 1
    return slots, used_bytes


def _all_fit(draft: Draft, order: Sequence[RequestView], rule: ContinuousBatching) -> bool:
    """Whether there is certainly room for all, of one service; cheaper than one by one."""
    kv = draft.kv
    if not order or len(draft.view.services) > 1:
        return False
    service = order[0].facts.service
    spare_blocks = floor(rule.watermark * kv.capacity_blocks(service))
    # A context leaves less than a block of its last one unused.
    tokens = sum(request.context_tokens for request in order) + len(order) * kv.block_tokens
    room_blocks = kv.capacity_blocks(service) - spare_blocks
    return tokens <= room_blocks * kv.block_tokens and not kv.promises


def preempt_by(draft: Draft, request: RequestView, how: PreemptionMode) -> None:
    """Preempt; a request to be swapped out that finds no room in host memory is recomputed."""
    swaps = how is PreemptionMode.SWAP and draft.can_swap_out(request)
    draft.preempt(request, how if swaps else PreemptionMode.RECOMPUTE)


def _bring_back(
    draft: Draft, in_slots: Sequence[RequestView], reserved: Mapping[RequestId, int]
) -> None:
    """Those with slots get their KV back from host memory, and what is set aside for them."""
    for request in in_slots:
        aside = reserved.get(request.facts.id, 0)
        if draft.try_swap_in(request) and aside > 0:
            draft.try_reserve(request, Reservation(aside))


def renew_promises(
    draft: Draft, order: Sequence[RequestView], reserved: Mapping[RequestId, int]
) -> None:
    """Promise requests that have just outgrown what was set aside for them what now would be.

    If that is more and there is room, in this order; else they grow block by block.
    """
    if not reserved:
        return
    for request in order:
        promise = request.reservation if request.kv_tokens > 0 else None
        if promise is not None and request.context_tokens == promise.own_tokens + 1:
            wanted = reserved[request.facts.id]
            if wanted > promise.own_tokens:
                draft.try_reserve(request, Reservation(wanted))


def _kv_bytes(
    draft: Draft, request: RequestView, tokens: int, reserved: Mapping[RequestId, int]
) -> int:
    """KV of so many tokens, or what is or would be promised to the request if that is more."""
    aside = reserved.get(request.facts.id, 0)
    if request.kv_tokens > 0:
        promise = draft.kv.reservation(request.facts.id)
        aside = promise.own_tokens if promise is not None else 0
    kv, service = draft.kv, request.facts.service
    return kv.blocks(max(tokens, aside), service) * kv.block_bytes(service)
