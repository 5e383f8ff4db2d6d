"""Units outside any LLM on the virtual clock: each takes its seconds, any number at a time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from harness.engines.applications import TOLD, Applications
from harness.engines.ask import ask_prewarming
from harness.engines.backends import Backends
from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.recorder import Recorder
from harness.engines.simulator.cached_contents import CachedContents
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.loop import begin_external
from harness.engines.simulator.timeline import Due, Timeline
from harness.engines.state import Ints
from harness.interface.apps import Apps, Backend
from harness.interface.entities import ResourceId
from harness.interface.events import AppFinished, Event


@dataclass(slots=True)
class Units:
    """Calls outside any LLM with the backends that they need, and events of units and applications.

    Compiled code ends these calls where it releases calls that wait for them, else the timeline.
    `applications` counts where anything of units and applications is heard, or backends end with
    applications. `in_order` returns the calls of an LLM that wait, in the order of their groups;
    if it is asked to, behind those that hold KV.
    """

    lifecycle: Lifecycle
    timeline: Timeline
    compiled: CompiledGroups
    apps: Apps
    told: Listeners
    recorder: Recorder
    in_order: Callable[[bool], Ints]
    backends: Backends | None = None
    contents: CachedContents | None = None
    applications: Applications | None = None
    prewarming_is_due: bool = False
    _wake_s: float | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        lifecycle: Lifecycle,
        timeline: Timeline,
        compiled: CompiledGroups,
        told: Listeners,
        recorder: Recorder,
        in_order: Callable[[bool], Ints],
    ) -> "Units | None":
        """Those of a run; None where its workload has no applications."""
        workload = lifecycle.workload
        apps = workload.apps
        if apps is None:
            return None
        units = cls(lifecycle, timeline, compiled, apps, told, recorder, in_order)
        if apps.backends:
            units.backends = lifecycle.state.backends = units._backends(workload.app)
        units.contents = CachedContents.of(apps, workload.app)
        if units.contents is not None:
            compiled.world = compiled.world._replace(held=units.contents.held)
        if apps.backends or any(told.wants(kind) for kind in TOLD):
            units.applications = Applications(
                workload, apps, units._tell, lifecycle.system.predictor
            )
            compiled.stop_at_units(apps.instance, units.applications.left)
        return units

    def _backends(self, app: Ints) -> Backends:
        """Pools of backends, of which each takes its seconds to load."""

        def start(name: ResourceId, backend: Backend) -> None:
            ready_s = self.lifecycle.state.now_s + backend.load_s
            self.timeline.add(ready_s, Due.BACKEND_READY, name)

        return Backends(self.apps, app, start=start, stop=lambda _: None)

    def _tell(self, event: Event) -> None:
        """Tell of an event; backends of an application end with it."""
        self.told.tell(event)
        self.prewarming_is_due = True
        if self.backends is not None and isinstance(event, AppFinished):
            self._start(self.backends.app_ended(event.app, self.lifecycle.state.now_s))

    def begin(self, calls: Ints) -> Ints:
        """Calls come now: begin those outside any LLM; returns the others."""
        now_s = self.lifecycle.state.now_s
        if self.applications is not None:
            self.applications.come(calls, now_s)
        outside = self.apps.outside[calls]
        for call in calls[outside].tolist():
            backends = self.backends
            if backends is None or not backends.needs(call) or backends.take(call, now_s):
                self._start([call])
        return calls[~outside]

    def _start(self, calls: Iterable[int]) -> None:
        """Begin calls that have what they need."""
        state = self.lifecycle.state
        for call in calls:
            state.arrays.started_s[call] = state.now_s
            if self.compiled.releases:
                begin_external(self.compiled.world, call)
            else:
                ends_s = float(state.now_s + self.apps.external_s[call])
                self.timeline.add(ends_s, Due.UNIT_ENDS, call)

    def note(self, calls: Ints) -> Ints:
        """Note that calls are answered, or over; returns those of an LLM."""
        if self.applications is not None:
            self.applications.answered(calls)
        outside = self.apps.outside[calls]
        if self.backends is not None:
            for call in calls[outside].tolist():
                if self.backends.needs(call):
                    self._start(self.backends.release(call, self.lifecycle.state.now_s))
        return calls[~outside]

    def tell_ended(self) -> None:
        """Tell of the units and the applications that are over at this instant."""
        if self.applications is not None:
            self.applications.tell_ended(self.lifecycle.state.now_s)

    def loaded(self, name: ResourceId) -> None:
        """A backend has loaded, an adapter or a context."""
        if self.backends is not None:
            self._start(self.backends.ready(name, self.lifecycle.state.now_s))
        # The next content can be loaded now.
        self.prewarming_is_due |= self.contents is not None

    def prewarm(self) -> None:
        """Ask which backends to load, after events and when it is time."""
        policy, now_s = self.lifecycle.system.prewarm, self.lifecycle.state.now_s
        if policy is None or (self.backends is None and self.contents is None):
            return
        is_time = self._wake_s is not None and self._wake_s <= now_s
        if not (self.prewarming_is_due or is_time):
            return
        self.prewarming_is_due = False
        decision = ask_prewarming(policy, self.lifecycle.view, self.recorder)
        if self.backends is not None:
            self.backends.prewarm(decision, now_s)
        if self.contents is not None:
            queue = np.zeros(0, np.int64)
            if decision.wants_queue:
                # An adapter is read again and again; a context that is on the GPU will change.
                queue = self.in_order(not self.contents.facts.grows)
            loads = self.contents.want(decision.wanted, queue, now_s, decision.contexts_share)
            if loads is not None:
                self.timeline.add(loads[1], Due.BACKEND_READY, loads[0])
        if decision.wake_s is not None and decision.wake_s != self._wake_s:
            self.timeline.add(max(decision.wake_s, now_s), Due.PREWARM_WAKES)
        self._wake_s = decision.wake_s

    def end(self) -> None:
        """The run is over."""
        if self.backends is not None:
            self.backends.end(self.lifecycle.state.now_s)
            self.recorder.backends = self.backends.frame()
        if self.contents is not None:
            frames = [self.contents.frame(), self.recorder.backends]
            self.recorder.backends = pd.concat([one for one in frames if one is not None])
