"""Which requests arrive when on the virtual clock, and what is predicted of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.kernel.world import NO_SECONDS
from harness.engines.simulator.timeline import Due, Timeline
from harness.engines.simulator.units import Units
from harness.engines.state import UNDISPATCHED, Floats, Ints
from harness.interface.entities import GroupId, LengthPrediction, RequestId, ServiceId
from harness.interface.events import Event, Predicted
from harness.interface.policies import Capability, reads_progress

MOST_NAMED = 1 << 16
"""Requests for which a dispatch policy names groups at once."""


@dataclass(slots=True, kw_only=True)
class Arriving:
    """Hands requests out at their time, or to compiled code ahead of it, and asks the predictor.

    `are_heard` says whether any policy or record takes events beside overruns, `calls_are` whether
    any of these is of a single call: not of a unit or an application. `hand_over_s` is how long
    after an answer the calls are sent that waited for it. `come` counts the requests that wait for
    no other and have been handed out, `released` has those whose last answer has just come, `fresh`
    those whose predictions have. `foretold` has the predictions of requests handed out ahead of
    time that take a while: they are known when `Predicted.now_s` has come.
    """

    lifecycle: Lifecycle
    groups: Mapping[GroupId, LiveGroup]
    timeline: Timeline
    compiled: CompiledGroups
    fast_forward: bool
    are_heard: bool
    calls_are: bool
    units: Units | None
    hand_over_s: float
    tell: Callable[[Event], None]
    root_s: Floats = field(init=False)
    come: int = 0
    has_handed_over: bool = False
    released: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    foretold: dict[int, Predicted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note when requests arrive that wait for no other."""
        life = self.lifecycle
        self.root_s = life.state.come_s[life.roots]
        if not life.workload.answers_release:
            return
        first_child, children = life.graph.child_lists
        if not (self.come_unheard and self.fast_forward):
            self.compiled.stop_at_parents(first_child)
            self.compiled.state["stops_at_finish"] |= life.workload.is_closed_loop
            return
        if life.workload.is_closed_loop:
            self.compiled.world = self.compiled.world._replace(sent=life.sent)
        self.compiled.release_calls(
            first_child,
            children,
            life.state.waits,
            life.graph.chain,
            self.hand_over_s,
            NO_SECONDS if self.units is None else self.units.apps.external_s,
        )

    def index(self, service: ServiceId) -> int:
        """Place of a service in the workload."""
        return [known.id for known in self.lifecycle.workload.services].index(service)

    @property
    def next_s(self) -> float:
        """When the next request arrives that waits for no other and was not handed out."""
        return self.root_s.item(self.come) if self.come < len(self.root_s) else np.inf

    @property
    def come_unheard(self) -> bool:
        """Whether a call that waited for answers may come without anything else being asked.

        No event of it alone is taken, and its prediction is there: a closed loop foresees none.
        """
        predictor = self.lifecycle.system.predictor
        foresees = predictor is not None and predictor.foresees
        foresees &= not self.lifecycle.workload.is_closed_loop
        return (predictor is None or foresees) and not self.calls_are

    def release(self, answered: Ints) -> None:
        """Calls that waited for these alone come, now, or after hand-over and intake."""
        if self.compiled.releases:
            by_others = self.compiled.requests.group[answered] < 0
            if self.units is not None:
                by_others &= ~self.units.apps.outside[answered]
            answered = answered[by_others]
        state = self.lifecycle.state
        for call in self.lifecycle.released(answered, after_s=self.hand_over_s):
            at_s = float(state.arrays.arrival_s[call] + state.arrays.intake_s[call])
            if at_s > state.now_s:
                self.timeline.add(at_s, Due.ARRIVAL, call)
            else:
                self.released.append(call)

    def hand_out(self) -> None:
        """Dispatch every request that has arrived, and give compiled code those to come."""
        life, now_s = self.lifecycle, self.lifecycle.state.now_s
        first = self.come
        self.come = max(first, int(self.root_s.searchsorted(now_s, side="right")))
        new = life.roots[first : self.come]
        if self.released:
            new = np.concatenate([new, np.array(self.released, np.int64)])
            self.released.clear()
        if len(new):
            asked = new if self.units is None else self.units.begin(new)
            self.dispatch(asked)
            self._predict_all(asked, ahead=False)
        is_ahead = self.come < len(self.root_s) and self._may_look_ahead()
        if is_ahead:
            self._hand_over(life.roots[self.come :])
            self.come, self.has_handed_over = len(self.root_s), True
        predictor = life.system.predictor
        has_come = self.come > first and len(life.workload.edges) > 0
        if predictor is not None and predictor.foresees and has_come:
            # Of applications to come nothing is seen before they have.
            is_known = is_ahead | (life.state.known_s <= now_s)
            life.foresee(predictor, np.flatnonzero((life.state.waits > 0) & is_known))

    def dispatch(self, requests: Ints) -> None:
        """Requests that are in no group go to those of their services."""
        load, by_service = self.lifecycle.workload, dict[int, list[int]]()
        for request, index in zip(requests.tolist(), load.service[requests].tolist(), strict=True):
            by_service.setdefault(index, []).append(request)
        for index in sorted(by_service):
            service = load.services[index].id
            self.lifecycle.hold_back(service, by_service[index])
            self.lifecycle.hand_out(service)

    def _may_look_ahead(self) -> bool:
        """Whether compiled code may have all requests to come: no event of them is taken.

        Where the dispatch policy names groups, these stay, and no call comes in between.
        """
        life, system = self.lifecycle, self.lifecycle.system
        is_any = any(live.is_compiled for live in self.groups.values())
        if not is_any or not self.fast_forward or self.are_heard or reads_progress(system.dispatch):
            return False
        stays = Capability.REDEPLOY not in system.placement.requires
        return not life.dispatching.named or (stays and not life.workload.answers_release)

    def _hand_over(self, later: Ints) -> None:
        """Compiled code dispatches these when they come, or the policy names their groups now."""
        life = self.lifecycle
        self._predict_all(later, ahead=True)
        group = np.full(len(later), UNDISPATCHED)
        asked = life.workload.service[later]
        for index in np.unique(asked).tolist():
            rows = np.flatnonzero(asked == index)
            service = life.workload.services[index].id
            for start in range(0, len(rows), MOST_NAMED):
                some = rows[start : start + MOST_NAMED]
                names = life.named_ahead(later[some].tolist(), service)
                if names is None:
                    break
                group[some] = [self.groups[name].number for name in names]
        self.compiled.add_coming(later, group)

    def _predict_all(self, requests: Ints, *, ahead: bool) -> None:
        """Predict requests that come, or `ahead` requests that will."""
        predictor = self.lifecycle.system.predictor
        if predictor is None:
            return
        for name, length, seconds in self.lifecycle.predict(predictor, requests):
            self._predict(name, length, seconds, ahead=ahead)
        if self.foretold:
            by_time = sorted(self.foretold.items(), key=lambda item: item[1].now_s)
            self.foretold = dict(by_time)

    def _predict(
        self, request: RequestId, length: LengthPrediction, seconds: float, *, ahead: bool
    ) -> None:
        """A prediction becomes known when it has been computed."""
        state = self.lifecycle.state
        if ahead and not seconds:
            state.predict(request, length)
            return
        come_s = float(state.arrays.arrival_s[request] + state.arrays.intake_s[request])
        at_s = max(state.now_s, come_s) + seconds
        event = Predicted(at_s, request, length)
        if ahead:
            self.foretold[request] = event
        elif seconds > 0:
            self.timeline.add(at_s, Due.PREDICTION, event)
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
        """A prediction that was foretold comes as one that was not seen ahead."""
        event = self.foretold.pop(request)
        self.timeline.add(event.now_s, Due.PREDICTION, event)

    def predicted(self, event: Predicted) -> None:
        """A prediction is ready."""
        self.lifecycle.state.predict(event.request, event.length)
        self.fresh.append(event.request)
        self.tell(event)
