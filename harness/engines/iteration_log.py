"""Rows of the log of iterations: what one computed, which requests held KV, which did not run."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from harness.core.kv_ledger import ledger_of
from harness.interface.entities import RequestId, ServiceId, Work
from harness.interface.views import GroupView

LogRow = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KvUse:
    """KV of a group, in tokens, and its requests that do not run, while an iteration does.

    Held includes what the iteration computes; promised are the own parts of reservations, whether
    held or not, lent their loans; free is neither held nor promised, in whole blocks. A
    waiting request has no KV, a paused one has some.
    """

    held_tokens: int
    promised_tokens: int
    lent_tokens: int
    free_tokens: int
    waiting_requests: int
    paused_requests: int

    def grown(self, tokens: int) -> "KvUse":
        """The same with so many tokens more of what was promised already."""
        return replace(self, held_tokens=self.held_tokens + tokens)


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
    return (
        start_s,
        duration_s,
        iterations,
        work.prefill_requests,
        work.prefill_tokens,
        work.prefill_padded_tokens,
        work.prefill_attended,
        work.decode_requests,
        work.context_tokens,
        work.longest_tokens,
        use.held_tokens,
        use.promised_tokens,
        use.lent_tokens,
        use.free_tokens,
        use.waiting_requests,
        use.paused_requests,
    )
