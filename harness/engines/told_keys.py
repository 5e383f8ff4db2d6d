"""The keys and reservations of a group's requests, as the policy told them: state of the engine.

Under a priority order, a request's key and its reservation are asked of the policy when the request
comes to the group, when its prediction becomes known, and when the last piece of its moving key has
ended; those of all requests when the order changes, after the events that `Heard` counts, and at
`renew_s`. Between those times a key stands, or moves along its pieces. All are asked once all that
happens at that instant has happened, also while the group computes a batch; what a request has
generated is then what it had when the last iteration ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

import numpy as np

from harness.core.fill import NOTHING_RESERVED, one_batch
from harness.interface.decisions import (
    Batch,
    Decision,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.entities import RequestId, ServiceId
from harness.interface.events import Event, Overran
from harness.interface.moving import MovingKey, Progress
from harness.interface.promotion import AfterIterations, Promotion
from harness.interface.tables import TIE_S, Bools, Floats, Ints, RequestTable
from harness.interface.views import GroupView, RequestView

_Column = TypeVar("_Column", Floats, Ints)

_GONE = -1
"""In place of the bits of a request's prediction when it has left the group: equal to none."""


_NEW = (0.0, np.nan, 0.0, 0.0)
"""Of a request that no decision has seen."""

# Columns: GPU seconds at the last decision; since when the request has not run (NaN: no decision
# has seen it, infinite: it has been promoted since); progress at its last promotion, and the number
# of the decision of that
_GPU_S, _SINCE_S, _BEGUN, _ROUND = range(4)


@dataclass(slots=True)
class Heard:
    """How many events the scheduling policy has observed, and how many overruns among them.

    And how many promotions its orders have meant; None where none of its orders promotes.
    """

    events: int = 0
    overruns: int = 0
    promotions: int | None = None

    def note(self, event: Event) -> None:
        """The scheduling policy has observed one more."""
        self.events += 1
        self.overruns += isinstance(event, Overran)

    def count(self, order: PriorityOrder) -> int:
        """Events after which the keys of this order are asked again."""
        return self.events if order.renews else self.overruns


