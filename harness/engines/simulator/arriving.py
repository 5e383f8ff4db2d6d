"""Who arrives when on the virtual clock, how far ahead one may look, and what is predicted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.timeline import Kind, Timeline
from harness.engines.state import Floats
from harness.interface.entities import GroupId
from harness.interface.events import Event, Predicted
from harness.interface.policies import Capability, LengthPredictor


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """Hands requests out at their time, and asks the predictor about them.

    `are_heard` says whether anybody learns from events. `come` counts the requests that wait for
    nobody and have been handed out, `released` has those whose last answer has just come, `fresh`
    those whose predictions have.
    """

    lifecycle: Lifecycle
    groups: Mapping[GroupId, LiveGroup]
    timeline: Timeline
    fast_forward: bool
    are_heard: bool
    tell: Callable[[Event], None]
    root_s: Floats = field(init=False)
    come: int = 0
    released: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """When those arrive that wait for nobody."""
        self.root_s = self.lifecycle.workload.arrival_s[self.lifecycle.roots]

    @property
    def next_s(self) -> float:
        """When the next request arrives that waits for nobody; infinite if none will."""
        return float(self.root_s[self.come]) if self.come < len(self.root_s) else np.inf

    @property
    def are_unheard(self) -> bool:
        """Whether nobody learns from arrivals, and none of them is yet to be predicted."""
        predictor = self.lifecycle.system.predictor
        is_known = predictor is None or predictor.foresees
        return is_known and not self.are_heard

    def hand_out(self) -> None:
        """Dispatch every request that has arrived, and those to come if nobody can tell."""
        life, workload, now_s = self.lifecycle, self.lifecycle.workload, self.lifecycle.state.now_s
        first = self.come
        self.come = int(np.searchsorted(self.root_s, now_s, side="right"))
        if self.come < len(self.root_s) and self._may_look_ahead():
            self.come = int(np.searchsorted(self.root_s, self.timeline.next_s, side="left"))
        self.come = max(first, self.come)
        new = np.concatenate([life.roots[first : self.come], np.array(self.released, np.int64)])
        self.released.clear()
        if not len(new):
            return
        asked = workload.service[new].tolist()
        for index in sorted(set(asked)):
            service = workload.services[index].id
            those = zip(new.tolist(), asked, strict=True)
            life.hold_back(service, [request for request, of in those if of == index])
            life.hand_out(service)
        predictor = life.system.predictor
        if predictor is not None:
            for request in new.tolist():
                self._predict(predictor, request)
            if predictor.foresees and self.come > first:
                waiting = (life.state.waits > 0) & (workload.arrival_s <= now_s)
                life.foresee(predictor, np.flatnonzero(waiting))

    def _may_look_ahead(self) -> bool:
        """Nobody learns from arrivals, the groups stay, and all of them fill batches themselves."""
        life, system = self.lifecycle, self.lifecycle.system
        return (
            self.fast_forward
            and self.are_unheard
            and system.predictor is None
            and not system.dispatch.reads_load
            and not len(life.workload.edges)
            and Capability.REDEPLOY not in system.placement.requires
            and bool(self.groups)
            and all(live.replica is not None for live in self.groups.values())
        )

    def _predict(self, predictor: LengthPredictor, request: int) -> None:
        """Ask for a prediction, which becomes known when it has been computed."""
        name, length, seconds = self.lifecycle.predict(predictor, request)
        at_s = self.lifecycle.state.now_s + seconds
        event = Predicted(at_s, name, length)
        if seconds > 0:
            self.timeline.add(at_s, Kind.PREDICTION, event)
        else:
            self.predicted(event)

    def predicted(self, event: Predicted) -> None:
        """A prediction is ready."""
        self.lifecycle.state.predicted[event.request] = event.length
        self.fresh.append(event.request)
        self.tell(event)
