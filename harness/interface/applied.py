"""What a decision leaves in the ledger of KV."""

from collections.abc import Mapping

from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.kv_ledger import KvLedger
from harness.interface.views import RequestView


def after(decision: Decision, kv: KvLedger, requests: Mapping[RequestId, RequestView]) -> KvLedger:
    """The ledger with a legal decision applied: its draft's own where that has one, else `kv`.

    `requests` are those of the group, with what they have in host memory before the decision.
    """
    draft = decision.draft
    ledger = draft.ledger_after(decision, kv) if isinstance(draft, Draft) else None
    if ledger is not None:
        return ledger
    for request in decision.preempt:
        kv.free(request)
    for request in decision.swap_in:
        kv.grow(request, requests[request].swapped_tokens)
    for request, promise in decision.reserve.items():
        kv.reserve(request, promise)
    for batch in decision.launch:
        kv.grow_all(batch.tokens)
    return kv
