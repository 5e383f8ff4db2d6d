"""Priority orders in the numbers that compiled code follows."""

from collections.abc import Collection, Mapping
from math import floor
from typing import NamedTuple

from harness.costs.iteration import MAX_REQUESTS, IterationTable
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.host_memory import GroupHost
from harness.engines.simulator.kernel.layout import (
    ALL,
    FIRST,
    MAX_BLOCK_TOKENS,
    MAX_SERVICES,
    PAUSE,
    RECOMPUTE,
    SWAP_OUT,
    Rule,
)
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.entities import ServiceId
from harness.interface.policies import CostModel
from harness.interface.shared_filling import has_phases


class GroupKv(NamedTuple):
    """KV of a group, as its costs count it; `token_bytes` by service."""

    capacity_bytes: int
    block_tokens: int
    token_bytes: Mapping[ServiceId, int]

    def block_bytes(self, service: ServiceId) -> int:
        """Bytes of one block of a service."""
        return self.block_tokens * self.token_bytes[service]


def group_kv(costs: CostModel, services: Collection[ServiceId], tensor_parallel: int) -> GroupKv:
    """The KV of a group of these services. ValueError where their blocks differ in tokens."""
    block_tokens = {service: costs.block_tokens(service) for service in sorted(services)}
    if len(set(block_tokens.values())) > 1:
        raise ValueError(f"a group would have KV blocks of different tokens: {block_tokens}")
    token_bytes = {}
    for service, tokens in block_tokens.items():
        blocks = costs.kv_blocks(service, tensor_parallel)
        token_bytes[service] = costs.kv_bytes([service], tensor_parallel) // blocks // tokens
    capacity_bytes = costs.kv_bytes(services, tensor_parallel)
    return GroupKv(capacity_bytes, min(block_tokens.values()), token_bytes)


def refuse_unfit(costs: CostModel, services: Collection[ServiceId], tensor_parallel: int) -> None:
    """Raise ValueError where the GPUs of a group have no room for its weights and any KV."""
    for service in sorted(services):
        if costs.kv_blocks(service, tensor_parallel) <= 0:
            raise ValueError(f"{service} does not fit {tensor_parallel} GPUs")
    if costs.kv_bytes(services, tensor_parallel) <= 0:
        names = ", ".join(sorted(services))
        raise ValueError(f"{names} do not fit {tensor_parallel} GPUs together")


def order_rule(
    order: PriorityOrder,
    costs: CostModel,
    services: Collection[ServiceId],
    tensor_parallel: int,
    *,
    log_columns: int,
    max_tokens: int,
    decide_s: float,
) -> Rule:
    """The rule of an order in a group; `static_rule` alone needs `max_tokens` and `decide_s`.

    Where every batch is of one service and one phase, KV is counted in bytes.

    Raises ValueError for an order that gives way by swapping, and for KV blocks that are too large.
    """
    kv, is_shared = group_kv(costs, services, tensor_parallel), has_phases(services, order)
    tokens, blocks = kv.block_tokens, costs.kv_blocks(min(services), tensor_parallel)
    if tokens > MAX_BLOCK_TOKENS:
        raise ValueError(f"KV blocks of {tokens} tokens, at most {MAX_BLOCK_TOKENS} can be")
    if order.gives_way is PreemptionMode.SWAP:
        raise ValueError("a priority order that gives way by swapping is stepped, not compiled")
    if isinstance(order.rule, StaticBatching):
        return static_rule(
            order.rule,
            capacity_blocks=blocks,
            block_tokens=tokens,
            log_columns=log_columns,
            max_tokens=max_tokens,
            decide_s=decide_s,
        )
    rule = continuous_rule(
        order.rule,
        capacity_blocks=kv.capacity_bytes if is_shared else blocks,
        block_tokens=tokens,
        log_columns=log_columns,
        displaces=order.displaces,
        is_shared=is_shared,
    )
    return rule._replace(reserves=order.reserve_tokens is not None)


def open_group(
    compiled: CompiledGroups,
    number: int,
    order: PriorityOrder,
    rule: Rule,
    tables: Mapping[int, IterationTable],
    block_bytes: Mapping[int, int],
    *,
    ready_s: float,
) -> None:
    """Open a compiled group of the services in `tables`, by their numbers in the run.

    Raises ValueError where there are too many services for groups that share KV.
    """
    compiled.open(number, next(iter(tables.values())), rule, ready_s)
    if not rule.is_shared or isinstance(order.rule, StaticBatching):
        return
    if compiled.services > MAX_SERVICES:
        raise ValueError(
            "a group has batches of one service and one phase in a run of"
            f" {compiled.services} services, at most {MAX_SERVICES} can be"
        )
    capacity_bytes = rule.capacity_blocks
    facts = {
        service: (of_block, floor(order.rule.watermark * (capacity_bytes // of_block)) * of_block)
        for service, of_block in block_bytes.items()
    }
    compiled.share(number, tables, facts)


def continuous_rule(
    rule: ContinuousBatching,
    *,
    capacity_blocks: int,
    block_tokens: int,
    log_columns: int,
    displaces: Displaced | None = None,
    is_shared: bool = False,
) -> Rule:
    """The rule in numbers; whether keys move and allocations grow is told later.

    Raises ValueError where costs are not known, and for a rule without `prompts_first`.
    """
    if not (rule.prompts_first or is_shared):
        raise ValueError("rule.prompts_first is off, which is not supported in a forecast")
    max_requests = _known_size(rule.max_num_seqs)
    return Rule(
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
        is_shared=is_shared,
        prompts_first=rule.prompts_first,
    )


_DISPLACES = {
    None: 0,
    Displaced.PAUSE: PAUSE,
    Displaced.RECOMPUTE: RECOMPUTE,
    Displaced.SWAP: SWAP_OUT,
}


def swapping(rule: Rule, host: GroupHost, token_bytes: int) -> Rule:
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
) -> Rule:
    """A rule of static batching in numbers; an engine computes at most `max_tokens` at once.

    `decide_s` passes before every batch.

    Raises ValueError where costs are not known.
    """
    return Rule(
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
