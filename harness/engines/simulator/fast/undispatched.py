"""Requests of a service that come later, each to go to the group with the least load then."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.engines.simulator.fast.arrays import CLOCK, ReplicaArrays
from harness.engines.simulator.fast.give_out import (
    GENERATED,
    LOADS,
    NEXT,
    PLACES,
    UNASKED,
    WEIGHED,
    WHO,
    Line,
    give_out,
)
from harness.engines.simulator.fast.replica import SAVED, ReplicaState
from harness.engines.simulator.group import LiveGroup
from harness.engines.state import Ints, RequestArrays

T = TypeVar("T", bound=np.generic)

Saved = tuple[list[Any], Ints, list[NDArray[np.generic]], Ints]


MOST_AHEAD = 256
"""Requests given out at once while a group is yet to be asked: what was run too far is undone."""


@dataclass(slots=True, kw_only=True)
class Undispatched:
    """Requests to come of a service whose groups follow one priority order.

    `groups` are those of the service, in the order of the deployment; `weights` has what each
    request of the run weighs. `ids` come in this order, those before `at[NEXT]` have been given to
    a group; `told` says whether the keys of all have been told to a replica. It stops at `stops_s`
    where the least loaded group is one that has not been asked yet.
    """

    groups: Sequence[LiveGroup]
    requests: RequestArrays
    weights: Ints
    adds_generated: bool
    ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    at: Ints = field(default_factory=lambda: np.zeros(PLACES, np.int64))
    told: bool = False
    stops_s: float = np.inf
    reached_s: float = -np.inf
    _states: ReplicaArrays | None = None
    _rows: list[ReplicaArrays] = field(default_factory=list)

    @property
    def left(self) -> Ints:
        """Who has not been given to a group yet."""
        return self.ids[self.at[NEXT] :]

    @property
    def replicas(self) -> list[ReplicaState]:
        """Those of the groups that have been asked."""
        return [live.replica for live in self.groups if live.replica is not None]

    @property
    def is_even(self) -> bool:
        """Whether the groups follow one order on as many GPUs each, as far as they were asked."""
        asked = [live for live in self.groups if live.replica is not None]
        kinds = [(live.priority_order, live.group.tensor_parallel) for live in asked]
        alike = bool(kinds) and all(kind == kinds[0] for kind in kinds)
        return alike and all(live.replica is not None or live.is_unused for live in self.groups)

    @property
    def horizon_s(self) -> float:
        """How far it may run: where groups differ, to the next request, whom others dispatch."""
        if not len(self.left):
            return np.inf
        if self.is_even and all(live.replica is not None for live in self.groups):
            return np.inf
        most = MOST_AHEAD if self.is_even else 1
        return float(self.requests.arrival_s[self.left[:most][-1]])

    def add(self, ids: Ints) -> None:
        """These come, too."""
        left = np.concatenate([self.left, ids])
        self.ids = left[np.lexsort((left, self.requests.arrival_s[left]))]
        self.at[NEXT], self.told = 0, False

    @property
    def clear_s(self) -> float:
        """It may stop at any time."""
        return -np.inf

    @property
    def expected_s(self) -> float:
        """Nobody knows when it will."""
        return np.inf

    def learn(self, clear_s: float, *, stops_then: bool) -> None:
        """What comes is given out anew every time."""

    def take_due(self, now_s: float) -> list[int]:
        """Take out those who have come by now and are to be dispatched by somebody else."""
        first = int(self.at[NEXT])
        self.at[NEXT] += np.searchsorted(self.requests.arrival_s[self.left], now_s, side="right")
        return [int(request) for request in self.ids[first : self.at[NEXT]]]

    def run_to(self, horizon_s: float) -> None:
        """Advance the replicas to the horizon, or to `stops_s`, and give out who comes by then."""
        self.stops_s = np.inf
        if self.is_even:
            self._give_out(horizon_s)
        for replica in self.replicas:
            replica.run_to(min(horizon_s, self.stops_s))
        clocks_s = [float(replica.arrays.time_s[CLOCK]) for replica in self.replicas]
        given = self.ids[: self.at[NEXT]][-1:]
        self.reached_s = max([*clocks_s, *self.requests.arrival_s[given].tolist()], default=0.0)

    def _give_out(self, horizon_s: float) -> None:
        line = self._line()
        while True:
            replicas = self._side_by_side()
            first = next(replica for replica in replicas if replica is not None)
            assert self._states is not None
            status = give_out(
                first.table, first.requests, self._states, first.rule, line, horizon_s
            )
            if status == UNASKED:
                self.stops_s = float(self.requests.arrival_s[self.left[0]])
                return
            who = replicas[self.at[WHO]]
            if who is None or not who.heed(status):
                return

    def _line(self) -> Line:
        """Who comes, and how loaded the groups are."""
        loads = np.zeros((len(self.groups), LOADS), np.int64)
        for load, live in zip(loads, self.groups, strict=True):
            if live.replica is not None:
                ids = live.replica.open_ids()
                load[WEIGHED] = self.weights[ids].sum()
                load[GENERATED] = self.adds_generated * self.requests.generated[ids].sum()
        return Line(
            coming=self.ids,
            weights=self.weights,
            adds_generated=self.adds_generated,
            asked=np.array([live.replica is not None for live in self.groups]),
            loads=loads,
            changes_s=np.full(len(loads), -np.inf),
            at=self.at,
        )

    def _side_by_side(self) -> list[ReplicaState | None]:
        """The replicas; the arrays of each are rows of `_states`, and all know the same keys."""
        replicas = [live.replica for live in self.groups]
        self._agree()
        rows = [None if r is None else r.arrays for r in replicas]
        if len(rows) != len(self._rows) or any(
            row is not None and row is not old for row, old in zip(rows, self._rows, strict=True)
        ):
            one = next(row for row in rows if row is not None)
            columns = zip(*(one if row is None else row for row in rows), strict=True)
            self._states = ReplicaArrays(*map(_stacked, columns))
            self._rows = [ReplicaArrays(*(c[i] for c in self._states)) for i in range(len(rows))]
            for replica, row in zip(replicas, self._rows, strict=True):
                if replica is not None:
                    replica.arrays = row
        return replicas

    def _agree(self) -> None:
        """Pieces of keys and predictions foretold that one replica has been told hold for all."""
        replicas = self.replicas
        one = replicas[0].requests
        for replica in replicas:
            if len(replica.requests.pieces):
                one = one._replace(pieces=replica.requests.pieces)
            if len(replica.requests.swap):
                one = one._replace(swap=replica.requests.swap)
            if len(replica.requests.turns_s):
                turns_s, turned_key = replica.requests.turns_s, replica.requests.turned_key
                one = one._replace(turns_s=turns_s, turned_key=turned_key)
        moves = max(replica.rule.moves for replica in replicas)
        asks, renews = (
            any(getattr(replica.rule, name) for replica in replicas) for name in ("asks", "renews")
        )
        for replica in replicas:
            replica.requests = one
            replica.rule = replica.rule._replace(moves=moves, asks=asks, renews=renews)

    def save(self) -> Saved:
        """Enough to undo a run."""
        left = self.left
        rows = [getattr(self.requests, name)[left] for name in (*SAVED, "arrival_s")]
        return [replica.save() for replica in self.replicas], left, rows, self.at.copy()

    def restore(self, saved: Saved) -> None:
        """Undo everything since `save`."""
        replicas, left, rows, at = saved
        for replica, before in zip(self.replicas, replicas, strict=True):
            replica.restore(before)
        for name, row in zip((*SAVED, "arrival_s"), rows, strict=True):
            getattr(self.requests, name)[left] = row
        self.at = at


def _stacked(rows: Sequence[NDArray[T]]) -> NDArray[T]:
    """One array with a row for each, as long as the longest."""
    length = max(len(row) for row in rows)
    stacked = np.zeros((len(rows), length, *rows[0].shape[1:]), rows[0].dtype)
    for row, short in zip(stacked, rows, strict=True):
        row[: len(short)] = short
    return stacked
