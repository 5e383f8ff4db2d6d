"""Keys that move with progress: where they are now, and for how many decode steps none passes."""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_iterations_within
from harness.engines.simulator.kernel.layout import BY_GPU_S, BY_TOKENS, Group, Records
from harness.engines.state import END, SLOPE, VALUE, Floats, Ints
from harness.interface.tables import PER_S

MARGIN_S = 2.0 / PER_S
"""So long before a key turns by GPU seconds the order is looked at: rounding moves it less."""


@compiled
def progress_of(requests: Records, group: Group, request: int, decodes: bool) -> float:
    """Progress of a request in what keys move with; `decodes` if it is a decoding one."""
    if group.moves == BY_GPU_S:
        gpu_s = requests[request].gpu_s
        if decodes:
            gpu_s += group.decoded_s
        return float(np.rint(gpu_s * PER_S) / PER_S)
    generated = requests[request].generated
    if decodes:
        generated += group.steps - requests[request].joined
    return float(generated)


@compiled
def piece_of(pieces: Floats, request: int, progress: float) -> int:
    """The piece of its key in which a request with this progress is."""
    piece, last = 0, pieces.shape[1] - 1
    while piece < last and pieces[request, piece, END] <= progress:
        piece += 1
    return piece


@compiled
def set_key(requests: Records, pieces: Floats, group: Group, request: int, decodes: bool) -> None:
    """Move a request's key to where it is now."""
    progress = progress_of(requests, group, request, decodes)
    piece = piece_of(pieces, request, progress)
    requests[request].key = pieces[request, piece, VALUE] + pieces[request, piece, SLOPE] * progress


@compiled
def move_keys(requests: Records, pieces: Floats, group: Group) -> None:
    """Bring the keys of all running requests up to date; those of others do not move."""
    if not group.moves:
        return
    for i in range(group.n_decoding):
        set_key(requests, pieces, group, group.decoding[i], True)
    if group.moves == BY_GPU_S:
        for i in range(group.n_partial):
            set_key(requests, pieces, group, group.partial[i], False)


@compiled
def must_ask(requests: Records, pieces: Floats, group: Group) -> bool:
    """Whether the last piece of a running request's key has ended."""
    last = pieces.shape[1] - 1
    for i in range(group.n_decoding + group.n_partial):
        is_decode = i < group.n_decoding
        request = group.decoding[i] if is_decode else group.partial[i - group.n_decoding]
        progress = progress_of(requests, group, request, is_decode)
        if pieces[request, last, END] <= progress:
            return True
    return False


@compiled
def steps_in_order(
    table: Group, requests: Records, pieces: Floats, queue: Ints, group: Group, most: int
) -> int:
    """Decode steps, at most `most`, until a key may pass that of the first waiting request.

    Before that no request can be displaced. Keys move, and must be up to date.
    """
    watch = group.displaces != 0 and group.n_waiting > 0
    last, least = pieces.shape[1] - 1, np.inf
    for i in range(group.n_decoding):
        request = group.decoding[i]
        progress = progress_of(requests, group, request, True)
        piece = piece_of(pieces, request, progress)
        # Where the last piece ends, the key is asked again then.
        least = min(least, pieces[request, last, END] - progress)
        if watch:
            least = min(least, pieces[request, piece, END] - progress)
        slope = pieces[request, piece, SLOPE]
        if watch and slope > 0.0:
            ahead = (requests[queue[group.queue_at]].key - requests[request].key) / slope
            ahead = ahead if group.moves == BY_GPU_S else np.floor(ahead)
            if ahead < least:  # not where both are infinite
                least = ahead
    if group.moves == BY_TOKENS or least == np.inf:
        return most if least >= most else max(1, int(np.ceil(least)))
    longest = group.longest + group.steps
    return int(
        decode_iterations_within(
            table, group.n_decoding, group.context, longest, least - MARGIN_S, most
        )
    )
