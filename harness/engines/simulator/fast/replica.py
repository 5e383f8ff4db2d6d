"""A group under a priority order: compiled state, its costs; how to advance, undo and read it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.costs.iteration import IterationTable, least_seconds
from harness.engines.simulator.fast.arrays import (
    ARRIVALS,
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
    STOPPED,
    TURNS,
    WAITING,
    ReplicaArrays,
    ReplicaRule,
    new_replica,
    with_room,
)
from harness.engines.simulator.fast.heaps import count_followers, push_all
from harness.engines.simulator.fast.kernel import ASKED, FULL, STUCK, advance
from harness.engines.state import END, Floats, Ints, RequestArrays, forget
from harness.interface.tables import attained_s

SAVED = (
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
    "wanted",
)


def _keep_keys(ids: Ints) -> None:
    """For replicas whose keys are told once."""


@dataclass(slots=True)
class ReplicaState:
    """A group under a priority order: compiled state, costs, and what it has reported.

    `tell_keys` has the keys of these requests told anew, and with them what is reserved for those
    that hold nothing. A run that was undone has shown that it does not stop for others before
    `clear_s`, and stops then if it `stops_then`; minus infinity where nothing is known.
    """

    table: IterationTable
    rule: ReplicaRule
    requests: RequestArrays
    arrays: ReplicaArrays
    tell_keys: Callable[[Ints], None] = _keep_keys
    reported: int = 0
    clear_s: float = -np.inf
    stops_then: bool = False
    _least_s: float = -1.0

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
        replica = cls(table, rule, requests, new_replica(0, rule, log_rows))
        replica.arrays.time_s[CLOCK] = now_s
        return replica

    def add(self, ids: Ints, now_s: float) -> None:
        """Requests that wait from now on, or from their arrival where that is later."""
        self.clear_s = -np.inf
        if not self.has_work:
            self.arrays.time_s[CLOCK] = now_s
        self._add_turns(ids)
        arrays, clock_s = self.arrays, self.arrays.time_s[CLOCK]
        is_later = self.requests.arrival_s[ids] > clock_s
        here = np.concatenate([self.open_ids(), ids])
        followers = count_followers(self.requests, here)
        open_count = len(here) + followers
        to_come = followers if self.rule.hand_over_s else 0
        if to_come or is_later.any():
            arrays = self._with_arrivals(ids[is_later], to_come)
        self.arrays = arrays._replace(
            waiting=with_room(arrays.waiting, open_count),
            done=with_room(arrays.done, arrays.counts[DONE] + open_count),
        )
        push_all(self.requests, self.arrays, ids[~is_later])

    def _with_arrivals(self, ids: Ints, followers: int) -> ReplicaArrays:
        """The arrays with these to come, too, and room for so many more."""
        arrays, counts = self.arrays, self.arrays.counts
        coming = np.concatenate([arrays.arrivals[counts[NEXT_ARRIVAL] : counts[ARRIVALS]], ids])
        coming = coming[np.argsort(self.requests.arrival_s[coming], kind="stable")]
        counts[NEXT_ARRIVAL], counts[ARRIVALS] = 0, len(coming)
        return arrays._replace(arrivals=with_room(coming, len(coming) + followers))

    def _add_turns(self, ids: Ints) -> None:
        """Predictions of some of these come at known times."""
        turns_s, arrays = self.requests.turns_s, self.arrays
        if not len(turns_s):
            return
        new = ids[np.isfinite(turns_s[ids])]
        if len(new):
            counts = arrays.counts
            turns = np.concatenate([arrays.turns[counts[NEXT_TURN] : counts[TURNS]], new])
            counts[NEXT_TURN], counts[TURNS] = 0, len(turns)
            turns = turns[np.argsort(turns_s[turns], kind="stable")]
            self.arrays = arrays._replace(turns=turns)

    def run_to(self, horizon_s: float) -> None:
        """Advance the replica. ValueError when its first waiting request can never be admitted."""
        if self.arrays.counts[FLIGHT] == NOTHING and self.arrays.time_s[CLOCK] >= horizon_s:
            return
        while self.heed(advance(self.table, self.requests, self.arrays, self.rule, horizon_s)):
            pass

    def heed(self, status: int) -> bool:
        """Do what compiled code has returned for; whether it is to go on.

        ValueError when the first waiting request can never be admitted.
        """
        if status == FULL:
            self._make_room()
        elif status == ASKED:
            self._tell_keys_anew()
        elif status == STUCK:
            raise ValueError(
                f"r{self._first_stuck()} can never be admitted: {self.rule.capacity_blocks} KV "
                f"blocks of {self.rule.block_tokens} tokens, {self.rule.watermark_blocks} kept "
                f"free, {self.rule.max_tokens} tokens a batch"
            )
        return status in (FULL, ASKED)

    def _make_room(self) -> None:
        """Make longer what may be full: intervals and log, and what one more request needs."""
        arrays, counts = self.arrays, self.arrays.counts
        more = len(self.open_ids()) + 1
        self.arrays = arrays._replace(
            busy_s=with_room(arrays.busy_s, counts[BUSY]),
            log=with_room(arrays.log, counts[LOGGED]),
            waiting=with_room(arrays.waiting, more),
            done=with_room(arrays.done, counts[DONE] + more),
            arrivals=with_room(arrays.arrivals, 2 * counts[ARRIVALS]),
            turns=with_room(arrays.turns, 2 * counts[TURNS]),
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
    def least_s(self) -> float:
        """What no iteration is shorter than."""
        if self._least_s < 0.0:
            self._least_s = least_seconds(self.table)
        return self._least_s

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
            or counts[NEXT_ARRIVAL] < counts[ARRIVALS]
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
                arrays.arrivals[counts[NEXT_ARRIVAL] : counts[ARRIVALS]],
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
        """Pieces may be told anew while it runs ahead; there may be no host memory."""
        pieces = ("pieces",) if self.rule.moves else ()
        return (*SAVED, *pieces, *(("swap",) if len(self.requests.swap) else ()))

    def save(self) -> tuple[Ints, list[NDArray[np.generic]], ReplicaArrays]:
        """Enough to undo a run ahead. What only grows is as it was up to its count."""
        ids = self.open_ids()
        rows = [getattr(self.requests, name)[ids] for name in self._saved]
        arrays = self.arrays
        brief = arrays._replace(done=arrays.done[:0], log=arrays.log[:0])
        kept = ReplicaArrays._make(array.copy() for array in brief)
        return ids, rows, kept._replace(done=arrays.done, log=arrays.log)

    def restore(self, saved: tuple[Ints, list[NDArray[np.generic]], ReplicaArrays]) -> None:
        """Undo everything since `save`."""
        ids, rows, before = saved
        # Those that followed others in a chain, and those that were given out by load.
        ended = self.arrays.done[before.counts[DONE] : self.arrays.counts[DONE]]
        here = np.concatenate([self.open_ids(), ended])
        if len(here) > len(ids):
            forget(self.requests, np.setdiff1d(here, ids))
        self.arrays = before
        for name, row in zip(self._saved, rows, strict=True):
            getattr(self.requests, name)[ids] = row

    def log(self) -> Floats:
        """Runs of equal iterations so far, the columns of `LOG_COLUMNS` that are kept."""
        return self.arrays.log[: self.arrays.counts[LOGGED]]
