"""Applications of a run as they unfold: events of units and applications, on both engines."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.engines.state import Bools, Ints
from harness.interface.apps import Apps
from harness.interface.entities import AppId, DemandPrediction, RequestId
from harness.interface.events import AppArrived, AppFinished, Event, UnitFinished, UnitStarted
from harness.interface.policies import LengthPredictor, PredictsApplications
from harness.workloads.workload import Workload

TOLD: frozenset[type[Event]] = frozenset({AppArrived, UnitStarted, UnitFinished, AppFinished})


@dataclass(slots=True)
class Applications:
    """Counts what is left of units and applications, and tells what begins and ends.

    Calls that are answered are noted, and what ends with them is told once all of an instant are:
    first units, then applications, each by number. `left` has the unanswered calls of every run of
    a unit, `open` those of every application.
    """

    workload: Workload
    apps: Apps
    tell: Callable[[Event], None]
    predictor: LengthPredictor | None = None
    left: Ints = field(init=False)
    open: Ints = field(init=False)
    _answered: list[Ints] = field(default_factory=list)
    _has_come: Bools = field(init=False)
    _calls: Ints = field(init=False)
    _first: Ints = field(init=False)

    def __post_init__(self) -> None:
        """Nothing has come."""
        instance = self.apps.instance
        self.left, self.open = np.bincount(instance), np.bincount(self.workload.app)
        self._has_come = np.zeros(len(self.open), np.bool_)
        self._calls = np.argsort(instance, kind="stable")
        self._first = np.concatenate([[0], np.cumsum(self.left)])

    def come(self, calls: Ints, now_s: float) -> None:
        """Tell of the applications and the units that begin with these calls, which come now."""
        load, apps, outside = self.workload, self.apps, self.apps.outside
        first = dict(zip(load.app[calls].tolist(), calls.tolist(), strict=True))
        for app in sorted(first):
            if not self._has_come[app]:
                self._has_come[app] = True
                deadline_s = load.deadline_s.item(first[app])
                known_s = None if math.isnan(deadline_s) else deadline_s
                kind, predicted = apps.kinds[apps.kind[app]], self._predicted(AppId(app))
                cache = apps.host_cache
                content = None if cache is None else cache.names[cache.content[app]]
                self.tell(AppArrived(now_s, AppId(app), kind, known_s, predicted, content))
        for instance in sorted(set(apps.instance[calls].tolist())):
            app, unit, own = self._unit(instance)
            ids = tuple(RequestId(call) for call in own.tolist())
            prompts, is_outside = tuple(load.prompt_tokens[own].tolist()), bool(outside[own[0]])
            self.tell(UnitStarted(now_s, app, unit, ids, prompts, is_outside))

    def _predicted(self, app: AppId) -> DemandPrediction | None:
        """What a predictor of applications says of one."""
        if isinstance(self.predictor, PredictsApplications):
            return self.predictor.predict_application(app)
        return None

    def _unit(self, instance: int) -> tuple[AppId, str, Ints]:
        """Application and name of a run of a unit, and its calls."""
        calls = self._calls[self._first[instance] : self._first[instance + 1]]
        app = AppId(self.workload.app.item(calls[0]))
        return app, self.apps.units[self.apps.unit[calls[0]]], calls

    def answered(self, calls: Ints) -> None:
        """Note that these are answered, or over."""
        self._answered.append(calls)

    def tell_ended(self, now_s: float) -> None:
        """Tell of the units and the applications that are over with the calls noted."""
        if not self._answered:
            return
        load, calls = self.workload, np.concatenate(self._answered)
        self._answered.clear()
        for instance in _empty(self.left, self.apps.instance[calls]):
            app, unit, own = self._unit(instance)
            prompts, answers = (
                tuple(column[own].tolist()) for column in (load.prompt_tokens, load.output_tokens)
            )
            seconds = float(np.nansum(self.apps.external_s[own]))
            self.tell(UnitFinished(now_s, app, unit, prompts, answers, seconds))
        for number in _empty(self.open, load.app[calls]):
            self.tell(AppFinished(now_s, AppId(number)))


def _empty(left: Ints, numbers: Ints) -> list[int]:
    """Take one away for each number; returns those of which nothing is left."""
    gone = []
    for number in numbers.tolist():
        left[number] -= 1
        if not left[number]:
            gone.append(number)
    return sorted(gone)
