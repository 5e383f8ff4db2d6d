"""The pieces of moving keys, written where compiled code finds them."""

from collections.abc import Sequence

import numpy as np

from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel import layout
from harness.engines.state import END, IDLE, PIECE, SLOPE, VALUE, Floats, Ints
from harness.interface.moving import MovingKey, Progress


def standing(key: Floats, by: Progress) -> MovingKey:
    """Keys that stand still, for groups whose keys moved before."""
    column = key[:, None]
    return MovingKey(column, np.zeros_like(column), np.full_like(column, np.inf), by)


def set_pieces(
    compiled: CompiledGroups, numbers: Sequence[int], rows: Ints, key: MovingKey
) -> None:
    """Write the pieces of keys of requests in these groups, or to come to them."""
    groups = compiled.world.groups
    pieces = _grown(compiled, compiled.requests.pieces, key)
    compiled.requests = compiled.requests._replace(pieces=pieces)
    compiled.world = compiled.world._replace(pieces=pieces)
    _write(pieces, rows, key)
    if np.isfinite(key.until[:, -1]).any():
        groups["asks"][numbers] = True
    if (groups["asks"][numbers] & (groups["until"][numbers] > 0)).any():
        raise ValueError("under static batching the last piece of a moving key must not end")
    groups["moves"][numbers] = layout.BY_GPU_S if key.by is Progress.GPU_S else layout.BY_TOKENS


def set_promoted(
    compiled: CompiledGroups, rows: Ints, own: Floats | MovingKey, promoted: Floats | MovingKey
) -> Floats | MovingKey:
    """Write the keys by which requests go once they are promoted; returns their keys now.

    Requests promoted already go by them; the others go by their `own`.
    """
    if not len(compiled.requests.idle):
        idle = np.zeros(len(compiled.requests.rows), IDLE)
        compiled.requests = compiled.requests._replace(idle=idle)
        compiled.world = compiled.world._replace(idle=idle)
    idle = compiled.requests.idle
    if isinstance(own, MovingKey) and isinstance(promoted, MovingKey):
        pieces = _grown(compiled, compiled.requests.promoted, promoted)
        compiled.requests = compiled.requests._replace(promoted=pieces)
        compiled.world = compiled.world._replace(promoted=pieces)
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
