"""Units outside any LLM on the virtual clock: each takes its seconds, any number at a time."""

from dataclasses import dataclass

from harness.engines.applications import TOLD, Applications
from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.timeline import Kind, Timeline
from harness.engines.state import Bools, Ints
from harness.interface.apps import Apps


@dataclass(slots=True, kw_only=True)
class Units:
    """Calls outside any LLM, and events of units and applications.

    Compiled code ends these calls where it releases those that wait for them, else the timeline.
    `applications` counts where anything of units and applications is heard.
    """

    lifecycle: Lifecycle
    timeline: Timeline
    compiled: CompiledGroups
    apps: Apps
    outside: Bools
    applications: Applications | None

    @classmethod
    def of(
        cls, lifecycle: Lifecycle, timeline: Timeline, compiled: CompiledGroups, told: Listeners
    ) -> "Units | None":
        """Those of a run; None where its workload has no applications."""
        apps, counted = lifecycle.workload.apps, None
        if apps is None:
            return None
        if any(told.wants(kind) for kind in TOLD):
            counted = Applications(lifecycle.workload, apps, told.tell)
            compiled.stop_at_units(apps.instance, counted.left)
        return cls(
            lifecycle=lifecycle,
            timeline=timeline,
            compiled=compiled,
            apps=apps,
            outside=apps.outside,
            applications=counted,
        )

    def begin(self, calls: Ints) -> Ints:
        """Calls come now: begin those outside any LLM; returns the others."""
        now_s = self.lifecycle.state.now_s
        if self.applications is not None:
            self.applications.come(calls, now_s)
        outside = self.outside[calls]
        arrays = self.lifecycle.state.arrays
        for call in calls[outside].tolist():
            arrays.started_s[call] = now_s
            if self.compiled.releases:
                self.compiled.add_external(call)
            else:
                ends_s = float(arrays.arrival_s[call] + self.apps.external_s[call])
                self.timeline.add(ends_s, Kind.UNIT_ENDS, call)
        return calls[~outside]

    def note(self, calls: Ints) -> Ints:
        """Note that calls are answered, or over; returns those of an LLM."""
        if self.applications is not None:
            self.applications.answered(calls)
        return calls[~self.outside[calls]]

    def tell_ended(self) -> None:
        """Tell of the units and the applications that are over at this instant."""
        if self.applications is not None:
            self.applications.tell_ended(self.lifecycle.state.now_s)
