"""Is a decision legal? One sentence per broken rule; shared by both engines."""

from collections.abc import Iterator, Sequence

from harness.core.draft import Draft
from harness.core.kv_checks import swaps, wrong_kv, wrong_swaps
from harness.core.kv_ledger import ledger_of
from harness.interface.decisions import (
    Batch,
    Decision,
    PreemptionMode,
    Reservation,
    StaticBatching,
    Until,
    wrong_by_phase,
)
from harness.interface.entities import RequestId
from harness.interface.policies import Capability
from harness.interface.views import GroupView, missing_tokens


class IllegalDecision(ValueError):  # noqa: N818 - it names what is wrong, like the decision does
    """A policy told the engine to do what it must not; the message says all of it."""


def check(decision: Decision, view: GroupView, *, supports: frozenset[Capability]) -> list[str]:
    """Every rule the decision breaks, in one sentence each; empty when it is legal.

    `supports` is what the engine can do. Costs the size of the decision, not of the group.
    """
    if _is_plainly_legal(decision, view, supports):
        return []
    return _broken_rules(decision, view, supports)


def _broken_rules(
    decision: Decision, view: GroupView, supports: frozenset[Capability]
) -> list[str]:
    return [
        *_wrong_times(decision, view),
        *_wrong_promise_of_more(decision),
        *_wrong_order(decision, view),
        *_wrong_by_phase(decision, view),
        *_wrong_giving_way(decision),
        *_wrong_beside_order(decision),
        *_not_supported(decision, view, supports),
        *_wrong_names(decision, view),
        *_wrong_batches(decision, view),
        *_wrong_totals(decision, view),
        *_wrong_promises(decision, view),
        *wrong_swaps(decision, view, supports),
        *wrong_kv(decision, view, is_drafted=_is_written_by_draft(decision, view)),
    ]


def _is_plainly_legal(decision: Decision, view: GroupView, supports: frozenset[Capability]) -> bool:
    """Whether a decision of the commonest kind breaks no rule, in one pass; False may be legal.

    That kind are batches of an iteration that a draft wrote: what it tried line by line is not
    looked at again.
    """
    return (
        decision.priority_order is None
        and (len(view.group.services) == 1 or Capability.SHARED_GROUP in supports)
        and (decision.wake_s is None or decision.wake_s > view.now_s)
        and decision.at_most is None
        and _are_plain(decision.launch, view, supports)
        and (Capability.SWAP in supports or not swaps(decision))
        and _is_written_by_draft(decision, view)
    )


def _are_plain(batches: Sequence[Batch], view: GroupView, supports: frozenset[Capability]) -> bool:
    """Whether there are batches, each of an iteration, that keep to the limits of their group."""
    share, running = 0.0, sum([len(batch.tokens) for batch in view.in_flight])
    for batch in batches:
        if (
            batch.until is not Until.ITERATION
            or batch.service not in view.services
            or not 0 < batch.gpu_share <= 1
            or (batch.gpu_share < 1 and Capability.GPU_SHARE not in supports)
            or not batch.tokens
            or sum(batch.tokens.values()) > view.max_num_batched_tokens
        ):
            return False
        share += batch.gpu_share
        running += len(batch.tokens)
    return 0 < share <= view.free_share + 1e-9 and running <= view.max_num_seqs


def _is_written_by_draft(decision: Decision, view: GroupView) -> bool:
    """Whether a draft has found all of it to fit, for these requests on the ledger as it is."""
    draft = decision.draft
    return (
        isinstance(draft, Draft)
        and draft.wrote(decision, ledger_of(view))
        and draft.is_about(view.requests)
    )


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


def _wrong_order(decision: Decision, view: GroupView) -> Iterator[str]:
    if decision.priority_order is None:
        return
    if decision.launch:
        yield f"a priority order comes with {len(decision.launch)} batches launched"
    if view.in_flight:
        yield f"a priority order with {len(view.in_flight)} batches in flight"
    rule, order = decision.priority_order.rule, decision.priority_order
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


def _wrong_by_phase(decision: Decision, view: GroupView) -> Iterator[str]:
    if decision.priority_order is not None:
        yield from wrong_by_phase(decision.priority_order, view.group.services, view.group.id)


def _wrong_giving_way(decision: Decision) -> Iterator[str]:
    order = decision.priority_order
    if order is None or order.gives_way is PreemptionMode.RECOMPUTE:
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
        if decision.priority_order is not None and getattr(decision, name):
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
