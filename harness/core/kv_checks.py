"""What of a decision's KV is illegal: on the GPU, and what goes to host memory and comes back."""

from collections.abc import Iterator, Mapping

from harness.core.applied import after
from harness.core.kv_ledger import KvLedger, ledger_of
from harness.interface.decisions import Decision, PreemptionMode
from harness.interface.entities import RequestId
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView

_Views = Mapping[RequestId, RequestView]


def swaps(decision: Decision) -> bool:
    """Whether a decision has KV leave for host memory or come back from there."""
    return bool(decision.swap_in) or PreemptionMode.SWAP in decision.preempt.values()


def wrong_swaps(
    decision: Decision, view: GroupView, supports: frozenset[Capability]
) -> Iterator[str]:
    """KV that cannot go to host memory, cannot come back, or must and does not."""
    order = decision.priority_order
    if Capability.SWAP not in supports:
        yield from _not_supported(decision)
        return
    if swaps(decision):
        yield from _wrong_out(decision, view)
        yield from _wrong_in(decision, view)
    if not view.used_host_bytes:
        return
    if order is not None and not order.swaps:
        there = sum(request.swapped_tokens > 0 for request in view.requests.values())
        yield f"a priority order that does not swap, with the KV of {there} in host memory"
    for batch in decision.launch:
        for name in sorted(batch.tokens.keys() - decision.swap_in):
            if name in view.requests and view.requests[name].swapped_tokens > 0:
                yield f"r{name} is run while its KV is in host memory"


def _not_supported(decision: Decision) -> Iterator[str]:
    out = sum(how is PreemptionMode.SWAP for how in decision.preempt.values())
    for count, where in ((out, "out"), (len(decision.swap_in), "in")):
        if count:
            yield f"{count} requests swapped {where}, which the engine does not support"
    order = decision.priority_order
    if order is not None and order.swaps:
        verb = "displaces" if order.displaces is not None else "gives way"
        yield f"a priority order that {verb} by swapping, which the engine does not support"


def _wrong_out(decision: Decision, view: GroupView) -> Iterator[str]:
    out_bytes = 0
    for name, how in decision.preempt.items():
        if how is not PreemptionMode.SWAP or name not in view.requests:
            continue
        request = view.requests[name]
        service = view.kv.services[request.facts.service]
        out_bytes += request.kv_tokens * service.kv_bytes_per_token
        if request.kv_tokens <= 0:
            yield f"r{name} is swapped out but holds no KV"
    # What comes back leaves only when all that goes is there.
    if out_bytes > view.free_host_bytes:
        yield (
            f"{out_bytes} bytes of KV are swapped out,"
            f" {view.free_host_bytes} bytes of host memory are free"
        )


def _wrong_in(decision: Decision, view: GroupView) -> Iterator[str]:
    for name in sorted(decision.swap_in):
        if name in view.requests and view.requests[name].swapped_tokens <= 0:
            yield f"r{name} is swapped in but has no KV in host memory"
        if name in decision.preempt:
            yield f"r{name} is preempted and swapped in by one decision"


def wrong_kv(decision: Decision, view: GroupView, *, is_drafted: bool) -> Iterator[str]:
    """What the KV does not allow; what is wrong in itself is told elsewhere.

    Where prefixes are cached, a draft has seen to it, in the order in which it took blocks.
    """
    kv = ledger_of(view)
    if not (decision.preempt or decision.swap_in or decision.reserve or decision.launch):
        # The engine need not make views of requests, nor copy the ledger.
        yield from kv.shortages()
    elif not kv.caches:
        yield from _wrong_plain_kv(decision, kv.copy(), view.requests)
    elif not is_drafted:
        yield from _wrong_cached_kv(decision, kv.copy(), view.requests)


def _wrong_plain_kv(decision: Decision, kv: KvLedger, requests: _Views) -> Iterator[str]:
    """Apply the decision to this ledger."""
    for name in filter(requests.__contains__, decision.preempt):
        kv.free(name)
    for name in filter(requests.__contains__, decision.swap_in):
        kv.grow(name, requests[name].swapped_tokens)
    for name, promise in decision.reserve.items():
        if name in requests:
            try:
                kv.reserve(name, promise)
            except ValueError as error:
                yield str(error)
    for batch in decision.launch:
        for name, tokens in batch.tokens.items():
            if name in requests and tokens > 0:
                kv.grow(name, tokens)
    yield from kv.shortages()


def _wrong_cached_kv(decision: Decision, kv: KvLedger, requests: _Views) -> Iterator[str]:
    """The same where prefixes are cached: nothing is promised, and what is cached not computed."""
    if decision.reserve:
        yield f"{len(decision.reserve)} promises of KV, not made where prefixes are cached"
    launched = [name for batch in decision.launch for name in batch.tokens]
    if not decision.preempt.keys() | set(launched) <= requests.keys():
        return
    kv = after(decision, kv, requests)
    for name in launched:
        more = kv.holding(name) - requests[name].context_tokens
        if more > 0:
            yield f"r{name} would compute {more} tokens more than it misses and are not cached"
    yield from kv.shortages()
