"""Keys that move with progress: where they are now, and for how many decode steps nothing turns."""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    DECODING,
    STEPS,
    WAITING,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.state import END, SLOPE, VALUE, RequestArrays


@inlined
def piece_of(requests: RequestArrays, request: int, generated: int) -> int:
    """The piece of its key in which a request is with so many tokens generated."""
    piece, last = 0, requests.pieces.shape[1] - 1
    while piece < last and requests.pieces[request, piece, END] <= generated:
        piece += 1
    return piece


@inlined
def set_key(requests: RequestArrays, request: int, generated: int) -> None:
    """Move a request's key to where it is with so many tokens generated."""
    piece = piece_of(requests, request, generated)
    value = requests.pieces[request, piece, VALUE]
    requests.key[request] = value + requests.pieces[request, piece, SLOPE] * generated


@compiled
def move_keys(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Bring the keys of all decoding requests up to date; those of others do not move."""
    if not rule.moves:
        return
    for i in range(replica.counts[DECODING]):
        request = replica.decoding[i]
        done = replica.counts[STEPS] - requests.joined[request]
        set_key(requests, request, requests.generated[request] + done)


@compiled
def must_ask(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> bool:
    """Whether the last piece of a decoding request's key has ended."""
    if not rule.asks:
        return False
    last = requests.pieces.shape[1] - 1
    for i in range(replica.counts[DECODING]):
        request = replica.decoding[i]
        done = replica.counts[STEPS] - requests.joined[request]
        if requests.pieces[request, last, END] <= requests.generated[request] + done:
            return True
    return False


@compiled
def steps_in_order(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, most: int
) -> int:
    """Decode steps, at most `most`, until a key may pass that of the first who waits.

    Only then can somebody be displaced. Keys must be up to date.
    """
    if not rule.moves:
        return most
    watch = rule.displaces != 0 and replica.counts[WAITING] > 0
    last = requests.pieces.shape[1] - 1
    for i in range(replica.counts[DECODING]):
        request = replica.decoding[i]
        generated = requests.generated[request]
        generated += replica.counts[STEPS] - requests.joined[request]
        piece = piece_of(requests, request, generated)
        left = requests.pieces[request, piece, END] - generated
        if (watch or piece == last) and left < most:
            most = max(1, int(np.ceil(left)))
        slope = requests.pieces[request, piece, SLOPE]
        if watch and slope > 0.0:
            ahead = requests.key[replica.waiting[0]] - requests.key[request]
            if ahead < slope * most:
                most = max(1, int(ahead / slope))
    return most
