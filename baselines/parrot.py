"""Parrot: requests of applications, first come first served by application or by depth.

Paper      Lin et al., Parrot: Efficient Serving of LLM-based Applications with Semantic Variable,
           OSDI 2024, arXiv 2405.19888; sections below are its sections. As the baseline of Hermes
           (arXiv 2506.14851 sec. 5.1) has it: first come first served by application.
Idea       All requests of an application come before those of applications that have come later,
           so that one that has begun is not held up between its requests.
Map        5.4 application-level scheduling   -> `_key`, `order: arrival`
           its program, branch main           -> `order: depth`
Constants  `order`, `displaces` and the batch rule: of the scenario, scenarios/policy/parrot.yaml
           and parrot_depth.yaml
Differs    graphs that are known in advance, performance objectives of an output and shared prefixes
           are left out. By depth, requests of an application's later units come first, whichever
           application that is, and then the earlier application. Its program reads the depth of a
           request from the graph, here units count as they start. Requests of no application are
           ordered by arrival
Checked    baselines/tests/test_parrot.py::test_the_earlier_application_runs_first_by_hand
           baselines/tests/test_parrot.py::test_the_deeper_unit_runs_first_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import AppId
from harness.interface.events import AppArrived, AppFinished, Event, UnitStarted
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_PER_UNIT = 1e9
"""Taken off the key of deeper units: more seconds than any run has."""


class Parrot:
    """Scheduling policy: a priority order of applications."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({AppArrived, UnitStarted, AppFinished})

    def __init__(self, *, rule: ContinuousBatching, order: str, displaces: str | None) -> None:
        """`order`: arrival or depth; `displaces`: pause, recompute, swap, or None.

        ValueError for another word.
        """
        if order not in ("arrival", "depth"):
            raise ValueError(f"policy.order is {order}, not arrival or depth")
        how = None if displaces is None else Displaced(displaces)
        self.requires = frozenset({Capability.SWAP} if how is Displaced.SWAP else ())
        self._per_unit = _PER_UNIT if order == "depth" else 0.0
        self._arrival_s: dict[AppId, float] = {}
        self._depth: dict[AppId, int] = {}
        self._decision = Decision(priority_order=PriorityOrder(self._key, rule, how, renews=True))

    def observe(self, event: Event) -> None:
        """Note when an application comes, and how many units of it have started."""
        match event:
            case AppArrived():
                self._arrival_s[event.app], self._depth[event.app] = event.now_s, 0
            case UnitStarted():
                self._depth[event.app] += 1
            case AppFinished():
                del self._arrival_s[event.app], self._depth[event.app]

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision

    def _key(self, table: RequestTable) -> Floats:
        """When each request's application has come, less for each unit that has started."""
        came_s = map(self._rank, map(AppId, table.app.tolist()))
        key = np.fromiter(came_s, np.float64, len(table.app))
        return np.where(np.isnan(key), table.arrival_s, key)

    def _rank(self, app: AppId) -> float:
        arrival_s = self._arrival_s.get(app)
        return np.nan if arrival_s is None else arrival_s - self._per_unit * self._depth[app]
