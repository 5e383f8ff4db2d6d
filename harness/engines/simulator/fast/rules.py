"""Priority orders in the numbers that compiled code follows."""

from math import floor

from harness.costs.iteration import MAX_REQUESTS
from harness.engines.simulator.fast.arrays import (
    ALL,
    FIRST,
    PAUSE,
    RECOMPUTE,
    SWAP_OUT,
    ReplicaRule,
)
from harness.engines.simulator.host_memory import GroupHost
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)


def order_rule(
    order: PriorityOrder,
    *,
    capacity_blocks: int,
    block_tokens: int,
    log_columns: int,
    max_tokens: int,
    decide_s: float,
) -> ReplicaRule:
    """The rule of an order in numbers; of the last two see `static_rule`, whose alone they are.

    Raises ValueError for an order that gives way by swapping.
    """
    if order.gives_way is PreemptionMode.SWAP:
        raise ValueError("a priority order that gives way by swapping is stepped, not compiled")
    if isinstance(order.rule, StaticBatching):
        return static_rule(
            order.rule,
            capacity_blocks=capacity_blocks,
            block_tokens=block_tokens,
            log_columns=log_columns,
            max_tokens=max_tokens,
            decide_s=decide_s,
        )
    rule = replica_rule(
        order.rule,
        capacity_blocks=capacity_blocks,
        block_tokens=block_tokens,
        log_columns=log_columns,
        displaces=order.displaces,
    )
    return rule._replace(reserves=order.reserve_tokens is not None)


def replica_rule(
    rule: ContinuousBatching,
    *,
    capacity_blocks: int,
    block_tokens: int,
    log_columns: int,
    displaces: Displaced | None = None,
) -> ReplicaRule:
    """The rule in numbers; whether keys move and allocations grow is told later.

    Raises ValueError where costs are not known, and for a rule without `prompts_first`.
    """
    if not rule.prompts_first:
        raise ValueError("a priority order with rule.prompts_first off is stepped, not compiled")
    max_requests = _known_size(rule.max_num_seqs)
    return ReplicaRule(
        chunked_prefill=rule.chunked_prefill,
        pads=rule.pads_prompts,
        max_requests=max_requests,
        max_tokens=rule.max_num_batched_tokens,
        max_padding=rule.max_padding_tokens,
        watermark_blocks=floor(rule.watermark * capacity_blocks),
        capacity_blocks=capacity_blocks,
        block_tokens=block_tokens,
        log_columns=log_columns,
        displaces=_DISPLACES[displaces],
    )


_DISPLACES = {
    None: 0,
    Displaced.PAUSE: PAUSE,
    Displaced.RECOMPUTE: RECOMPUTE,
    Displaced.SWAP: SWAP_OUT,
}


def swapping(rule: ReplicaRule, host: GroupHost, token_bytes: int) -> ReplicaRule:
    """The same rule with host memory that KV of so many bytes a token goes to."""
    return rule._replace(
        host_tokens=host.capacity_bytes // token_bytes,
        token_bytes=token_bytes,
        swap_token_s=token_bytes / host.bytes_per_s,
        swap_overlaps=host.overlaps,
    )


def static_rule(
    rule: StaticBatching,
    *,
    capacity_blocks: int,
    block_tokens: int,
    log_columns: int,
    max_tokens: int,
    decide_s: float = 0.0,
) -> ReplicaRule:
    """A rule of static batching in numbers; an engine computes at most `max_tokens` at once.

    `decide_s` passes before every batch.

    Raises ValueError where costs are not known.
    """
    return ReplicaRule(
        chunked_prefill=False,
        pads=rule.pads_prompts,
        max_requests=_known_size(rule.max_num_seqs),
        max_tokens=max_tokens,
        max_padding=max_tokens,
        watermark_blocks=0,
        capacity_blocks=capacity_blocks,
        block_tokens=block_tokens,
        log_columns=log_columns,
        until=FIRST if rule.refills else ALL,
        max_wait_s=rule.max_wait_s,
        decide_s=decide_s,
    )


def _known_size(max_num_seqs: int) -> int:
    if not 1 <= max_num_seqs <= MAX_REQUESTS:
        raise ValueError(f"max_num_seqs is {max_num_seqs}, costs go from 1 to {MAX_REQUESTS}")
    return max_num_seqs
