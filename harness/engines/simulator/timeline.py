"""Things to happen at known times, in a total order."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count


class Due(IntEnum):
    """What happens; at equal times the lower comes first: completions, arrivals, then timers."""

    BATCH_ENDS = 0
    UNIT_ENDS = 1
    BACKEND_READY = 2
    GROUP_STOPS = 3
    GROUP_READY = 4
    ARRIVAL = 5
    PREDICTION = 6
    GROUP_WAKES = 7
    PLACEMENT_WAKES = 8
    PREWARM_WAKES = 9


@dataclass(slots=True)
class Timeline:
    """A heap of (time, kind, sequence, subject). `subject` is whatever the kind needs."""

    _heap: list[tuple[float, Due, int, object]] = field(default_factory=list)
    _sequence: "count[int]" = field(default_factory=count)
    _of: Counter[Due] = field(default_factory=Counter)

    def add(self, at_s: float, kind: Due, subject: object = None) -> None:
        """Something will happen."""
        self._of[kind] += 1
        heapq.heappush(self._heap, (at_s, kind, next(self._sequence), subject))

    def has(self, *kinds: Due) -> bool:
        """Whether anything of these kinds will happen."""
        return any(self._of[kind] for kind in kinds)

    @property
    def next_s(self) -> float:
        """When the next thing happens; infinite if nothing will."""
        return self._heap[0][0] if self._heap else float("inf")

    def pop_due(self, now_s: float) -> tuple[Due, object] | None:
        """The next thing that is due, or None."""
        if self._heap and self._heap[0][0] <= now_s:
            _, kind, _, subject = heapq.heappop(self._heap)
            self._of[kind] -= 1
            return kind, subject
        return None
