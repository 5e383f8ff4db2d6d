"""LTR: requests in the order of a learned ranking of answer lengths, with a starvation guard.

Paper      Fu et al., Efficient LLM Scheduling by Learning to Rank, NeurIPS 2024, arXiv 2408.15792;
           its program is hao-ai-lab/vllm-ltr, a fork of vLLM 0.4.
Idea       A small model ranks requests by how long their answers will be, and those of the lowest
           rank run. A request that has not run for many iterations is promoted before all others
           and demoted again after it has run in some.
Map        ranking scheduler         -> `_rank`, the predicted length
           starvation prevention     -> `_Guard`
Constants  `starves_after` 200 and `promoted_for` 10 iterations, of its program's
           benchmarks/fair-sharegpt-70B.sh; the batch rule: of the scenario, see
           scenarios/policy/ltr.yaml
Differs    the score is the predicted mean length of whichever predictor the run has; the order
           depends on its ranks alone. What is claimed of the ranking model itself (Kendall's tau)
           needs that model. In the program, KV that is short is swapped out from the end of the
           order, here it is recomputed; a request without a prediction waits behind the others,
           there every request is scored before it is ordered. The iteration in which a request
           arrives counts as one that it does not run in. Ties go to the lower id. Each group of a
           cluster counts iterations of its own. With the guard no compiled code follows the order
Checked    baselines/tests/test_ltr.py::test_the_shorter_prediction_runs_by_hand
           baselines/tests/test_ltr.py::test_a_starved_request_is_promoted_by_hand
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import GroupId
from harness.interface.events import Arrived, Event, Finished, Iterated, Moved
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_LAST = 2.0**40
"""The rank of requests without a prediction, and what is taken off that of promoted ones twice:
more tokens than any answer has."""


class Ltr:
    """Scheduling policy: a priority order by rank."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Moved, Iterated, Finished})

    def __init__(
        self, *, rule: ContinuousBatching, starves_after: int | None, promoted_for: int
    ) -> None:
        """`starves_after`: iterations without progress before a promotion, None: never.

        `promoted_for`: iterations that a promoted request runs in. ValueError below 1.
        """
        for name, value in (("starves_after", starves_after), ("promoted_for", promoted_for)):
            if value is not None and value < 1:
                raise ValueError(f"policy.{name} is {value}, it must be at least 1")
        self._starves_after, self._promoted_for = starves_after, promoted_for
        self._standing = Decision(priority_order=PriorityOrder(_rank, rule, Displaced.PAUSE))
        self._order = PriorityOrder(None, rule, Displaced.PAUSE, renews=True)
        self._guards: dict[GroupId, _Guard] = {}
        self._decisions: dict[GroupId, Decision] = {}

    def observe(self, event: Event) -> None:
        """Count the iterations that each request of a group does not run in."""
        match event:
            case Arrived() | Moved() if self._starves_after is not None:
                for guard in self._guards.values():
                    guard.leave(event.request.id)
                guard = self._guards.setdefault(
                    event.group, _Guard(self._starves_after, self._promoted_for)
                )
                guard.ran_at[event.request.id] = guard.iterations
            case Iterated() if event.group in self._guards:
                self._guards[event.group].iterate(event)
            case Finished():
                for guard in self._guards.values():
                    guard.leave(event.request.id)

    def counts(self) -> Mapping[str, int]:
        """How often requests were promoted."""
        return {"promotions": sum(guard.promotions for guard in self._guards.values())}

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group, but for promotions."""
        group = view.group.id
        if group not in self._guards:
            return self._standing
        if group not in self._decisions:
            order = replace(self._order, key=self._guards[group].key)
            self._decisions[group] = Decision(priority_order=order)
        return self._decisions[group]


def _rank(table: RequestTable) -> Floats:
    """Predicted tokens."""
    return np.nan_to_num(table.predicted_mean_tokens, nan=_LAST)


@dataclass(slots=True)
class _Guard:
    """Starvation prevention of a group."""

    starves_after: int
    promoted_for: int
    iterations: int = 0
    ran_at: dict[int, int] = field(default_factory=dict)
    """The number of the last iteration that each request ran in; at first, before it came."""
    left: dict[int, int] = field(default_factory=dict)
    """Iterations that each promoted request may still run in."""
    promotions: int = 0
    none_before: int = 0
    """No request can starve before this iteration: what `ran_at` has only grows."""

    def iterate(self, event: Iterated) -> None:
        """Iterations of a batch are over; promote the starved, demote those that have run."""
        self.iterations += event.iterations
        for request in event.batch.tokens.keys() & self.ran_at.keys():
            self.ran_at[request] = self.iterations
            if request in self.left:
                self.left[request] -= event.iterations
        self.left = {name: left for name, left in self.left.items() if left > 0}
        if self.iterations < self.none_before:
            return
        oldest = min(self.ran_at.values(), default=self.iterations)
        self.none_before = max(oldest, self.iterations - self.starves_after) + self.starves_after
        for name, ran_at in self.ran_at.items():
            if self.iterations - ran_at >= self.starves_after:
                self.ran_at[name] = self.iterations
                self.left[name] = self.promoted_for
                self.promotions += 1

    def leave(self, request: int) -> None:
        """A request is answered, or goes to another group."""
        self.ran_at.pop(request, None)
        self.left.pop(request, None)

    def key(self, table: RequestTable) -> Floats:
        """Ranks, those of promoted requests before all others."""
        if not self.left:
            return _rank(table)
        promoted = np.array([request in self.left for request in table.id.tolist()])
        ranks = _rank(table)
        return np.where(promoted, ranks - 2.0 * _LAST, ranks)
