"""What a decision leaves in the ledger of KV."""

from collections.abc import Mapping

from harness.core.draft import Draft
from harness.core.kv_ledger import KvLedger
from harness.interface.decisions import Decision
from harness.interface.entities import RequestId
from harness.interface.views import RequestView


def after(decision: Decision, kv: KvLedger, requests: Mapping[RequestId, RequestView]) -> KvLedger:
    """The ledger with a legal decision applied: its draft's own where that has one, else `kv`.

    `requests` are those of the group, with what they have in host memory before the decision.
    """
    draft = decision.draft
    ledger = draft.ledger_after(decision, kv) if isinstance(draft, Draft) else None
    if ledger is not None:
        return ledger
    if kv.caches:
        return _in_turn(decision, kv)
    for request in decision.preempt:
        kv.free(request)
    for request in decision.swap_in:
        kv.grow(request, requests[request].swapped_tokens)
    for request, promise in decision.reserve.items():
        kv.reserve(request, promise)
    for batch in decision.launch:
        kv.grow_all(batch.tokens)
    return kv


def ran_before(decision: Decision) -> Mapping[RequestId, int]:
    """For each request preempted, how many of the batch take their KV before it frees its own."""
    draft = decision.draft
    return draft.ran_before if isinstance(draft, Draft) else dict.fromkeys(decision.preempt, 0)


def _in_turn(decision: Decision, kv: KvLedger) -> KvLedger:
    """The ledger after KV was taken and freed in the order of the draft, on which hits depend."""
    left, before, ran = list(decision.preempt), ran_before(decision), 0
    for batch in decision.launch:
        for request, tokens in batch.tokens.items():
            while left and before[left[0]] <= ran:
                kv.free(left.pop(0))
            kv.grow(request, tokens)
            ran += 1
    for request in left:
        kv.free(request)
    return kv
