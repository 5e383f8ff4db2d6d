"""Batches of one service and one phase from an order of requests: part of `PriorityOrder`.

Every batch is so in a group of several services, and in any group by a rule without
`prompts_first`.
"""

from collections.abc import Mapping, Sequence
from math import inf

from harness.core.draft import Draft
from harness.core.filling import (
    NOTHING_RESERVED,
    admit_prompts,
    is_decode,
    run_holders,
    whole_prompts,
)
from harness.core.preemptive_admission import take_slots
from harness.interface.decisions import (
    ContinuousBatching,
    PreemptionMode,
    PriorityOrder,
)
from harness.interface.entities import ServiceId
from harness.interface.tables import TIE_S
from harness.interface.views import RequestView, missing_tokens


def fill_by_phase(
    draft: Draft,
    order: Sequence[RequestView],
    priority_order: PriorityOrder,
    ran_s: Mapping[ServiceId, float],
    *,
    moves: bool,
) -> float:
    """Fill one iteration with requests of the first service in order that can run something.

    `order` has all requests of the group, of which no one runs, best first; where the order
    displaces and no service starves, requests without KV behind the first `max_num_seqs` may be
    missing. `ran_s` has when the last batch of each service ended, `moves` says whether keys move
    with progress. Returns until when the next iterations run the same requests, if nothing happens
    and KV is not short; now where they may not.
    """
    now_s = draft.view.now_s
    at_s = _starved_at_s(order, priority_order, ran_s)
    starved = [service for service, starves_s in at_s.items() if starves_s <= now_s]
    first = sorted(order, key=lambda request: request.facts.service not in starved)
    if not _fill(draft, first, priority_order, moves=moves) or draft.service in starved:
        return now_s
    return min((at_s[s] for s in at_s.keys() - {draft.service, *starved}), default=inf)


def _starved_at_s(
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


def _fill(
    draft: Draft, order: Sequence[RequestView], priority_order: PriorityOrder, *, moves: bool
) -> bool:
    """Fill one iteration from requests in the order in which they are tried.

    Returns whether the next ones run the same requests while no other service becomes starved.
    """
    rule, displaces = priority_order.rule, priority_order.displaces
    assert isinstance(rule, ContinuousBatching)
    in_slots = order
    if displaces is not None:
        in_slots = take_slots(draft, order, rule, displaces, NOTHING_RESERVED)
    holders = [request for request in in_slots if request.kv_tokens > 0]
    kept = len(holders)
    for service in dict.fromkeys(request.facts.service for request in in_slots):
        own = [request for request in in_slots if request.facts.service == service]
        decodes = [request for request in own if request.kv_tokens > 0]
        prompts = [request for request in own if request.kv_tokens <= 0]
        # Nothing is admitted beside a preemption.
        if kept == len(holders) and (rule.prompts_first or own[0].kv_tokens <= 0):
            if displaces is None:
                admit_prompts(draft, prompts, rule, len(decodes), NOTHING_RESERVED)
            else:
                for request in whole_prompts(prompts, rule):
                    draft.try_run(request, missing_tokens(request))
            if not draft.is_empty:
                return False
        first, budget = decodes[: rule.max_num_seqs], rule.max_num_batched_tokens
        if not draft.try_run_all(first, budget):
            gives_way, victims = PreemptionMode.RECOMPUTE, holders[:kept]
            _, kept = run_holders(draft, first, budget, gives_way, victims=victims)
        if not draft.is_empty:
            return kept == len(holders) and _stays(
                draft, in_slots, own, priority_order, rule, moves=moves
            )
    return False


def _stays(
    draft: Draft,
    in_slots: Sequence[RequestView],
    own: Sequence[RequestView],
    priority_order: PriorityOrder,
    rule: ContinuousBatching,
    *,
    moves: bool,
) -> bool:
    """Whether the next batches are the same decodes of one service, whose requests are `own`.

    None has been preempted. Newcomers that cannot be admitted now cannot be with less free KV, and
    growing contexts take slots only where KV is short.
    """
    if not all(draft.runs(r) and is_decode(r) for r in own if r.kv_tokens > 0):
        return False
    if draft.runs_all:
        return True
    displaces = priority_order.displaces
    if displaces is not None and not all(map(draft.runs, in_slots)):
        return False
    # Keys that move may change which service comes first, and which requests have slots.
    is_alone = displaces is None and rule.prompts_first and len(own) == len(in_slots)
    return is_alone or not moves
