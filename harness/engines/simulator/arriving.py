"""Who arrives when on the virtual clock, how far ahead one may look, and what is predicted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.timeline import Kind, Timeline
from harness.engines.state import Floats, Ints
from harness.interface.entities import GroupId, LengthPrediction, RequestId
from harness.interface.events import Event, Predicted
from harness.interface.policies import Capability

MOST_AHEAD = 1 << 16
"""Requests dispatched at once ahead of their time."""


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """Hands requests out at their time, and asks the predictor about them.

    `are_heard` says whether anybody learns from events, `hand_over_s` how long after an answer the
    calls come that waited for it. `come` counts the requests that wait for
    nobody and have been handed out, `released` has those whose last answer has just come, `fresh`
    those whose predictions have. `foretold` has the predictions of requests handed out ahead of
    time that take a while: they are known when `Predicted.now_s` has come.
    """

    lifecycle: Lifecycle
    groups: Mapping[GroupId, LiveGroup]
    timeline: Timeline
    fast_forward: bool
    are_heard: bool
    hand_over_s: float
    tell: Callable[[Event], None]
    root_s: Floats = field(init=False)
    come: int = 0
    released: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    foretold: dict[int, Predicted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """When those arrive that wait for nobody."""
        self.root_s = self.lifecycle.workload.arrival_s[self.lifecycle.roots]

    @property
    def next_s(self) -> float:
        """When the next request arrives that waits for nobody; infinite if none will."""
        return float(self.root_s[self.come]) if self.come < len(self.root_s) else np.inf

    @property
    def come_unheard(self) -> bool:
        """Whether nobody learns of it when a call comes that waited for answers.

        Nor is any of them yet to be predicted.
        """
        predictor = self.lifecycle.system.predictor
        is_known = predictor is None or predictor.foresees
        return is_known and not self.are_heard

    def release(self, answered: Ints) -> None:
        """Calls that waited for these alone come, at once or when the answers are handed over."""
        come = self.lifecycle.released(answered, after_s=self.hand_over_s)
        if come and self.hand_over_s:
            at_s = self.lifecycle.state.now_s + self.hand_over_s
            self.timeline.add(at_s, Kind.ARRIVAL, come)
        else:
            self.released += come

    def hand_out(self) -> None:
        """Dispatch every request that has arrived, and those to come if nobody can tell."""
        life, workload, now_s = self.lifecycle, self.lifecycle.workload, self.lifecycle.state.now_s
        first = self.come
        self.come = int(np.searchsorted(self.root_s, now_s, side="right"))
        ahead = self.come < len(self.root_s) and self._may_look_ahead()
        if ahead:
            self.come = int(np.searchsorted(self.root_s, self.timeline.next_s, side="left"))
        self.come = max(first, self.come)
        new = np.concatenate([life.roots[first : self.come], np.array(self.released, np.int64)])
        self.released.clear()
        if not len(new):
            return
        # Who is dispatched ahead of time is so whoever comes along: not all need be lists at once.
        most = MOST_AHEAD if ahead else len(new)
        for start in range(0, len(new), most):
            self.dispatch(new[start : start + most])
        predictor = life.system.predictor
        if predictor is not None:
            for name, length, seconds in life.predict(predictor, new):
                self._predict(name, length, seconds, ahead=ahead)
            if self.foretold:
                by_time = sorted(self.foretold.items(), key=lambda item: item[1].now_s)
                self.foretold = dict(by_time)
            if predictor.foresees and self.come > first and len(workload.edges):
                waiting = (life.state.waits > 0) & (workload.arrival_s <= now_s)
                life.foresee(predictor, np.flatnonzero(waiting))

    def dispatch(self, requests: Ints) -> None:
        """Requests that are in no group go to those of their services."""
        asked = self.lifecycle.workload.service[requests]
        services = self.lifecycle.workload.services
        for index in np.unique(asked).tolist() if len(services) > 1 else (0,):
            service = services[index].id
            self.lifecycle.hold_back(service, requests[asked == index].tolist())
            self.lifecycle.hand_out(service)

    def _may_look_ahead(self) -> bool:
        """Nobody learns from arrivals, the groups stay, and all of them fill batches themselves."""
        life, system = self.lifecycle, self.lifecycle.system
        return (
            self.fast_forward
            and not self.are_heard
            and not system.dispatch.reads_load
            and not len(life.workload.edges)
            and Capability.REDEPLOY not in system.placement.requires
            and bool(self.groups)
            and all(self._runs_by_itself(live) for live in self.groups.values())
        )

    def _runs_by_itself(self, live: LiveGroup) -> bool:
        """Whether a group fills its batches itself, or will once a load order has given it some."""
        if live.replica is not None:
            return True
        return live.is_unused and live.group.services <= self.lifecycle.dispatching.orders.keys()

    def _predict(
        self, request: RequestId, length: LengthPrediction, seconds: float, *, ahead: bool
    ) -> None:
        """A prediction becomes known when it has been computed."""
        state = self.lifecycle.state
        if ahead and not seconds:
            state.predict(request, length)
            return
        at_s = max(state.now_s, float(state.arrays.arrival_s[request])) + seconds
        event = Predicted(at_s, request, length)
        if ahead:
            self.foretold[request] = event
        elif seconds > 0:
            self.timeline.add(at_s, Kind.PREDICTION, event)
        else:
            self.predicted(event)

    def settle(self) -> None:
        """Predictions foretold for a time that has come are known; replicas have seen to them."""
        state = self.lifecycle.state
        while self.foretold:
            request, event = next(iter(self.foretold.items()))
            if event.now_s > state.now_s:
                return
            state.predict(event.request, event.length)
            del self.foretold[request]

    def tell_later(self, request: int) -> None:
        """A prediction that was foretold comes as one that nobody has seen ahead."""
        event = self.foretold.pop(request)
        self.timeline.add(event.now_s, Kind.PREDICTION, event)

    def predicted(self, event: Predicted) -> None:
        """A prediction is ready."""
        self.lifecycle.state.predict(event.request, event.length)
        self.fresh.append(event.request)
        self.tell(event)
