"""Hermes: backends of the next units are loaded while the unit before them runs.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       When a unit starts, recorded runs say which units may come next and how long this one
           may take. The backend of a next unit of probability p is loaded at the moment at which it
           will be ready in time with probability K; below p = K it is not loaded ahead of need.
Map        3.4 knob K           -> `effectiveness`
           3.4 eq. 3            -> `Prewarming._starts_after_s`; `reading`
           3.4 p_s, t_c         -> `_after`, `_taken_s`
Constants  K = 0.5 (section 5.1); 1,000 samples of each unit (section 4). The paper does not state
           seconds per token (its program: 1e-4 and 0.06) nor `fewest_observed`
Differs    eq. 3 as printed, p_s P(t_c > t_s + t_p) = K, starts later for a smaller K, against the
           text and figure 14 ("a smaller K can in general yield faster completion, yet at the cost
           of higher resource wastage"). `quantile` starts t_p before the quantile K / p_s of t_c;
           `printed` solves eq. 3. How long a unit takes is estimated from the tokens of recorded
           runs until `fewest_observed` runs of it have ended, from these afterwards
Checked    systems/tests/test_hermes_prewarm.py
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from harness.interface.decisions import Prewarm
from harness.interface.entities import AppId, ResourceId
from harness.interface.events import AppArrived, AppFinished, Event, UnitFinished, UnitStarted
from harness.interface.views import ClusterView
from harness.planning.application_history import ApplicationHistory, UnitRun

_MOST_SAMPLES = 1000
_READINGS = ("quantile", "printed")


class Prewarming:
    """Loads the backends that units which may come next will need."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset(
        {AppArrived, UnitStarted, UnitFinished, AppFinished}
    )

    def __init__(
        self,
        *,
        effectiveness: float,
        reading: str,
        prompt_token_s: float,
        output_token_s: float,
        fewest_observed: int,
        applications: ApplicationHistory | None = None,
    ) -> None:
        """`effectiveness` is K, in (0, 1]. ValueError for other numbers and another reading."""
        if not 0 < effectiveness <= 1:
            raise ValueError(f"prewarm.effectiveness is {effectiveness}, it must be in (0, 1]")
        if reading not in _READINGS:
            raise ValueError(f"prewarm.reading is {reading}, not one of {', '.join(_READINGS)}")
        self._effectiveness, self._reading = effectiveness, reading
        self._token_s, self._fewest_observed = (prompt_token_s, output_token_s), fewest_observed
        history = ApplicationHistory({}) if applications is None else applications
        self._backends = history.backends
        self._after = {kind: _shares(runs) for kind, runs in history.runs.items()}
        self._estimates_s = {kind: self._estimated_s(runs) for kind, runs in history.runs.items()}
        self._observed_s: dict[tuple[str, str], deque[float]] = {}
        self._kinds: dict[AppId, str] = {}
        self._started_s: dict[tuple[AppId, str], float] = {}
        self._due: dict[tuple[AppId, str], list[tuple[float, ResourceId]]] = {}

    def observe(self, event: Event) -> None:
        """Plan when a unit starts; forget the plan and note the seconds when it is done."""
        match event:
            case AppArrived():
                self._kinds[event.app] = event.kind
            case UnitStarted():
                unit = (event.app, event.unit)
                self._started_s[unit] = event.now_s
                self._due[unit] = list(self._planned(event))
            case UnitFinished():
                unit = (event.app, event.unit)
                kind = self._kinds[event.app]
                taken_s = event.now_s - self._started_s.pop(unit, event.now_s)
                samples = self._observed_s.setdefault(
                    (kind, event.unit), deque(maxlen=_MOST_SAMPLES)
                )
                samples.append(taken_s)
                self._due.pop(unit, None)
            case AppFinished():
                del self._kinds[event.app]

    def prewarm(self, view: ClusterView) -> Prewarm:
        """Load what is due; wake for the next."""
        start = []
        for plans in self._due.values():
            start += [name for at_s, name in plans if at_s <= view.now_s]
            plans[:] = [plan for plan in plans if plan[0] > view.now_s]
        times_s = [at_s for plans in self._due.values() for at_s, _ in plans]
        return Prewarm(start=tuple(dict.fromkeys(start)), wake_s=min(times_s, default=None))

    def _planned(self, event: UnitStarted) -> Sequence[tuple[float, ResourceId]]:
        """When to load which backends while a unit runs. A kind without recorded runs has none."""
        kind = self._kinds[event.app]
        backends = self._backends.get(kind, {})
        plans = []
        for name, share in self._after.get(kind, {}).get(event.unit, {}).items():
            if name in backends and share >= self._effectiveness:
                taken_s = self._taken_s(kind, event.unit)
                after_s = self._starts_after_s(taken_s, share, backends[name].load_s)
                plans.append((event.now_s + max(0.0, after_s), backends[name].of(event.app)))
        return plans

    def _starts_after_s(self, taken_s: Sequence[float], share: float, load_s: float) -> float:
        """Seconds from the start of a unit; below 0 where that is too late to be ready in time."""
        part = self._effectiveness / share
        if self._reading == "printed":
            part = 1.0 - part
        completion_s = float(np.quantile(taken_s, part, method="inverted_cdf"))
        return completion_s - load_s

    def _taken_s(self, kind: str, unit: str) -> Sequence[float]:
        """Samples of the seconds that a unit takes."""
        observed_s = self._observed_s.get((kind, unit), ())
        if len(observed_s) >= self._fewest_observed:
            return observed_s
        return self._estimates_s[kind][unit]

    def _estimated_s(self, runs: Sequence[Sequence[UnitRun]]) -> dict[str, list[float]]:
        """By unit, from recorded tokens: calls of a unit run side by side."""
        found: dict[str, list[float]] = defaultdict(list)
        prompt_s, output_s = self._token_s
        for run in runs:
            for unit in run:
                tokens = zip(unit.prompt_tokens, unit.output_tokens, strict=True)
                calls_s = [p * prompt_s + o * output_s for p, o in tokens]
                found[unit.unit].append(max(calls_s, default=unit.external_s))
        return {unit: samples[-_MOST_SAMPLES:] for unit, samples in found.items()}


def _shares(runs: Sequence[Sequence[UnitRun]]) -> Mapping[str, Mapping[str, float]]:
    """By unit, how often each other unit comes next."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for unit, then in zip(run, [*(it.unit for it in run[1:]), ""], strict=True):
            counts[unit.unit][then] += 1
    return {
        unit: {then: count / after.total() for then, count in after.items() if then}
        for unit, after in counts.items()
    }