@dataclass(slots=True)
class Promotions:
    """Which requests of a group have been promoted, where it decides in Python.

    After seconds: `_rows` has the columns of the requests `_ids`, which the last decision was
    about, and `_rounds` counts the decisions that promoted. After iterations: `_ran_at` has the
    number of the last iteration that each request ran in or was promoted after; at first, of the
    last one that had `_ended` when it came. `_left` has how many iterations each promoted request
    may still run in.
    """

    _rounds: int = 0
    _ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _rows: Floats = field(default_factory=lambda: np.zeros((0, len(_NEW))))
    _ended: int = 0
    _ran_at: dict[int, int] = field(default_factory=dict)
    _left: dict[int, int] = field(default_factory=dict)

    def come(self, request: RequestId) -> None:
        """A request has come to the group, if it is not known yet."""
        self._ran_at.setdefault(request, self._ended)

    def ran(self, requests: Iterable[RequestId], iterations: int) -> None:
        """These have run in so many iterations of the group."""
        self._ended += iterations
        for request in requests:
            if request in self._ran_at:
                self._ran_at[request] = self._ended
            if request in self._left:
                self._left[request] -= iterations
                if self._left[request] <= 0:
                    del self._left[request]

    def keys(
        self,
        table: RequestTable,
        promotion: Promotion,
        own: Floats | MovingKey,
        promoted: Floats | MovingKey,
        now_s: float,
    ) -> tuple[Floats, int]:
        """The keys of a decision about the requests of a table, and how many it promotes.

        Of each request are given its `own` key and the one that it goes by while it is `promoted`.
        """
        if isinstance(promotion, AfterIterations):
            assert not isinstance(own, MovingKey)
            assert not isinstance(promoted, MovingKey)
            is_up, new = self._after_iterations(table.id, promotion)
            return np.where(is_up, promoted, own), new
        assert isinstance(own, MovingKey)
        assert isinstance(promoted, MovingKey)
        rows, new = self._after_seconds(table, own.progress(table), promotion.seconds, now_s)
        begun, decision = rows[:, _BEGUN], rows[:, _ROUND].astype(np.int64)
        return own.where_promoted(promoted, begun, decision).at(table), new

    def _after_iterations(self, ids: Ints, promotion: AfterIterations) -> tuple[Bools, int]:
        """Promote those that have not run for long enough.

        Returns which are promoted now, and how many promotions there were.
        """
        new, names = 0, ids.tolist()
        for name in names:
            if self._ended - self._ran_at.setdefault(name, self._ended) >= promotion.iterations:
                self._ran_at[name], self._left[name] = self._ended, promotion.runs
                new += 1
        return np.array([name in self._left for name in names], np.bool_), new

    def _after_seconds(
        self, table: RequestTable, progress: Floats, after_s: float, now_s: float
    ) -> tuple[Floats, int]:
        """Promote those that have not run for `after_s`; it is a decision of the group.

        Returns the rows of all, and how many promotions there were.
        """
        rows = self._rows_of(table.id)
        runs = (table.gpu_s > rows[:, _GPU_S]) | np.isnan(rows[:, _SINCE_S])
        rows[:, _GPU_S] = table.gpu_s
        rows[runs, _SINCE_S] = now_s
        starved = rows[:, _SINCE_S] + after_s - TIE_S <= now_s
        if new := int(starved.sum()):
            self._rounds += 1
            rows[starved, _SINCE_S], rows[starved, _BEGUN] = np.inf, progress[starved]
            rows[starved, _ROUND] = self._rounds
        self._ids, self._rows = table.id, rows
        return rows, new

    def _rows_of(self, ids: Ints) -> Floats:
        """The rows of requests, in a copy."""
        rows = np.tile(_NEW, (len(ids), 1))
        if len(self._ids):
            at = np.searchsorted(self._ids, ids)
            known = self._ids.take(at, mode="clip") == ids
            rows[known] = self._rows[at[known]]
        return rows

    def clear(self) -> None:
        """The requests go by another order: all have just come."""
        self._rows[:] = _NEW
        self._ran_at = dict.fromkeys(self._ran_at, self._ended)
        self._left.clear()

    def forget(self, request: RequestId) -> None:
        """A request has left the group: if it comes again, it has just come."""
        if len(self._ids):
            self._rows[self._ids == request] = _NEW
        self._ran_at.pop(request, None)
        self._left.pop(request, None)


