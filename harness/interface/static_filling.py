"""Request-level batches from an order of requests: what `StaticBatching` means."""

from collections.abc import Sequence

from harness.interface.decisions import Reservation, StaticBatching
from harness.interface.draft import Draft
from harness.interface.views import RequestView, missing_tokens


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
