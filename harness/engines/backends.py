"""Backends of units outside any LLM, on both engines: which are ready, and calls that wait for one.

A call takes its backend when it comes. One that is not loaded is loaded then; where its pool is
full, the least recently used backend without a call makes room, else the call waits for room.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from harness.engines.state import Ints
from harness.interface.apps import Apps, Backend
from harness.interface.decisions import Prewarm
from harness.interface.entities import AppId, ResourceId

WARM, LOADING, COLD, UNUSED = "warm", "loading", "cold", "unused"
"""How a call has found its backend; `UNUSED`: no call has come while it was loaded."""


@dataclass(slots=True)
class _Loaded:
    """A backend that is loaded or being loaded, which has so many calls.

    `idle_since_s` is when it was ready, or the last of its calls ended; `ahead` until its first
    call where a policy had it loaded. `waiting` has the calls that wait until it is ready.
    """

    backend: Backend
    ahead: bool
    is_ready: bool = False
    calls: int = 0
    idle_since_s: float = np.nan
    waiting: list[tuple[int, float, str]] = field(default_factory=list)


class Backends:
    """Pools of backends. `start` is called for one to load and `stop` for one to end.

    An engine says when one is `ready`, when calls come and end, and when applications have ended.
    """

    def __init__(
        self,
        apps: Apps,
        app_of: Ints,
        *,
        start: Callable[[ResourceId, Backend], None],
        stop: Callable[[ResourceId], None],
    ) -> None:
        """Nothing is loaded. Raises ValueError for a backend that its pool cannot hold."""
        for backend in apps.backends:
            capacity = apps.pools.get(backend.pool)
            if capacity is None or backend.size > capacity:
                raise ValueError(
                    f"backend {backend.name} takes {backend.size:g} of pool {backend.pool}, which "
                    f"has {0 if capacity is None else capacity:g}"
                )
        self._apps, self._app_of, self._start, self._stop = apps, app_of, start, stop
        self._loaded: dict[ResourceId, _Loaded] = {}
        self._free = dict(apps.pools)
        self._for_room: list[tuple[int, float]] = []
        self._uses: list[tuple[str, ResourceId, int, int, str, float, float]] = []
        self._by_id: dict[ResourceId, Backend] = {
            it.of(AppId(app)): it
            for it in apps.backends
            for app in (range(len(apps.kind)) if it.per_application else (0,))
        }

    @property
    def are_loading(self) -> bool:
        """Whether one is being loaded."""
        return not all(one.is_ready for one in self._loaded.values())

    def needs(self, call: int) -> bool:
        """Whether a call needs a backend."""
        return self._apps.backend.item(call) >= 0

    def name_of(self, call: int) -> ResourceId:
        """The backend that a call needs."""
        return self._of(call)[0]

    def take(self, call: int, now_s: float, since_s: float | None = None) -> bool:
        """A call takes its backend, for which it waits since `since_s`; None: it comes now.

        Returns whether it can begin now. Otherwise `ready` gives it later.
        """
        since_s = now_s if since_s is None else since_s
        name, backend = self._of(call)
        found = WARM
        if name not in self._loaded:
            found = COLD
            if not self._load(name, backend, now_s, ahead=False):
                self._for_room.append((call, since_s))
                return False
        one = self._loaded[name]
        one.calls += 1
        if one.is_ready:
            self._begin(name, call, found, now_s - since_s, now_s)
        else:
            one.waiting.append((call, since_s, LOADING if found == WARM else found))
        return one.is_ready

    def _of(self, call: int) -> tuple[ResourceId, Backend]:
        backend = self._apps.backends[self._apps.backend.item(call)]
        return backend.of(AppId(self._app_of.item(call))), backend

    def _begin(
        self, name: ResourceId, call: int, found: str, waited_s: float, now_s: float
    ) -> None:
        """Note a use that begins now; of a backend loaded ahead, with the seconds it was idle."""
        one = self._loaded[name]
        idle_s = now_s - one.idle_since_s if one.ahead else 0.0
        one.ahead = False
        app = self._app_of.item(call)
        self._uses.append((one.backend.name, name, app, call, found, waited_s, idle_s))

    def _load(self, name: ResourceId, backend: Backend, now_s: float, *, ahead: bool) -> bool:
        """Begin to load one, if there is room or some can be made."""
        pool = backend.pool
        idle = sorted(
            (one.idle_since_s, other)
            for other, one in self._loaded.items()
            if one.backend.pool == pool and one.is_ready and not one.calls
        )
        room = self._free[pool] + sum(self._loaded[other].backend.size for _, other in idle)
        if room < backend.size:
            return False
        while self._free[pool] < backend.size:
            self._end(idle.pop(0)[1], now_s)
        self._free[pool] -= backend.size
        self._loaded[name] = _Loaded(backend, ahead)
        self._start(name, backend)
        return True

    def ready(self, name: ResourceId, now_s: float) -> list[int]:
        """A backend has loaded; returns the calls that begin now. None where it was stopped."""
        if name not in self._loaded:
            return []
        one = self._loaded[name]
        one.is_ready, one.idle_since_s = True, now_s
        calls, one.waiting = one.waiting, []
        for call, since_s, found in calls:
            self._begin(name, call, found, now_s - since_s, now_s)
        return [call for call, *_ in calls]

    def release(self, call: int, now_s: float) -> list[int]:
        """A call has ended; returns calls that begin now because there is room."""
        name, _ = self._of(call)
        one = self._loaded[name]
        one.calls -= 1
        if not one.calls:
            one.idle_since_s = now_s
        return self._give_room(now_s)

    def app_ended(self, app: AppId, now_s: float) -> list[int]:
        """An application has ended, and its own backends with it; returns calls that begin now."""
        for backend in self._apps.backends:
            if backend.per_application and backend.of(app) in self._loaded:
                self._end(backend.of(app), now_s)
        return self._give_room(now_s)

    def _give_room(self, now_s: float) -> list[int]:
        """Calls that wait for room take their backends, in the order in which they came."""
        waiting, self._for_room = self._for_room, []
        return [call for call, since_s in waiting if self.take(call, now_s, since_s)]

    def prewarm(self, decision: Prewarm, now_s: float) -> None:
        """Do what a policy has decided. ValueError for a backend that there is not."""
        for name in (*decision.stop, *decision.start):
            if name not in self._by_id:
                raise ValueError(f"a policy names {name}, which is no backend of this workload")
        for name in decision.stop:
            one = self._loaded.get(name)
            if one is not None and one.is_ready and not one.calls:
                self._end(name, now_s)
        for name in decision.start:
            if name not in self._loaded:
                self._load(name, self._by_id[name], now_s, ahead=True)

    def _end(self, name: ResourceId, now_s: float) -> None:
        one = self._loaded.pop(name)
        if one.ahead:
            idle_s = now_s - one.idle_since_s if one.is_ready else 0.0
            self._uses.append((one.backend.name, name, -1, -1, UNUSED, 0.0, idle_s))
        self._free[one.backend.pool] += one.backend.size
        self._stop(name)

    def end(self, now_s: float) -> None:
        """The run is over: stop all."""
        for name in tuple(self._loaded):
            self._end(name, now_s)

    def frame(self) -> pd.DataFrame:
        """One row per use of a backend, and per one that was loaded and not used.

        `resource` is which one it was, and `request` the number of the call, -1 without one.
        `waited_s` are the seconds from the call to its backend, `idle_s` those for which one that
        was loaded ahead was ready before its first call, or until it was stopped. `tokens` of the
        call's prompt were not computed: none by a backend, see `CachedContents.frame`.
        """
        names = ["backend", "resource", "app", "request", "found", "waited_s", "idle_s"]
        return pd.DataFrame(self._uses, columns=pd.Index(names)).assign(tokens=0)