@dataclass(slots=True)
class ToldKeys:
    """What a group's policy has told, by request, of its keys and reservations under `order`.

    `asked_s` is when those of all requests were asked last, `version` counts how often any were,
    `predictions` how many predictions of the run were known when the engine last looked. `ends`
    says whether the last piece of a moving key ends, and is then asked again. `ran_s` is no answer
    of the policy: when the last batch of each service ended. Nor are `promotions`.
    """

    order: PriorityOrder | None = None
    asked_s: float = -inf
    version: int = 0
    predictions: int = 0
    ends: bool = False
    reserved: Mapping[RequestId, int] = field(default_factory=lambda: NOTHING_RESERVED)
    ran_s: dict[ServiceId, float] = field(default_factory=dict)
    promotions: Promotions = field(default_factory=Promotions)
    _heard: int = 0
    _count: int = 0
    _ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _predicted: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _key: Floats | MovingKey = field(default_factory=lambda: np.zeros(0))
    _promoted: Floats | MovingKey | None = None
    _reserved: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        """Number of requests in the group whose keys are known."""
        return self._count

    @property
    def moves(self) -> bool:
        """Whether keys move with progress, or by promotions."""
        return isinstance(self._key, MovingKey) or self._promoted is not None

    @property
    def moves_alike(self) -> bool:
        """Whether requests stay in order while each generates as many tokens as the others."""
        key = self._key
        if not isinstance(key, MovingKey):
            return self._promoted is None
        slope = key.slope[:, 0]
        is_line = key.until.shape[1] == 1 and key.by is Progress.TOKENS and not self.ends
        return is_line and bool((slope == slope[0]).all())

    @property
    def due_s(self) -> float:
        """When all are asked again if nothing happens; infinite for never."""
        renew_s = None if self.order is None else self.order.renew_s
        return inf if renew_s is None else self.asked_s + renew_s

    def are_stale(self, heard: Heard, now_s: float) -> bool:
        """Whether all keys of the order are to be asked again."""
        order = self.order
        return order is not None and (heard.count(order) != self._heard or now_s >= self.due_s)

    def note_all(self, order: PriorityOrder, heard: Heard, now_s: float) -> None:
        """Those of all requests are asked now."""
        self.order, self.asked_s, self._heard = order, now_s, heard.count(order)

    def note_ran(self, batch: Batch, iterations: int, ends_s: float) -> None:
        """So many iterations of a batch of the group have ended."""
        self.ran_s[batch.service] = ends_s
        self.promotions.ran(batch.tokens, iterations)

    def forget(self, request: RequestId) -> None:
        """A request has left the group, answered or not."""
        self.promotions.forget(request)
        row = int(self._ids.searchsorted(request))
        if row < len(self._ids) and self._ids[row] == request and self._predicted[row] != _GONE:
            self._predicted[row] = _GONE
            self._count -= 1

    def ordered(self, group: GroupView, order: PriorityOrder, heard: Heard) -> list[RequestView]:
        """Requests that an order puts first, by keys that are up to date."""
        table = group.table
        key = self.keys(table, order, heard, group.now_s)
        return by_key(group, table, key, order)

    def keys(self, table: RequestTable, order: PriorityOrder, heard: Heard, now_s: float) -> Floats:
        """The keys of a decision about the requests of a table, where they are now."""
        rows = self.look(table, order, heard, now_s)
        if order.promotion is None or self._promoted is None:
            key = self._key
            return key.at(table, rows) if isinstance(key, MovingKey) else key[rows]
        own, promoted = _rows_of(self._key, rows), _rows_of(self._promoted, rows)
        key, new = self.promotions.keys(table, order.promotion, own, promoted, now_s)
        heard.promotions = (heard.promotions or 0) + new
        return key

    def batch(
        self, group: GroupView, order: PriorityOrder, heard: Heard, wake_s: float | None = None
    ) -> Decision:
        """One batch by a priority order; see `one_batch`."""
        first = self.ordered(group, order, heard)
        return one_batch(
            group, order, first, self.reserved, wake_s, ran_s=self.ran_s, moves=self.moves
        )

    def until_due(self, decision: Decision) -> Decision:
        """The decision of a batch, which holds until all keys are asked again, if they will be."""
        due_s, wake_s = self.due_s, decision.wake_s
        if due_s == inf or (wake_s is not None and wake_s <= due_s):
            return decision
        return replace(decision, wake_s=due_s)

    def look(self, table: RequestTable, order: PriorityOrder, heard: Heard, now_s: float) -> Ints:
        """Ask what is due of the unfinished requests of the group, which are those of `table`.

        Returns where each is known. ValueError where a key comes in other pieces than before.
        """
        if order != self.order:
            self.promotions.clear()
        if order != self.order or self.are_stale(heard, now_s):
            self.note_all(order, heard, now_s)
            self._count = 0
        if not self._count:
            return self._ask(order, table, np.full(len(table.id), True), table.id)
        rows = np.searchsorted(self._ids, table.id)
        asked = self._ids.take(rows, mode="clip") != table.id
        asked |= self._predicted.take(rows, mode="clip") != _bits(table)
        if self.ends and isinstance(self._key, MovingKey):
            asked |= self._key.until[:, -1].take(rows, mode="clip") <= self._key.progress(table)
        return self._ask(order, table, asked, rows) if asked.any() else rows

    def _ask(self, order: PriorityOrder, table: RequestTable, asked: Bools, rows: Ints) -> Ints:
        """Ask about some requests of a table; `rows` has where the others are known.

        Returns where all are known then.
        """
        part = table if asked.all() else table.of(asked)
        new, aside = order.keys(part), order.reserved_tokens(part)
        promoted = None if order.promotion is None else order.promotion.keys(part, new)
        if asked.all():
            rows, self._key, self._reserved = np.arange(len(asked)), new, aside
            self._promoted = promoted
        # Copies: what the policy gave are its own arrays.
        self._key = key = _merged(self._key, rows, new, asked)
        self._reserved = reserved = _with(self._reserved, rows, aside, asked)
        if promoted is not None and self._promoted is not None:
            self._promoted = _merged(self._promoted, rows, promoted, asked)
        self._ids, self._predicted = table.id, _bits(table).copy()
        self.ends = isinstance(key, MovingKey) and bool(np.isfinite(key.until[:, -1]).any())
        self._count, self.version = len(table.id), self.version + 1
        if order.reserve_tokens is not None:
            names = map(RequestId, table.id.tolist())
            self.reserved = dict(zip(names, reserved.tolist(), strict=True))
        else:
            self.reserved = NOTHING_RESERVED
        return np.arange(len(table.id))


