"""Rows of the log of iterations: what one computed, which requests held KV, which did not run."""

from collections.abc import Collection
from operator import attrgetter

from harness.core.kv_ledger import ledger_of
from harness.engines.state import KvUse
from harness.interface.entities import RequestId, ServiceId, Work
from harness.interface.views import GroupView

LogRow = tuple[float, ...]
_computed = attrgetter(*Work.__slots__)


def use_of(group: GroupView, service: ServiceId, running: Collection[RequestId]) -> KvUse:
    """Of a group whose ledger has the batch that is `running`."""
    kv = ledger_of(group)
    holders = kv.holders
    # An orphaned reservation is of no request.
    promises = [promise for name, promise in kv.promises.items() if name >= 0]
    promised = sum([promise.own_tokens for promise in promises])
    lent = sum([promise.loan_tokens for promise in promises])
    paused = len([name for name, held in holders.items() if held and name not in running])
    waiting = len(group.requests) - len(running) - paused
    free = kv.uncommitted_tokens(service)
    held = sum(holders.values()) - kv.shared_tokens
    return KvUse(held, promised, lent, free, waiting, paused)


def row_of(start_s: float, duration_s: float, iterations: int, work: Work, use: KvUse) -> LogRow:
    """A run of equal iterations, of which `work` and `use` are the first's; see `LOG_COLUMNS`."""
    return (start_s, duration_s, iterations, *_computed(work), *use)
