"""Units outside any LLM on a real clock: each takes its seconds, any number at a time."""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Timer

import numpy as np

from harness.engines.applications import Applications
from harness.engines.state import Ints, RequestArrays
from harness.interface.apps import Apps
from harness.interface.events import Event
from harness.workloads.workload import Workload


class Outside:
    """Begins calls outside any LLM, each of which posts itself back from a thread when it is over.

    Tells of units and applications.
    """

    def __init__(
        self,
        workload: Workload,
        apps: Apps,
        arrays: RequestArrays,
        tell: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        """Nothing has come."""
        self._apps, self._arrays, self._clock = apps, arrays, clock
        self._outside = apps.outside
        self._applications = Applications(workload, apps, tell)
        self._posted: SimpleQueue[tuple[int, float]] = SimpleQueue()
        self._under_way: dict[int, Timer] = {}

    @property
    def is_working(self) -> bool:
        """Whether a call is under way, or over and not taken."""
        return bool(self._under_way)

    def begin(self, calls: Sequence[int]) -> list[int]:
        """Calls come now: begin those outside any LLM; returns the others."""
        now_s, others = self._clock(), []
        self._applications.come(np.array(calls, np.int64), now_s)
        for call in calls:
            if not self._outside[call]:
                others.append(call)
                continue
            self._arrays.started_s[call] = now_s
            timer = Timer(self._apps.external_s.item(call), self._post, (call,))
            timer.daemon = True
            self._under_way[call] = timer
            timer.start()
        return others

    def _post(self, call: int) -> None:
        self._posted.put((call, self._clock()))

    def over(self) -> list[int]:
        """Calls that are over and have not been taken."""
        calls = []
        while not self._posted.empty():
            call, ended_s = self._posted.get()
            self._arrays.finished_s[call] = ended_s
            del self._under_way[call]
            calls.append(call)
        return calls

    def answered(self, calls: Ints, now_s: float) -> None:
        """Tell of what is over with these."""
        self._applications.answered(calls)
        self._applications.tell_ended(now_s)

    def stop(self) -> None:
        """End those under way."""
        for timer in self._under_way.values():
            timer.cancel()
