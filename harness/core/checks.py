"""Is a decision legal? One sentence per broken rule; shared by both engines."""

from collections.abc import Iterator, Mapping

from harness.core.draft import Draft, after
from harness.core.kv_ledger import KvLedger, ledger_of
from harness.interface.decisions import (
    Batch,
    Decision,
    PreemptionMode,
    PriorityOrder,
    Reservation,
    StaticBatching,
    Until,
    wrong_by_phase,
)
from harness.interface.entities import RequestId
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView, missing_tokens

_Views = Mapping[RequestId, RequestView]


class IllegalDecision(ValueError):  # noqa: N818 - it names what is wrong, like the decision does
    """A policy told the engine to do what it must not; the message says all of it."""


def check(decision: Decision, view: GroupView, *, supports: frozenset[Capability]) -> list[str]:
    """Every rule the decision breaks, in one sentence each; empty when it is legal.

    `supports` is what the engine can do. Costs the size of the decision, not of the group; what a
    draft has tried line by line is not looked at again.
    """
    order = decision.priority_order
    found = [*_wrong_times(decision, view), *_wrong_promise_of_more(decision)]
    if order is not None:
        found += _wrong_order(order, decision, view)
        found += wrong_by_phase(order, view.group.services, view.group.id)
        found += _wrong_giving_way(order)
        found += _wrong_beside_order(decision)
    found += _not_supported(decision, view, supports)
    found += _wrong_totals(decision, view)
    found += _wrong_promises(decision, view)
    if (draft := _draft_of(decision, view)) is not None:
        return found + draft.shortages()
    found += _wrong_names(decision, view)
    found += _wrong_batches(decision, view)
    if Capability.SWAP in supports:
        found += _wrong_swaps(decision, view)
    return [*found, *_wrong_kv(decision, view)]


def _draft_of(decision: Decision, view: GroupView) -> Draft | None:
    """The draft that found all of it to fit, for these requests on the ledger as it is, if any."""
    draft = decision.draft
    if (
        isinstance(draft, Draft)
        and draft.wrote(decision, ledger_of(view))
        and draft.is_about(view.requests)
    ):
        return draft
    return None


def _wrong_times(decision: Decision, view: GroupView) -> Iterator[str]:
    if decision.wake_s is not None and not decision.wake_s > view.now_s:
        yield f"wake_s {decision.wake_s} s is not after now, {view.now_s} s"


def _wrong_promise_of_more(decision: Decision) -> Iterator[str]:
    if decision.at_most is None:
        return
    if not decision.steady:
        yield f"at_most {decision.at_most} iterations of a decision that is not steady"
    if decision.at_most < 1:
        yield f"a decision is steady for at_most {decision.at_most} iterations, not for 1 or more"


def _wrong_order(order: PriorityOrder, decision: Decision, view: GroupView) -> Iterator[str]:
    rule = order.rule
    if decision.launch:
        yield f"a priority order comes with {len(decision.launch)} batches launched"
    if view.in_flight:
        yield f"a priority order with {len(view.in_flight)} batches in flight"
    if isinstance(order.reserve_tokens, int) and order.reserve_tokens < 1:
        yield f"a priority order reserves {order.reserve_tokens} tokens, at least 1 is allowed"
    if order.reserve_tokens is not None and view.kv.caches:
        yield "a priority order reserves KV, which is not done where prefixes are cached"
    if isinstance(rule, StaticBatching):
        if order.displaces is not None or order.reserve_tokens is not None:
            yield (
                "a priority order displaces or reserves under static batching, which keeps a batch"
                " together and reserves for the longest answer"
            )
        if rule.max_num_seqs > view.max_num_seqs:
            yield (
                f"the policy's max_num_seqs={rule.max_num_seqs} exceeds the engine's"
                f" {view.max_num_seqs}"
            )
    elif rule.chunked_prefill and rule.pads_prompts:
        yield "a priority order pads the prompts of chunked-prefill batches"


def _wrong_giving_way(order: PriorityOrder) -> Iterator[str]:
    if order.gives_way is PreemptionMode.RECOMPUTE:
        return
    if isinstance(order.rule, StaticBatching):
        yield "a priority order gives way by swapping under static batching, which never lacks KV"
    elif order.displaces is not None:
        yield (
            f"a priority order gives way by swapping and displaces ({order.displaces.value}),"
            " which says itself what becomes of the KV"
        )


def _wrong_beside_order(decision: Decision) -> Iterator[str]:
    """What a priority order decides itself, or would leave without effect."""
    for name in ("preempt", "reserve", "swap_in", "steady", "at_most"):
        if getattr(decision, name):
            yield f"a priority order comes with {name}, which only a decision without one may have"


