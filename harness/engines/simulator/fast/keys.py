"""Keys that move with progress: where they are now, and for how many decode steps nothing turns."""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.costs.iteration import IterationTable, decode_iterations_within
from harness.engines.simulator.fast.arrays import (
    BY_GPU_S,
    BY_TOKENS,
    CONTEXT,
    DECODED,
    DECODING,
    LONGEST,
    PARTIAL,
    STEPS,
    WAITING,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.state import END, SLOPE, VALUE, RequestArrays
from harness.interface.tables import PER_S

MARGIN_S = 2.0 / PER_S
"""So much before a key turns by GPU seconds one looks again: more than rounding can move it."""


@inlined
def progress_of(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int, decodes: bool
) -> float:
    """How far a request has come in what keys move with; `decodes` if it is a decoding one."""
    if rule.moves == BY_GPU_S:
        gpu_s = requests.gpu_s[request]
        if decodes:
            gpu_s += replica.time_s[DECODED]
        return float(np.rint(gpu_s * PER_S) / PER_S)
    generated = requests.generated[request]
    if decodes:
        generated += replica.counts[STEPS] - requests.joined[request]
    return float(generated)


@inlined
def piece_of(requests: RequestArrays, request: int, progress: float) -> int:
    """The piece of its key in which a request is that has come so far."""
    piece, last = 0, requests.pieces.shape[1] - 1
    while piece < last and requests.pieces[request, piece, END] <= progress:
        piece += 1
    return piece


@inlined
def set_key(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int, decodes: bool
) -> None:
    """Move a request's key to where it is now."""
    progress = progress_of(requests, replica, rule, request, decodes)
    piece = piece_of(requests, request, progress)
    value = requests.pieces[request, piece, VALUE]
    requests.key[request] = value + requests.pieces[request, piece, SLOPE] * progress


@compiled
def move_keys(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Bring the keys of all that run up to date; those of others do not move."""
    if not rule.moves:
        return
    for i in range(replica.counts[DECODING]):
        set_key(requests, replica, rule, replica.decoding[i], True)
    if rule.moves == BY_GPU_S:
        for i in range(replica.counts[PARTIAL]):
            set_key(requests, replica, rule, replica.partial[i], False)


@compiled
def must_ask(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> bool:
    """Whether the last piece of a running request's key has ended, where such pieces end."""
    decoding, last = replica.counts[DECODING], requests.pieces.shape[1] - 1
    for i in range(decoding + replica.counts[PARTIAL]):
        decodes = i < decoding
        request = replica.decoding[i] if decodes else replica.partial[i - decoding]
        progress = progress_of(requests, replica, rule, request, decodes)
        if requests.pieces[request, last, END] <= progress:
            return True
    return False


@compiled
def steps_in_order(
    table: IterationTable,
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    most: int,
) -> int:
    """Decode steps, at most `most`, until a key may pass that of the first who waits.

    Only then can somebody be displaced. Keys move, and must be up to date.
    """
    counts = replica.counts
    watch = rule.displaces != 0 and counts[WAITING] > 0
    last, least = requests.pieces.shape[1] - 1, np.inf
    for i in range(counts[DECODING]):
        request = replica.decoding[i]
        progress = progress_of(requests, replica, rule, request, True)
        piece = piece_of(requests, request, progress)
        if watch or piece == last:
            least = min(least, requests.pieces[request, piece, END] - progress)
        slope = requests.pieces[request, piece, SLOPE]
        if watch and slope > 0.0:
            ahead = (requests.key[replica.waiting[0]] - requests.key[request]) / slope
            ahead = ahead if rule.moves == BY_GPU_S else np.floor(ahead)
            if ahead < least:  # not where both are infinite
                least = ahead
    if rule.moves == BY_TOKENS or least == np.inf:
        return most if least >= most else max(1, int(np.ceil(least)))
    longest = counts[LONGEST] + counts[STEPS]
    batch, context = counts[DECODING], counts[CONTEXT]
    return decode_iterations_within(table, batch, context, longest, least - MARGIN_S, most)
