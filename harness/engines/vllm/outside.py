"""Units outside any LLM on a real clock: each takes its seconds, any number at a time."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Timer
from typing import Any

import numpy as np

from harness.engines.applications import Applications
from harness.engines.backends import Backends
from harness.engines.containers import Containers
from harness.engines.live import LiveState
from harness.engines.state import Ints
from harness.interface.apps import Apps, Backend
from harness.interface.decisions import Prewarm
from harness.interface.entities import ResourceId
from harness.interface.events import AppFinished, Event
from harness.interface.policies import LengthPredictor

MOST_THREADS = 64
"""Containers that start, run code or stop at one time."""


class Outside:
    """Begins calls outside any LLM; a thread posts each of them when it is over.

    Backends load for their seconds, and calls take theirs. Where there are `containers`, those of
    their `pool` start for real, and a call runs code there that sleeps for its seconds. A container
    that does not start and code that fails end the call; `failed` counts them.
    Tells of units and applications.
    """

    def __init__(
        self,
        state: LiveState,
        apps: Apps,
        tell: Callable[[Event], None],
        clock: Callable[[], float],
        predictor: LengthPredictor | None,
        containers: Mapping[str, Any] | None,
    ) -> None:
        """Nothing has come. `containers` has the `pool` of those, and what `Containers` needs."""
        workload = state.workload
        if apps.host_cache is not None:
            raise ValueError(
                "workload.adapters and workload.contexts are modelled in simulated seconds alone:"
                " engine=simulator"
            )
        self._apps, self._arrays, self._clock, self._tell_of = apps, state.arrays, clock, tell
        self._outside = apps.outside
        self._applications = Applications(workload, apps, self._tell, predictor)
        self._posted: SimpleQueue[tuple[int | ResourceId, float]] = SimpleQueue()
        self._under_way: dict[int, Timer | None] = {}
        self._loading: dict[ResourceId, Timer] = {}
        self._containers: Containers | None = None
        if containers is not None:
            about = dict(containers)
            self._pool: str = about.pop("pool")
            self._containers = Containers(**about)
        self._threads = ThreadPoolExecutor(MOST_THREADS)
        self.failed, self.prewarming_is_due = 0, False
        self.backends: Backends | None = None
        if apps.backends:
            self.backends = state.backends = Backends(
                apps, workload.app, start=self._load, stop=self._unload
            )

    @property
    def is_working(self) -> bool:
        """Whether a call is under way, or over and not taken, or waits for a backend."""
        loads = self.backends is not None and self.backends.are_loading
        return bool(self._under_way) or loads

    def _tell(self, event: Event) -> None:
        self._tell_of(event)
        self.prewarming_is_due = True
        if self.backends is not None and isinstance(event, AppFinished):
            self._start(self.backends.app_ended(event.app, self._clock()))

    def begin(self, calls: Sequence[int]) -> list[int]:
        """Calls come now: begin those outside any LLM; returns the others."""
        now_s, others = self._clock(), []
        self._applications.come(np.array(calls, np.int64), now_s)
        for call in calls:
            if not self._outside[call]:
                others.append(call)
            elif self._has_backend(call, now_s):
                self._start([call])
        return others

    def _has_backend(self, call: int, now_s: float) -> bool:
        """Whether a call that comes has what it needs."""
        backends = self.backends
        return backends is None or not backends.needs(call) or backends.take(call, now_s)

    def _start(self, calls: Sequence[int]) -> None:
        """Begin calls that have what they need."""
        for call in calls:
            self._arrays.started_s[call] = self._clock()
            self._under_way[call] = None
            seconds = self._apps.external_s.item(call)
            if self._is_contained(call):
                self._threads.submit(self._run_contained, call, seconds)
            else:
                self._under_way[call] = self._timer(seconds, call)

    def _is_contained(self, call: int) -> bool:
        if self._containers is None or self.backends is None or not self.backends.needs(call):
            return False
        return self._apps.backends[self._apps.backend.item(call)].pool == self._pool

    def _run_contained(self, call: int, seconds: float) -> None:
        assert self._containers is not None
        assert self.backends is not None
        ran = self._containers.run(self.backends.name_of(call), f"sleep {seconds:.3f}")
        self.failed += ran.status != 0
        self._post(call)

    def _timer(self, seconds: float, what: int | ResourceId) -> Timer:
        timer = Timer(seconds, self._post, (what,))
        timer.daemon = True
        timer.start()
        return timer

    def _load(self, name: ResourceId, backend: Backend) -> None:
        if self._containers is not None and backend.pool == self._pool:
            self._threads.submit(self._start_container, name)
        else:
            self._loading[name] = self._timer(backend.load_s, name)

    def _start_container(self, name: ResourceId) -> None:
        assert self._containers is not None
        try:
            self._containers.start(name)
        except RuntimeError:
            self.failed += 1
        self._post(name)

    def _unload(self, name: ResourceId) -> None:
        if timer := self._loading.pop(name, None):
            timer.cancel()
        elif self._containers is not None:
            self._threads.submit(self._containers.stop, name)

    def _post(self, what: int | ResourceId) -> None:
        self._posted.put((what, self._clock()))

    def over(self) -> list[int]:
        """Calls that are over and have not been taken; begins those whose backend has loaded."""
        calls = []
        while not self._posted.empty():
            what, ended_s = self._posted.get()
            if isinstance(what, int):
                self._arrays.finished_s[what] = ended_s
                del self._under_way[what]
                calls.append(what)
                if self.backends is not None and self.backends.needs(what):
                    self._start(self.backends.release(what, self._clock()))
            elif self.backends is not None:
                self._loading.pop(what, None)
                self._start(self.backends.ready(what, ended_s))
        return calls

    def prewarm(self, decision: Prewarm) -> None:
        """Do what a policy has decided on backends."""
        if self.backends is not None:
            self.backends.prewarm(decision, self._clock())

    def answered(self, calls: Ints, now_s: float) -> None:
        """Tell of what is over with these."""
        self._applications.answered(calls)
        self._applications.tell_ended(now_s)

    def stop(self) -> None:
        """End calls that are under way, and all backends."""
        for timer in (*self._under_way.values(), *self._loading.values()):
            if timer is not None:
                timer.cancel()
        if self.backends is not None:
            self.backends.end(self._clock())
        self._threads.shutdown(wait=True)
        if self._containers is not None:
            self._containers.close()
