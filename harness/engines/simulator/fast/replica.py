"""A group under a priority order: compiled state, its costs; how to advance, undo and read it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.iteration import IterationTable
from harness.engines.simulator.fast.arrays import (
    BUSY,
    BY_GPU_S,
    CLOCK,
    DECODING,
    DONE,
    FLIGHT,
    FLIGHT_S,
    HOST_TOKENS,
    LOGGED,
    NEXT_ARRIVAL,
    NEXT_TURN,
    NOTHING,
    OVERRAN,
    PARTIAL,
    PAUSED,
    SEATED,
    STOPPED,
    WAITING,
    ReplicaArrays,
    ReplicaRule,
    new_replica,
)
from harness.engines.simulator.fast.heaps import count_followers, push_all
from harness.engines.simulator.fast.kernel import ASKED, FULL, STUCK, advance
from harness.engines.state import END, HOST, LOG_COLUMNS, Floats, Ints, RequestArrays, forget
from harness.interface.tables import attained_s

T = TypeVar("T", bound=np.generic)

_SAVED = (
    "generated",
    "kv",
    "first_token_s",
    "finished_s",
    "gpu_s",
    "preemptions",
    "started_s",
    "prefill_s",
    "preempted_at_s",
    "preempted_s",
    "key",
    "reserved",
    "swap",
    "wanted",
)


def _keep_keys(ids: Ints) -> None:
    """For replicas whose keys are told once."""


@dataclass(slots=True)
class ReplicaState:
    """A group under a priority order: compiled state, costs, and what it has reported.

    `tell_keys` has the keys of these requests told anew, and with them what is reserved for those
    that hold nothing.
    """

    table: IterationTable
    rule: ReplicaRule
    requests: RequestArrays
    arrays: ReplicaArrays
    tell_keys: Callable[[Ints], None] = _keep_keys
    reported: int = 0
    _ids: int = 0

    @classmethod
    def empty(
        cls,
        table: IterationTable,
        rule: ReplicaRule,
        requests: RequestArrays,
        now_s: float,
        *,
        log_rows: int = 1024,
    ) -> "ReplicaState":
        """A replica without requests whose first iteration may begin now; its log grows."""
        replica = cls(table, rule, requests, new_replica(0, rule, log_rows if rule.log_on else 0))
        replica.arrays.time_s[CLOCK] = now_s
        return replica

    def add(self, ids: Ints, now_s: float) -> None:
        """Requests that wait from now on, or from their arrival where that is later."""
        if not self.has_work:
            self.arrays.time_s[CLOCK] = now_s
        self._add_turns(ids)
        arrays, clock_s = self.arrays, self.arrays.time_s[CLOCK]
        is_later = self.requests.arrival_s[ids] > clock_s
        self._ids += len(ids) + count_followers(self.requests, ids)
        arrivals, come = arrays.arrivals, arrays.counts[NEXT_ARRIVAL]
        if is_later.any():
            arrivals, come = np.concatenate([arrivals[come:], ids[is_later]]), 0
        arrays.counts[NEXT_ARRIVAL] = come
        self.arrays = arrays._replace(
            waiting=_with_room(arrays.waiting, self._ids),
            done=_with_room(arrays.done, self._ids),
            arrivals=arrivals,
        )
        push_all(self.requests, self.arrays, ids[~is_later])

    def _add_turns(self, ids: Ints) -> None:
        """Predictions of some of these come at known times."""
        turns_s, arrays = self.requests.turns_s, self.arrays
        if not len(turns_s):
            return
        new = ids[np.isfinite(turns_s[ids])]
        if len(new):
            turns = np.concatenate([arrays.turns[arrays.counts[NEXT_TURN] :], new])
            arrays.counts[NEXT_TURN] = 0
            turns = turns[np.argsort(turns_s[turns], kind="stable")]
            self.arrays = arrays._replace(turns=turns)

    def withdraw(self, *, everything: bool) -> Ints:
        """Take out the requests that hold no KV, or all of them; their KV is dropped.

        Who has KV in host memory holds it: there is its only copy.
        """
        arrays, counts = self.arrays, self.arrays.counts
        waiting = arrays.waiting[: counts[WAITING]].copy()
        if everything and counts[HOST_TOKENS]:
            self.requests.swap[waiting, HOST] = counts[HOST_TOKENS] = 0
        holds = self.requests.kv[waiting] > 0
        if counts[HOST_TOKENS]:
            holds |= self.requests.swap[waiting, HOST] > 0
        holders = waiting[holds]
        taken = [
            waiting[~holds],
            arrays.arrivals[counts[NEXT_ARRIVAL] :].copy(),
            self._withdraw_unbegun(),
        ]
        counts[WAITING] = 0
        counts[NEXT_ARRIVAL] = len(arrays.arrivals)
        if everything:
            decoding = arrays.decoding[: counts[DECODING]]
            holders = np.concatenate([holders, decoding, arrays.partial[: counts[PARTIAL]]])
            self.requests.preemptions[holders] += 1
            self.requests.preempted_at_s[holders] = arrays.time_s[CLOCK]
            self.requests.kv[holders] = 0
            counts[DECODING] = counts[PARTIAL] = counts[SEATED] = counts[PAUSED] = 0
            taken.append(holders)
        else:
            push_all(self.requests, arrays, holders)
        return np.sort(np.concatenate(taken))

    def _withdraw_unbegun(self) -> Ints:
        """Take out those that have a seat and nothing else."""
        arrays, counts = self.arrays, self.arrays.counts
        partial = arrays.partial[: counts[PARTIAL]]
        begun = (self.requests.kv[partial] > 0) | np.isin(partial, self.begun_ids())
        taken, kept = partial[~begun].copy(), int(begun.sum())
        arrays.chunk[:kept] = arrays.chunk[: counts[PARTIAL]][begun]
        arrays.partial[:kept] = partial[begun]
        counts[PARTIAL] = kept
        seats = arrays.seats[: counts[SEATED]]
        seats = seats[~np.isin(seats, taken)]
        arrays.seats[: len(seats)] = seats
        counts[SEATED] = len(seats)
        return taken

    def run_to(self, horizon_s: float) -> None:
        """Advance the replica. ValueError when its first waiting request can never be admitted."""
        if self.arrays.counts[FLIGHT] == NOTHING and self.arrays.time_s[CLOCK] >= horizon_s:
            return
        while True:
            status = advance(self.table, self.requests, self.arrays, self.rule, horizon_s)
            if status == FULL:
                arrays = self.arrays
                self.arrays = arrays._replace(
                    busy_s=_longer(arrays.busy_s, 2 * len(arrays.busy_s)),
                    log=_longer(arrays.log, 2 * len(arrays.log)),
                )
            elif status == ASKED:
                self._tell_keys_anew()
            else:
                break
        if status == STUCK:
            raise ValueError(
                f"r{self._first_stuck()} can never be admitted: {self.rule.capacity_blocks} KV "
                f"blocks of {self.rule.block_tokens} tokens, {self.rule.watermark_blocks} kept "
                f"free, {self.rule.max_tokens} tokens a batch"
            )

    def _first_stuck(self) -> int:
        arrays = self.arrays
        stuck = arrays.partial if arrays.counts[PARTIAL] else arrays.waiting
        return int(stuck[0])

    def _tell_keys_anew(self) -> None:
        """Requests that run are past the last piece of their key."""
        arrays, counts, requests = self.arrays, self.arrays.counts, self.requests
        decoding, partial = arrays.decoding[: counts[DECODING]], arrays.partial[: counts[PARTIAL]]
        ids = np.sort(np.concatenate([decoding, partial]))
        by_gpu_s = self.rule.moves == BY_GPU_S
        progress = attained_s(requests.gpu_s[ids]) if by_gpu_s else requests.generated[ids]
        self.tell_keys(ids[requests.pieces[ids, -1, END] <= progress])

    @property
    def flight_begins_s(self) -> float:
        """When the iteration in flight began; the last boundary where there is none."""
        return float(self.arrays.time_s[CLOCK])

    @property
    def flight_ends_s(self) -> float:
        """When the iteration in flight ends; the last boundary where there is none."""
        flying = self.arrays.counts[FLIGHT] != NOTHING
        return float(self.arrays.time_s[CLOCK] + (self.arrays.time_s[FLIGHT_S] if flying else 0.0))

    @property
    def host_bytes(self) -> int:
        """KV in host memory."""
        return int(self.arrays.counts[HOST_TOKENS]) * self.rule.token_bytes

    @property
    def has_work(self) -> bool:
        """Anything to run, now or later."""
        counts = self.arrays.counts
        return bool(
            counts[WAITING] + counts[DECODING] + counts[PARTIAL] > 0
            or counts[NEXT_ARRIVAL] < len(self.arrays.arrivals)
        )

    @property
    def stopped(self) -> bool:
        """Whether it stopped at its clock for something that others wait for, or learn of."""
        return bool(self.arrays.counts[STOPPED])

    def open_ids(self) -> Ints:
        """Unfinished requests here that have come or will by a time that is known, in no order."""
        arrays, counts = self.arrays, self.arrays.counts
        return np.concatenate(
            [
                arrays.waiting[: counts[WAITING]],
                arrays.decoding[: counts[DECODING]],
                arrays.partial[: counts[PARTIAL]],
                arrays.arrivals[counts[NEXT_ARRIVAL] :],
            ]
        )

    def begun_ids(self) -> Ints:
        """Requests of which the iteration in flight computes a part of the prompt."""
        arrays, counts = self.arrays, self.arrays.counts
        partial = arrays.partial[: counts[PARTIAL] if counts[FLIGHT] != NOTHING else 0]
        return partial[arrays.chunk[: len(partial)] > 0]

    def done(self) -> Ints:
        """Ids finished and not yet reported, in order of their end."""
        return self.arrays.done[self.reported : self.arrays.counts[DONE]]

    def take_overruns(self) -> Ints:
        """Those that have outgrown what was set aside for them since this was asked last."""
        taken = np.sort(self.arrays.over[: self.arrays.counts[OVERRAN]])
        self.arrays.counts[OVERRAN] = 0
        return taken

    def busy_s(self) -> Floats:
        """(start, end) of every stretch without a pause between iterations."""
        return self.arrays.busy_s[: self.arrays.counts[BUSY]]

    @property
    def _saved(self) -> tuple[str, ...]:
        """Pieces may be told anew while it runs ahead."""
        return (*_SAVED, "pieces") if self.rule.moves else _SAVED

    def save(self) -> tuple[Ints, list[NDArray[np.generic]], ReplicaArrays]:
        """Enough to undo a run ahead."""
        ids = self.open_ids()
        rows = [getattr(self.requests, name)[ids] for name in self._saved]
        return ids, rows, ReplicaArrays._make(a.copy() for a in self.arrays)

    def restore(self, saved: tuple[Ints, list[NDArray[np.generic]], ReplicaArrays]) -> None:
        """Undo everything since `save`."""
        ids, rows, before = saved
        ended = self.arrays.done[before.counts[DONE] : self.arrays.counts[DONE]]
        come = np.setdiff1d(np.concatenate([self.open_ids(), ended]), ids)
        if len(come):
            forget(self.requests, come)
        self.arrays = before
        for name, row in zip(self._saved, rows, strict=True):
            getattr(self.requests, name)[ids] = row

    @property
    def _saved(self) -> tuple[str, ...]:
        return _SAVED if len(self.requests.swap) else _SAVED[:-1]

    def log(self) -> pd.DataFrame:
        """Runs of equal iterations so far, columns `LOG_COLUMNS`."""
        return pd.DataFrame(
            self.arrays.log[: self.arrays.counts[LOGGED]], columns=list(LOG_COLUMNS)
        )


def _with_room(array: NDArray[T], length: int) -> NDArray[T]:
    """The array, or a longer one with room to grow."""
    return array if len(array) > length else _longer(array, 2 * length + 1)


def _longer(array: NDArray[T], length: int) -> NDArray[T]:
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