def _not_supported(
    decision: Decision, view: GroupView, supports: frozenset[Capability]
) -> Iterator[str]:
    shared = [batch.gpu_share for batch in decision.launch if batch.gpu_share != 1]
    whole = sum(batch.until is not Until.ITERATION for batch in decision.launch)
    is_whole = decision.priority_order is not None and isinstance(
        decision.priority_order.rule, StaticBatching
    )
    if shared and Capability.GPU_SHARE not in supports:
        yield f"a batch on share {shared[0]:g} of the SMs, which the engine does not support"
    if whole and Capability.TO_COMPLETION not in supports:
        yield f"{whole} batches run until answers are there, which the engine does not support"
    if is_whole and Capability.TO_COMPLETION not in supports:
        yield "a priority order for request-level batches, which the engine does not support"
    if len(view.group.services) > 1 and Capability.SHARED_GROUP not in supports:
        yield f"{len(view.group.services)} services in a group, which the engine does not support"
    if Capability.SWAP not in supports:
        yield from _swaps_not_supported(decision)


def _wrong_names(decision: Decision, view: GroupView) -> Iterator[str]:
    launched = [name for batch in decision.launch for name in batch.tokens]
    for verb, names in (
        ("preempted", decision.preempt),
        ("swapped in", decision.swap_in),
        ("promised KV", decision.reserve),
        ("run", launched),
    ):
        for name in names:
            if name not in view.requests:
                yield f"r{name} is {verb} but is not an unfinished request of this group"
    for name in decision.preempt:
        if name in view.requests and view.requests[name].is_running:
            yield f"r{name} is preempted while it is running"
    for name in decision.preempt.keys() & set(launched):
        yield f"r{name} is preempted and run by one decision"


def _wrong_batches(decision: Decision, view: GroupView) -> Iterator[str]:
    seen: set[RequestId] = set()
    for batch in decision.launch:
        if batch.service not in view.services:
            yield f"a batch of {batch.service}, which is not loaded here"
        if not batch.tokens:
            yield f"a batch of {batch.service} with 0 requests"
        if not 0 < batch.gpu_share <= 1:
            yield f"a batch of {batch.service} on share {batch.gpu_share:g} of the SMs"
        for name, tokens in batch.tokens.items():
            if name in seen:
                yield f"r{name} is in two batches"
            seen.add(name)
            if name in view.requests:
                yield from _wrong_entry(batch, name, tokens, view)


def _wrong_entry(batch: Batch, name: RequestId, tokens: int, view: GroupView) -> Iterator[str]:
    request = view.requests[name]
    missing = missing_tokens(request)
    if request.facts.service != batch.service:
        yield f"r{name} of {request.facts.service} is in a batch of {batch.service}"
    if request.is_running:
        yield f"r{name} is run while it is running"
    if tokens <= 0:
        yield f"r{name} would compute {tokens} tokens"
    if tokens > missing:
        yield f"r{name} would compute {tokens} tokens but misses only {missing}"


def _wrong_totals(decision: Decision, view: GroupView) -> Iterator[str]:
    share = sum(batch.gpu_share for batch in decision.launch)
    running = sum(len(batch.tokens) for batch in view.in_flight)
    launched = sum(len(batch.tokens) for batch in decision.launch)
    if share > view.free_share + 1e-9:
        yield f"batches take share {share:g} of the SMs but {view.free_share:g} is free"
    if launched and running + launched > view.max_num_seqs:
        yield (
            f"{running} requests running and {launched} more,"
            f" at most {view.max_num_seqs} may run at the same time"
        )
    for batch in decision.launch:
        tokens = sum(batch.tokens.values())
        if tokens > view.max_num_batched_tokens:
            yield f"a batch of {tokens} tokens, at most {view.max_num_batched_tokens} are allowed"


def _wrong_promises(decision: Decision, view: GroupView) -> Iterator[str]:
    """What batches that run until answers are there must have: all to compute, and all the KV."""
    for batch in decision.launch:
        if batch.until is Until.ITERATION:
            continue
        for name, tokens in batch.tokens.items():
            if name not in view.requests:
                continue
            request = view.requests[name]
            missing = missing_tokens(request)
            longest = request.facts.prompt_tokens + request.facts.max_output_tokens
            promise = decision.reserve.get(name, request.reservation) or Reservation(0)
            if tokens < missing:
                yield f"r{name} runs until answered but computes {tokens} of {missing} tokens first"
            if promise.own_tokens < longest:
                yield (
                    f"r{name} runs until answered with KV promised for {promise.own_tokens}"
                    f" tokens, not for {longest}"
                )


def swaps(decision: Decision) -> bool:
    """Whether a decision has KV leave for host memory or come back from there."""
    return bool(decision.swap_in) or PreemptionMode.SWAP in decision.preempt.values()


def _wrong_swaps(decision: Decision, view: GroupView) -> Iterator[str]:
    """KV that cannot go to host memory, cannot come back, or must and does not."""
    order = decision.priority_order
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


def _swaps_not_supported(decision: Decision) -> Iterator[str]:
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


def _wrong_kv(decision: Decision, view: GroupView) -> Iterator[str]:
    """What the KV does not allow; what is wrong in itself is told elsewhere."""
    kv = ledger_of(view)
    if not (decision.preempt or decision.swap_in or decision.reserve or decision.launch):
        # The engine need not make views of requests, nor copy the ledger.
        yield from kv.shortages()
    elif not kv.caches:
        yield from _wrong_plain_kv(decision, kv.copy(), view.requests)
    else:
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
