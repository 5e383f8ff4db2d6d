"""EDF: earliest deadline first.

Paper      Liu and Layland, Scheduling Algorithms for Multiprogramming in a Hard-Real-Time
           Environment, Journal of the ACM 20(1), 1973; as the baseline of Hermes (arXiv 2506.14851
           sec. 5.1), which orders applications by it.
Idea       The request whose deadline, or that of its application, is the earliest runs first. How
           much service it needs does not count.
Map        -                              -> `_key`
Constants  `displaces` and the batch rule: of the scenario, scenarios/policy/edf.yaml
Differs    requests without a deadline come behind the ones that have one, by arrival
Checked    baselines/tests/test_edf.py::test_the_earliest_deadline_runs_first_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_BEHIND = 1e9
"""Added where there is no deadline: more seconds than any run has."""


class Edf:
    """Scheduling policy: a priority order by deadline."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, displaces: str | None) -> None:
        """`displaces`: pause, recompute, swap, or None. ValueError for another word."""
        how = None if displaces is None else Displaced(displaces)
        self.requires = frozenset({Capability.SWAP} if how is Displaced.SWAP else ())
        self._decision = Decision(priority_order=PriorityOrder(_key, rule, how))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision


def _key(table: RequestTable) -> Floats:
    """Deadlines."""
    return np.where(np.isnan(table.deadline_s), _BEHIND + table.arrival_s, table.deadline_s)
