"""VTC by calls: the application of which the fewest calls have run, for its share, is served next.

Paper      VTC as the program of Hermes has it as a baseline (Liu et al., Efficient Serving of LLM
           Applications with Probabilistic Demand Modeling, arXiv 2506.14851): branch ATC25, commit
           6f8cf70, vllm/vllm/core/policy.py, `update_service`. The paper's text has VTC as
           baselines/vtc.py
Idea       A counter per application. An iteration takes as much from the counters of all as it adds
           to those of the calls that run. It adds 1 for each call that runs; what it takes is
           shared by the number of calls that each application's current stage has, ended ones
           included. The call of the application with the lowest counter is admitted next.
Map        `update_service`                   -> `_Counters.settle`
           its order, lowest counter first    -> `_Counters.key`
Constants  `renew_s`, `displaces` and the batch rule: of the scenario, see
           scenarios/policy/vtc_calls.yaml
Differs    calls that ran are counted when keys are asked, on the events below and every `renew_s`,
           by the stages as they were when keys were last asked. An iteration of vLLM 0.4.3 computes
           whole prompts or decodes, and gives each of its calls one token, so that the tokens
           generated since then are the calls that ran; the last tokens of a call come with its
           Finished event. With chunked prefill the pieces of a prompt count 1 together. Calls
           outside any LLM do not count. Units of an application that overlap are one stage. A call
           of no unit is a stage of its own; a request of no application is its own application.
           Each group of a cluster has counters and stages of its own
Checked    baselines/tests/test_vtc_calls.py::test_counters_by_hand
           systems/tests/test_application_orders_served.py::test_compiled_as_stepped
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import AppId, GroupId, Request, RequestId
from harness.interface.events import AppFinished, Arrived, Event, Finished, Moved, UnitStarted
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_DECIMALS = 9
"""Of a counter, in an order: far more than shares of calls need."""


class VtcCalls:
    """Scheduling policy: a priority order by counter."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset(
        {UnitStarted, Arrived, Moved, Finished, AppFinished}
    )

    def __init__(self, *, rule: ContinuousBatching, displaces: str | None, renew_s: float) -> None:
        """`displaces`: pause, recompute, swap, or None. ValueError for another word."""
        how = None if displaces is None else Displaced(displaces)
        self.requires = frozenset({Capability.SWAP} if how is Displaced.SWAP else ())
        self._first: dict[RequestId, RequestId] = {}
        """By call of a unit, the first call of the unit, which names the stage."""
        self._at: dict[RequestId, _Counters] = {}
        self._counters: dict[GroupId, _Counters] = {}
        self._order = PriorityOrder(None, rule, how, renews=True, renew_s=renew_s)
        self._decisions: dict[GroupId, Decision] = {}

    def observe(self, event: Event) -> None:
        """Note which stages begin and which calls end; both count when keys are asked."""
        match event:
            case UnitStarted():
                if not event.is_outside:
                    self._first |= dict.fromkeys(event.calls, event.calls[0])
            case Arrived() | Moved():
                self._arrive(event.request, self._of(event.group))
            case Finished():
                self._first.pop(event.request.id, None)
                self._at.pop(event.request.id).end(event.request.id, event.output_tokens)
            case AppFinished():
                for counters in self._counters.values():
                    counters.over.append(event.app)

    def schedule(self, view: GroupView) -> Decision:
        """The priority order of each group, which stands."""
        group = view.group.id
        if group not in self._decisions:
            order = replace(self._order, key=self._of(group).key)
            self._decisions[group] = Decision(priority_order=order)
        return self._decisions[group]

    def _of(self, group: GroupId) -> "_Counters":
        return self._counters.setdefault(group, _Counters())

    def _arrive(self, request: Request, counters: "_Counters") -> None:
        """A call comes to a group; one that was in another has been counted so far there."""
        counted = 0
        if request.id in self._at:
            counted = self._at.pop(request.id).end(request.id)
        self._at[request.id] = counters
        # Units start before their calls arrive: a call of which no unit is known is of none.
        stage = self._first.get(request.id, request.id)
        counters.arrive(request, stage, counted)


@dataclass(slots=True)
class _Stage:
    """Calls of an application that began together in a group, and how many are not over."""

    name: RequestId
    app: AppId
    calls: int = 0
    left: int = 0


