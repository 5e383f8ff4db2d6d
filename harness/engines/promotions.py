"""Which requests of a group have been promoted (`PriorityOrder`), where it decides in Python."""

from dataclasses import dataclass, field

import numpy as np

from harness.interface.entities import RequestId
from harness.interface.tables import TIE_S, Floats, Ints, RequestTable

_NEW = (0.0, np.nan, 0.0, 0.0)
"""Of a request that no decision has seen."""

# Columns: GPU seconds at the last decision; since when the request has not run (NaN: no decision
# has seen it, infinite: it has been promoted since); progress at its last promotion, and the number
# of the decision of that
_GPU_S, _SINCE_S, _BEGUN, _ROUND = range(4)


@dataclass(slots=True)
class Promotions:
    """Those of one group; `new` says how many there were in the last decision."""

    new: int = 0
    _rounds: int = 0
    _ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _rows: Floats = field(default_factory=lambda: np.zeros((0, len(_NEW))))

    def look(
        self, table: RequestTable, progress: Floats, after_s: float, now_s: float
    ) -> tuple[Floats, Ints]:
        """Promote those of a table that have not run for `after_s`; it is a decision of the group.

        Returns of each the progress when it was promoted, and the number of that decision, 0 for
        none.
        """
        rows = self._of(table.id)
        runs = (table.gpu_s > rows[:, _GPU_S]) | np.isnan(rows[:, _SINCE_S])
        rows[:, _GPU_S] = table.gpu_s
        rows[runs, _SINCE_S] = now_s
        starved = rows[:, _SINCE_S] + after_s - TIE_S <= now_s
        self.new = int(starved.sum())
        if self.new:
            self._rounds += 1
            rows[starved, _SINCE_S], rows[starved, _BEGUN] = np.inf, progress[starved]
            rows[starved, _ROUND] = self._rounds
        self._ids, self._rows = table.id, rows
        return rows[:, _BEGUN], rows[:, _ROUND].astype(np.int64)

    def _of(self, ids: Ints) -> Floats:
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

    def forget(self, request: RequestId) -> None:
        """A request has left the group: if it comes again, it has just come."""
        if len(self._ids):
            self._rows[self._ids == request] = _NEW
