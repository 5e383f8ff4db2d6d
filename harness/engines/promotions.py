"""Which requests of a group have been promoted (`PriorityOrder`), where it decides in Python."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from harness.interface.entities import RequestId
from harness.interface.moving import MovingKey
from harness.interface.promotion import AfterIterations, Promotion
from harness.interface.tables import TIE_S, Bools, Floats, Ints, RequestTable

_NEW = (0.0, np.nan, 0.0, 0.0)
"""Of a request that no decision has seen."""

# Columns: GPU seconds at the last decision; since when the request has not run (NaN: no decision
# has seen it, infinite: it has been promoted since); progress at its last promotion, and the number
# of the decision of that
_GPU_S, _SINCE_S, _BEGUN, _ROUND = range(4)


@dataclass(slots=True)
class Promotions:
    """Those of one group.

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