@dataclass(slots=True)
class _Call:
    """A call, its tokens, and how many of these have been counted."""

    stage: _Stage
    counted: int
    tokens: int


@dataclass(slots=True)
class _Counters:
    """Calls, stages and counters of a group.

    `taken` is what has been taken so far from each call of a stage that is not over. The counter of
    an application is what it was given, less `taken` for each call of its stages; so an iteration
    changes few numbers, however many applications there are. Where a stage begins or ends, what its
    application was given is corrected, and the counter stays.
    """

    calls: dict[RequestId, _Call] = field(default_factory=dict)
    stages: dict[RequestId, _Stage] = field(default_factory=dict)
    given: Floats = field(default_factory=lambda: np.zeros(0))
    """By application, as `share`."""
    share: Floats = field(default_factory=lambda: np.zeros(0))
    """Calls of an application's stages that are not over."""
    is_here: Floats = field(default_factory=lambda: np.zeros(0))
    """By request: 1 where its call is one of the group."""
    taken: float = 0.0
    begun: list[_Stage] = field(default_factory=list)
    """Once for each call that has come since keys were last asked; `ended` and `over` likewise."""
    ended: list[_Call] = field(default_factory=list)
    over: list[AppId] = field(default_factory=list)
    all_calls: int = 0

    def arrive(self, request: Request, name: RequestId, counted: int) -> None:
        """A call comes to the group."""
        stage = self.stages.setdefault(name, _Stage(name, request.app))
        stage.left += 1
        self.begun.append(stage)
        self.calls[request.id] = _Call(stage, counted, counted)
        self._cover(request.app, request.id)
        self.is_here[request.id] = 1.0

    def end(self, request: RequestId, tokens: int | None = None) -> int:
        """A call is over with so many tokens, or leaves; returns how many have been counted."""
        call = self.calls.pop(request)
        self.is_here[request] = 0.0
        call.tokens = call.counted if tokens is None else tokens
        self.ended.append(call)
        return call.counted

    def settle(self, calls: Iterable[_Call]) -> None:
        """Count calls that ran, by the stages of until now; then stages begin and end."""
        total = 0
        for call in (*self.ended, *calls):
            ran = call.tokens - call.counted
            self.given[call.stage.app] += ran
            call.counted = call.tokens
            total += ran
        if not self.all_calls:
            # The first calls of a group may have run in another: they pay for themselves.
            self._begin()
        if total:
            self.taken += total / self.all_calls
        self._begin()
        for stage in (call.stage for call in self.ended):
            stage.left -= 1
            if not stage.left:
                self._add(stage.app, -stage.calls)
                del self.stages[stage.name]
        for app in self.over:
            if app < len(self.given):
                self.given[app] = self.share[app] = 0.0
        self.ended.clear()
        self.over.clear()

    def _begin(self) -> None:
        for stage in self.begun:
            stage.calls += 1
            self._add(stage.app, 1)
        self.begun.clear()

    def _add(self, app: AppId, calls: int) -> None:
        """So many calls more are of stages that are not over."""
        self.share[app] += calls
        self.all_calls += calls
        self.given[app] += calls * self.taken

    def key(self, table: RequestTable) -> Floats:
        """The counter of each request's application."""
        self._cover(int(table.app.max(initial=0)), int(table.id.max(initial=0)))
        ran = np.flatnonzero((table.generated_tokens > 0) & (self.is_here[table.id] > 0))
        calls = [self.calls[RequestId(request)] for request in table.id[ran].tolist()]
        for call, tokens in zip(calls, table.generated_tokens[ran].tolist(), strict=True):
            call.tokens = tokens
        self.settle(calls)
        # Counters that only the order of sums tells apart are equal.
        counters = np.round(self.given - self.share * self.taken, _DECIMALS)
        # Requests that have not come yet may be asked about ahead, and are then asked again.
        return np.where(self.is_here[table.id] > 0, counters[table.app], np.inf)

    def _cover(self, app: int, request: int) -> None:
        """Have places for these numbers."""
        if app >= len(self.given):
            more = np.zeros(app + 1)
            self.given = np.concatenate([self.given, more])
            self.share = np.concatenate([self.share, more])
        if request >= len(self.is_here):
            self.is_here = np.concatenate([self.is_here, np.zeros(request + 1)])
