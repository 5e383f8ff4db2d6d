"""Requests leave a replica unanswered: those that hold no KV, or all of them."""

import numpy as np

from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
    CLOCK,
    DECODING,
    HOST_TOKENS,
    NEXT_ARRIVAL,
    PARTIAL,
    PAUSED,
    SEATED,
    WAITING,
)
from harness.engines.simulator.fast.heaps import push_all
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.state import HOST, Ints


def withdraw(replica: ReplicaState, *, everything: bool) -> Ints:
    """Take out the requests that hold no KV, or all of them; their KV is dropped.

    Who has KV in host memory holds it: there is its only copy.
    """
    replica.clear_s = -np.inf
    arrays, counts = replica.arrays, replica.arrays.counts
    waiting = arrays.waiting[: counts[WAITING]].copy()
    if everything and counts[HOST_TOKENS]:
        replica.requests.swap[waiting, HOST] = counts[HOST_TOKENS] = 0
    holds = replica.requests.kv[waiting] > 0
    if counts[HOST_TOKENS]:
        holds |= replica.requests.swap[waiting, HOST] > 0
    holders = waiting[holds]
    taken = [
        waiting[~holds],
        arrays.arrivals[counts[NEXT_ARRIVAL] : counts[ARRIVALS]].copy(),
        _withdraw_unbegun(replica),
    ]
    counts[WAITING] = 0
    counts[NEXT_ARRIVAL] = counts[ARRIVALS]
    if everything:
        decoding = arrays.decoding[: counts[DECODING]]
        holders = np.concatenate([holders, decoding, arrays.partial[: counts[PARTIAL]]])
        replica.requests.preemptions[holders] += 1
        replica.requests.preempted_at_s[holders] = arrays.time_s[CLOCK]
        replica.requests.kv[holders] = 0
        counts[DECODING] = counts[PARTIAL] = counts[SEATED] = counts[PAUSED] = 0
        taken.append(holders)
    else:
        push_all(replica.requests, arrays, holders)
    return np.sort(np.concatenate(taken))


def withdraw_to_come(replica: ReplicaState, now_s: float) -> Ints:
    """Take out the requests that come after this time."""
    replica.clear_s = -np.inf
    arrays, counts = replica.arrays, replica.arrays.counts
    coming = arrays.arrivals[counts[NEXT_ARRIVAL] : counts[ARRIVALS]]
    taken = coming[replica.requests.arrival_s[coming] > now_s].copy()
    counts[ARRIVALS] -= len(taken)
    return taken


def _withdraw_unbegun(replica: ReplicaState) -> Ints:
    """Take out those that have a seat and nothing else."""
    arrays, counts = replica.arrays, replica.arrays.counts
    partial = arrays.partial[: counts[PARTIAL]]
    begun = (replica.requests.kv[partial] > 0) | np.isin(partial, replica.begun_ids())
    taken, kept = partial[~begun].copy(), int(begun.sum())
    arrays.chunk[:kept] = arrays.chunk[: counts[PARTIAL]][begun]
    arrays.partial[:kept] = partial[begun]
    counts[PARTIAL] = kept
    seats = arrays.seats[: counts[SEATED]]
    seats = seats[~np.isin(seats, taken)]
    arrays.seats[: len(seats)] = seats
    counts[SEATED] = len(seats)
    return taken
