"""The client of a run on the wall clock: which requests have come by now."""

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from harness.engines.state import Floats, Ints
from harness.workloads.workload import Workload


class Client:
    """Says which requests have come, whenever the loop of the run looks at the clock.

    `lag_s` is how late the loop looked: after a request had come or, where the loop computed then,
    after it had ended that. Requests of a closed loop that are sent some time after an answer come
    by `later`. Times of requests stay those of their arrival, whatever the lag.
    """

    def __init__(self, workload: Workload, roots: Ints, clock: Callable[[], float]) -> None:
        """It has not begun. `roots` are the requests that wait for no other, by arrival."""
        self.lag_s: Floats = np.full(len(workload), np.nan)
        arrival_s = workload.arrival_s[roots]
        self._coming: deque[tuple[float, list[int]]] = deque(
            (at_s, roots[arrival_s == at_s].tolist()) for at_s in np.unique(arrival_s).tolist()
        )
        self._later: deque[tuple[float, list[int]]] = deque()
        self._clock = clock
        self._busy_until_s = np.inf
        self._has_begun = False

    def start(self) -> None:
        """Begin."""
        self._has_begun = True
        self.was_busy()

    def was_busy(self) -> None:
        """Until now the loop has computed, and could not have looked."""
        self._busy_until_s = self._clock()

    @property
    def is_through(self) -> bool:
        """Whether all have come and been taken."""
        return not self._coming and not self._later

    def later(self, at_s: float, requests: list[int]) -> None:
        """These come at this time, which is not before that of any others given here."""
        self._later.append((at_s, requests))

    def arrived(self) -> Iterator[list[int]]:
        """What has come and is not yet taken; to take requests in is to be busy."""
        looked_s = self._clock()
        while (line := self._next()) is not None and line[0][0] <= looked_s:
            at_s, requests = line.popleft()
            self.lag_s[requests] = max(0.0, looked_s - max(at_s, self._busy_until_s))
            yield requests
            if (line := self._next()) is None or line[0][0] > looked_s:
                self.was_busy()
                looked_s = self._clock()

    def _next(self) -> deque[tuple[float, list[int]]] | None:
        """The line of the request that comes next; None where none will."""
        lines = [line for line in (self._coming, self._later) if line]
        return min(lines, key=lambda line: line[0][0]) if lines and self._has_begun else None

    def wait(self, seconds: float) -> list[int]:
        """What comes next; none where that is later than so many seconds from now."""
        now_s = self._clock()
        line = self._next()
        until_s = now_s + seconds if line is None else min(now_s + seconds, line[0][0])
        time.sleep(max(0.0, until_s - now_s))
        return next(self.arrived(), [])
