"""The client of a run on the wall clock: a thread that hands requests over at their time."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import numpy as np

from harness.engines.state import Floats, Ints
from harness.workloads.workload import Workload


class Client:
    """Hands over every request that waits for no other, from a thread of its own.

    Those of a closed loop that are sent some time after an answer are handed over by `later`.
    `lag_s` is how late each request was handed over.
    """

    def __init__(self, workload: Workload, roots: Ints, clock: Callable[[], float]) -> None:
        """It has not begun. `roots` are the requests that wait for no other."""
        self.lag_s: Floats = np.full(len(workload), np.nan)
        self._arrival_s, self._roots, self._clock = workload.arrival_s, roots, clock
        self._handed: SimpleQueue[tuple[float, list[int]]] = SimpleQueue()
        self._later: deque[tuple[float, list[int]]] = deque()
        self._ends = threading.Event()
        self._through = threading.Event()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._hand_over, daemon=True).start()

    def stop(self) -> None:
        """Hand over no more."""
        self._ends.set()

    def _hand_over(self) -> None:
        arrivals_s = self._arrival_s[self._roots]
        for at_s in np.unique(arrivals_s).tolist():
            if self._ends.wait(max(0.0, at_s - self._clock())):
                return
            self._handed.put((self._clock(), self._roots[arrivals_s == at_s].tolist()))
        self._through.set()

    @property
    def is_through(self) -> bool:
        """Whether all have been handed over and taken."""
        return self._through.is_set() and self._handed.empty() and not self._later

    def later(self, at_s: float, requests: list[int]) -> None:
        """Hand these over at this time, which is not before that of any others given here."""
        self._later.append((at_s, requests))

    def arrived(self) -> Iterator[list[int]]:
        """What has been handed over and not yet taken."""
        while not self._handed.empty():
            yield self._taken(*self._handed.get())
        while self._later and self._later[0][0] <= self._clock():
            at_s, requests = self._later.popleft()
            self.lag_s[requests] = self._clock() - at_s
            yield requests

    def wait(self, seconds: float) -> list[int]:
        """What is handed over next; none where that is later than so many seconds from now."""
        if self._later:
            seconds = min(seconds, max(0.0, self._later[0][0] - self._clock()))
        try:
            return self._taken(*self._handed.get(timeout=seconds))
        except Empty:
            return next(self.arrived(), [])

    def _taken(self, handed_s: float, requests: list[int]) -> list[int]:
        self.lag_s[requests] = handed_s - self._arrival_s[requests]
        return requests