def by_key(
    view: GroupView, table: RequestTable, key: Floats, priority_order: PriorityOrder | None = None
) -> list[RequestView]:
    """Return the requests of a table that are not running, lowest key first, then lowest id.

    With the order given, under continuous batching, without requests that hold no KV and are behind
    the first `max_num_seqs`: an iteration cannot admit them. Every request where holders are
    swapped out, where those of another service may be admitted, or where services may starve.
    """
    rows, requests = np.lexsort((table.id, key)), view.requests
    if priority_order is not None and (most := _most_admitted(view, priority_order)):
        front, behind = rows[:most], rows[most:]
        rows = np.concatenate([front, behind[table.kv_tokens[behind] > 0]])
    ordered = (requests[RequestId(name)] for name in table.id[rows].tolist())
    return [request for request in ordered if not request.is_running]


def _most_admitted(view: GroupView, order: PriorityOrder) -> int | None:
    """Behind how many requests no newcomer is admitted; None where that is not known."""
    never_looks_behind = order.starves_after_s is None and (
        order.displaces is not None
        or (order.gives_way is PreemptionMode.RECOMPUTE and len(view.services) == 1)
    )
    if not never_looks_behind or isinstance(order.rule, StaticBatching):
        return None
    return order.rule.max_num_seqs


def _bits(table: RequestTable) -> Ints:
    """What is predicted of each, in numbers that are equal also where nothing is."""
    return table.predicted_mean_tokens.view(np.int64)


def _merged(
    before: Floats | MovingKey, rows: Ints, new: Floats | MovingKey, asked: Bools
) -> Floats | MovingKey:
    """Keys of all requests of a table: the new ones of those `asked`, the others as before."""
    if isinstance(before, MovingKey) and isinstance(new, MovingKey):
        if before.until.shape[1] == new.until.shape[1] and before.by is new.by:
            return MovingKey(
                value=_with(before.value, rows, new.value, asked),
                slope=_with(before.slope, rows, new.slope, asked),
                until=_with(before.until, rows, new.until, asked),
                by=new.by,
            )
    elif not isinstance(before, MovingKey) and not isinstance(new, MovingKey):
        return _with(before, rows, new, asked)
    raise ValueError(
        f"a priority order gives {_kind(new)} where it gave {_kind(before)} before: "
        "its keys must be all numbers, or all of as many pieces"
    )


def _with(before: _Column, rows: Ints, new: _Column, asked: Bools) -> _Column:
    """The rows of a column as they were, but for those `asked`."""
    merged = before.take(rows, axis=0, mode="clip")
    merged[asked] = new
    return merged


def _rows_of(key: Floats | MovingKey, rows: Ints) -> Floats | MovingKey:
    """The keys of some of the rows."""
    return key.of(rows) if isinstance(key, MovingKey) else key[rows]


def _kind(key: Floats | MovingKey) -> str:
    if not isinstance(key, MovingKey):
        return "a key of one number"
    return f"a key of {key.until.shape[1]} pieces by {key.by.value}"
