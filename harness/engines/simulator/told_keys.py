"""The keys of a priority order, and what it sets aside, in the arrays that compiled code reads."""

from collections.abc import Sequence

import numpy as np

from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.layout import BY_GPU_S, BY_TOKENS
from harness.engines.state import END, SLOPE, VALUE, Ints
from harness.interface.decisions import PriorityOrder, StaticBatching
from harness.interface.moving import MovingKey, Progress
from harness.interface.tables import RequestTable


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
    if isinstance(key, MovingKey):
        _set_pieces(compiled, numbers, rows, key)
        key = key.at(table)
    arrays.key[rows] = key
    # The heap of preemption goes by keys: it is made again when it is needed.
    groups["n_ranked"][numbers] = 0
    if reserves(order):
        begun = np.concatenate([compiled.begun_ids(number) for number in numbers])
        free = (table.kv_tokens == 0) & ~np.isin(rows, begun)
        arrays.wanted[rows] = order.reserved_tokens(table)
        arrays.reserved[rows[free]] = arrays.wanted[rows[free]]
        if (arrays.wanted[rows] > arrays.reserved[rows]).any():
            groups["renews"][numbers] = True


def _set_pieces(
    compiled: CompiledGroups, numbers: Sequence[int], rows: Ints, key: MovingKey
) -> None:
    """Write the pieces of moving keys where compiled code finds them."""
    groups, count = compiled.world.groups, key.value.shape[1]
    pieces = compiled.use_pieces(count)
    for place, values in ((END, key.until), (VALUE, key.value), (SLOPE, key.slope)):
        pieces[rows, :count, place] = values
        pieces[rows, count:, place] = values[:, -1:]
    if np.isfinite(key.until[:, -1]).any():
        groups["asks"][numbers] = True
    if (groups["asks"][numbers] & (groups["until"][numbers] > 0)).any():
        raise ValueError("under static batching the last piece of a moving key must not end")
    groups["moves"][numbers] = BY_GPU_S if key.by is Progress.GPU_S else BY_TOKENS
