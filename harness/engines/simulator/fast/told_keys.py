"""The keys of a priority order, and what it sets aside, in the arrays that a replica reads."""

import numpy as np

from harness.engines.simulator.fast.arrays import BY_GPU_S, BY_TOKENS
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.state import END, PIECE, SLOPE, VALUE, Floats, Ints
from harness.interface.decisions import PriorityOrder, StaticBatching
from harness.interface.moving import MovingKey, Progress
from harness.interface.tables import RequestTable


def reserves(order: PriorityOrder) -> bool:
    """Whether KV is set aside for those that are admitted."""
    return order.reserve_tokens is not None or isinstance(order.rule, StaticBatching)


def tell_keys(
    replica: ReplicaState,
    order: PriorityOrder,
    rows: Ints,
    table: RequestTable,
    room: dict[int, Floats],
) -> None:
    """Tell a replica the keys of requests, and what is reserved when they are admitted.

    `rows` are their places in the replica's arrays, `table` what is known of them. Those that hold
    KV keep what was set aside for them. Pieces of moving keys go to `room`, by their number: who
    shares it shares the arrays. Raises ValueError for keys that the rule cannot follow.
    """
    arrays = replica.requests
    key = order.keys(table)
    if isinstance(key, MovingKey):
        _set_pieces(replica, rows, key, room)
        key = key.at(table)
    arrays.key[rows] = key
    if reserves(order):
        free = (table.kv_tokens == 0) & ~np.isin(rows, replica.begun_ids())
        arrays.wanted[rows] = order.reserved_tokens(table)
        arrays.reserved[rows[free]] = arrays.wanted[rows[free]]
        if (arrays.wanted[rows] > arrays.reserved[rows]).any():
            replica.rule = replica.rule._replace(renews=True)


def _set_pieces(replica: ReplicaState, rows: Ints, key: MovingKey, room: dict[int, Floats]) -> None:
    """Write the pieces of moving keys where the replica finds them."""
    count = key.value.shape[1]
    if count not in room:
        room[count] = np.zeros((len(replica.requests.key), count, PIECE))
    pieces = room[count]
    pieces[rows, :, END] = key.until
    pieces[rows, :, VALUE], pieces[rows, :, SLOPE] = key.value, key.slope
    asks = replica.rule.asks or bool(np.isfinite(key.until[:, -1]).any())
    if asks and replica.rule.until:
        raise ValueError("under static batching the last piece of a moving key must not end")
    moves = BY_GPU_S if key.by is Progress.GPU_S else BY_TOKENS
    replica.rule = replica.rule._replace(moves=moves, asks=asks)
    replica.requests = replica.requests._replace(pieces=pieces)
