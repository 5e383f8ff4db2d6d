"""Priority orders in the numbers that compiled code follows: rules, keys, what is set aside."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from harness.costs.iteration import MAX_REQUESTS, IterationTable
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel import layout
from harness.engines.simulator.kernel.layout import Rule
from harness.engines.state import END, IDLE, PIECE, SLOPE, VALUE, Floats, Ints
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PriorityOrder,
    StaticBatching,
    has_phases,
)
from harness.interface.entities import ServiceId
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import CostModel
from harness.interface.promotion import AfterIterations
from harness.interface.tables import RequestTable


@runtime_checkable
class ExplainsUnfit(Protocol):
    """Costs that know the bytes that a model needs."""

    def unfit_because(self, service: ServiceId, tensor_parallel: int) -> str:
        """Why a model has no KV on so many GPUs."""


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
            why = ""
            if isinstance(costs, ExplainsUnfit):
                why = f": {costs.unfit_because(service, tensor_parallel)}"
            raise ValueError(f"{service} does not fit {tensor_parallel} GPUs{why}")
    if costs.kv_bytes(services, tensor_parallel) <= 0:
        names = ", ".join(sorted(services))
        raise ValueError(f"{names} do not fit {tensor_parallel} GPUs together")


def is_compiled(order: PriorityOrder, services: Collection[ServiceId], *, caches: bool) -> bool:
    """Whether compiled code follows an order in a group of services, which `caches` or does not.

    Where prefixes are cached, that needs continuous batching that computes prompts first; engines
    swap nothing there. Where every batch is of one phase, no request is promoted.
    """
    if order.promotion is not None and has_phases(services, order):
        return False
    rule = order.rule
    in_turn = isinstance(rule, ContinuousBatching) and rule.prompts_first
    return not caches or in_turn


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
    """The rule of an order in a group; static batching alone needs `max_tokens` and `decide_s`.

    Where every batch is of one service and one phase, KV is counted in bytes.

    Raises ValueError for an order that is not compiled, for KV blocks that are too large, and where
    costs are not known.
    """
    kv, is_shared = group_kv(costs, services, tensor_parallel), has_phases(services, order)
    tokens, blocks = kv.block_tokens, costs.kv_blocks(min(services), tensor_parallel)
    if tokens > layout.MAX_BLOCK_TOKENS:
        raise ValueError(f"KV blocks of {tokens} tokens, at most {layout.MAX_BLOCK_TOKENS} can be")
    if not is_compiled(order, services, caches=False):
        raise ValueError("promotions where batches are of one phase are stepped, not compiled")
    if isinstance(batching := order.rule, StaticBatching):
        batching = _first_iteration(batching, max_tokens)
    rule = continuous_rule(
        batching,
        capacity_blocks=kv.capacity_bytes if is_shared else blocks,
        block_tokens=tokens,
        log_columns=log_columns,
        displaces=order.displaces,
    )
    if isinstance(order.rule, StaticBatching):
        until = layout.FIRST if order.rule.refills else layout.ALL
        return rule._replace(until=until, max_wait_s=order.rule.max_wait_s, decide_s=decide_s)
    promotion = order.promotion
    if isinstance(promotion, AfterIterations):
        return rule._replace(promotes_after=promotion.iterations, promoted_for=promotion.runs)
    return rule if promotion is None else rule._replace(promotes_after=promotion.seconds)


def _first_iteration(rule: StaticBatching, max_tokens: int) -> ContinuousBatching:
    """What the first iteration of a static batch may compute."""
    return ContinuousBatching(
        chunked_prefill=False,
        pads_prompts=rule.pads_prompts,
        max_num_seqs=rule.max_num_seqs,
        max_num_batched_tokens=max_tokens,
        max_padding_tokens=max_tokens,
        watermark=0.0,
    )


def open_group(
    compiled: CompiledGroups,
    number: int,
    order: PriorityOrder,
    rule: Rule,
    tables: Mapping[ServiceId, IterationTable],
    block_bytes: Mapping[ServiceId, int],
    *,
    services: Mapping[ServiceId, int],
    ready_s: float,
) -> None:
    """Open a compiled group of the services in `tables`; `services` has their numbers in the run.

    Raises ValueError where there are too many services for groups that share KV.
    """
    compiled.open(number, next(iter(tables.values())), rule, ready_s)
    if not has_phases(block_bytes, order):
        return
    if compiled.services > layout.MAX_SERVICES:
        raise ValueError(
            "a group has batches of one service and one phase in a run of"
            f" {compiled.services} services, at most {layout.MAX_SERVICES} can be"
        )
    facts = {
        services[service]: (tables[service], of_block, order.seconds_to_starve(service))
        for service, of_block in block_bytes.items()
    }
    compiled.share(number, facts)


def continuous_rule(
    rule: ContinuousBatching,
    *,
    capacity_blocks: int,
    block_tokens: int,
    log_columns: int,
    displaces: Displaced | None = None,
) -> Rule:
    """The rule in numbers; whether keys move and allocations grow is told later.

    Raises ValueError where costs are not known.
    """
    if not 1 <= rule.max_num_seqs <= MAX_REQUESTS:
        raise ValueError(f"max_num_seqs is {rule.max_num_seqs}, costs go from 1 to {MAX_REQUESTS}")
    return Rule(
        chunked_prefill=rule.chunked_prefill,
        pads=rule.pads_prompts,
        max_requests=rule.max_num_seqs,
        max_tokens=rule.max_num_batched_tokens,
        max_padding=rule.max_padding_tokens,
        watermark=rule.watermark,
        capacity_blocks=capacity_blocks,
        block_tokens=block_tokens,
        log_columns=log_columns,
        displaces=_DISPLACES[displaces],
        prompts_first=rule.prompts_first,
    )


_DISPLACES = {
    None: 0,
    Displaced.PAUSE: layout.PAUSE,
    Displaced.RECOMPUTE: layout.RECOMPUTE,
    Displaced.SWAP: layout.RECOMPUTE,  # the engine gives it host memory
}


def reserves(order: PriorityOrder) -> bool:
    """Whether KV is set aside for requests that are admitted."""
    return order.reserve_tokens is not None or isinstance(order.rule, StaticBatching)


def tell_keys(
    compiled: CompiledGroups,
    numbers: Sequence[int],
    order: PriorityOrder,
    rows: Ints,
    table: RequestTable,
) -> None:
    """Tell groups the keys of requests, and what is reserved when they are admitted.

    They are in these groups, or will come to any of them. `rows` are their places in the arrays,
    `table` what is known of them. Requests that hold KV keep what was set aside for them. Raises
    ValueError for keys that the rule cannot follow.
    """
    arrays, groups = compiled.requests, compiled.world.groups
    key = order.keys(table)
    if order.promotion is not None:
        key = _set_promoted(compiled, rows, key, order.promotion.keys(table, key))
    if isinstance(key, MovingKey):
        _set_pieces(compiled, numbers, rows, key)
        key = key.at(table)
    elif (moves := groups["moves"][numbers]).any():
        by = Progress.GPU_S if moves.max() == layout.BY_GPU_S else Progress.TOKENS
        _set_pieces(compiled, numbers, rows, _standing(key, by))
    arrays.key[rows] = key
    if reserves(order):
        begun = np.concatenate([compiled.begun_ids(number) for number in numbers])
        free = (table.kv_tokens == 0) & ~np.isin(rows, begun)
        arrays.wanted[rows] = order.reserved_tokens(table)
        arrays.reserved[rows[free]] = arrays.wanted[rows[free]]
        if (arrays.wanted[rows] > arrays.reserved[rows]).any():
            groups["renews"][numbers] = True


def _standing(key: Floats, by: Progress) -> MovingKey:
    """Keys that stand still, for groups whose keys moved before."""
    column = key[:, None]
    return MovingKey(column, np.zeros_like(column), np.full_like(column, np.inf), by)


def _set_pieces(
    compiled: CompiledGroups, numbers: Sequence[int], rows: Ints, key: MovingKey
) -> None:
    """Write the pieces of keys of requests in these groups, or to come to them."""
    groups = compiled.world.groups
    pieces = _grown(compiled, compiled.requests.pieces, key)
    compiled.use(pieces=pieces)
    _write(pieces, rows, key)
    if np.isfinite(key.until[:, -1]).any():
        groups["asks"][numbers] = True
    if (groups["asks"][numbers] & (groups["until"][numbers] > 0)).any():
        raise ValueError("under static batching the last piece of a moving key must not end")
    groups["moves"][numbers] = layout.BY_GPU_S if key.by is Progress.GPU_S else layout.BY_TOKENS


def _set_promoted(
    compiled: CompiledGroups, rows: Ints, own: Floats | MovingKey, promoted: Floats | MovingKey
) -> Floats | MovingKey:
    """Write the keys by which requests go once they are promoted; returns their keys now.

    Requests promoted already go by them; the others go by their `own`.
    """
    if not len(compiled.requests.idle):
        compiled.use(idle=np.zeros(len(compiled.requests.rows), IDLE))
    idle = compiled.requests.idle
    if isinstance(own, MovingKey) and isinstance(promoted, MovingKey):
        pieces = _grown(compiled, compiled.requests.promoted, promoted)
        compiled.use(promoted=pieces)
        _write(pieces, rows, promoted)
        return own.where_promoted(promoted, idle["begun"][rows], idle["round"][rows])
    idle["own_key"][rows], idle["promoted_key"][rows] = own, promoted
    return np.where(idle["left"][rows] > 0, idle["promoted_key"][rows], idle["own_key"][rows])


def _grown(compiled: CompiledGroups, pieces: Floats, key: MovingKey) -> Floats:
    """Room for the pieces of keys of all requests of the run."""
    count, known = key.value.shape[1], pieces.shape[1]
    if len(pieces) == len(compiled.requests.rows) and known >= count:
        return pieces
    grown = np.zeros((len(compiled.requests.rows), max(count, known), PIECE))
    grown[: len(pieces), :known] = pieces
    grown[: len(pieces), known:] = pieces[:, -1:]
    return grown


def _write(pieces: Floats, rows: Ints, key: MovingKey) -> None:
    count = key.value.shape[1]
    for place, values in ((END, key.until), (VALUE, key.value), (SLOPE, key.slope)):
        pieces[rows, :count, place] = values
        pieces[rows, count:, place] = values[:, -1:]
