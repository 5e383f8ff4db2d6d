"""LTR: requests in the order of a learned ranking of answer lengths, with a starvation guard.

Paper      Fu et al., Efficient LLM Scheduling by Learning to Rank, NeurIPS 2024, arXiv 2408.15792;
           its program is hao-ai-lab/vllm-ltr, a fork of vLLM 0.4.
Idea       A small model ranks requests by how long their answers will be, and those of the lowest
           rank run. A request that has not run for many iterations is promoted before all others
           and demoted again after it has run in some.
Map        ranking scheduler         -> `_rank`, the predicted length
           starvation prevention     -> `AfterIterations`, then `_promoted`
Constants  `starves_after` 200 and `promoted_for` 10 iterations, of its program's
           benchmarks/fair-sharegpt-70B.sh; the batch rule: of the scenario, see
           scenarios/policy/ltr.yaml
Differs    the score is the predicted mean length of whichever predictor the run has; the order
           depends on its ranks alone. What is claimed of the ranking model itself (Kendall's tau)
           needs that model. In the program, KV that is short is swapped out from the end of the
           order, here it is recomputed; a request without a prediction waits behind the others,
           there every request is scored before it is ordered. The iteration in which a request
           arrives counts as one that it does not run in. Ties go to the lower id. Each group of a
           cluster counts iterations of its own
Checked    baselines/tests/test_ltr.py::test_the_shorter_prediction_runs_by_hand
           baselines/tests/test_ltr.py::test_a_starved_request_is_promoted_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.promotion import AfterIterations
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_LAST = 2.0**40
"""The rank of requests without a prediction, and what is taken off that of promoted ones twice:
more tokens than any answer has."""


class Ltr:
    """Scheduling policy: a priority order by rank."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self, *, rule: ContinuousBatching, starves_after: int | None, promoted_for: int
    ) -> None:
        """`starves_after`: iterations without progress before a promotion, None: never.

        `promoted_for`: iterations that a promoted request runs in. ValueError below 1.
        """
        for name, value in (("starves_after", starves_after), ("promoted_for", promoted_for)):
            if value is not None and value < 1:
                raise ValueError(f"policy.{name} is {value}, it must be at least 1")
        promotion = None
        if starves_after is not None:
            promotion = AfterIterations(starves_after, promoted_for, _promoted)
        order = PriorityOrder(_rank, rule, Displaced.PAUSE, promotion=promotion)
        self._standing = Decision(priority_order=order)

    def observe(self, event: Event) -> None:
        """Nothing to learn: predictions are in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._standing


def _rank(table: RequestTable) -> Floats:
    """Predicted tokens."""
    return np.nan_to_num(table.predicted_mean_tokens, nan=_LAST)


def _promoted(table: RequestTable) -> Floats:
    """Before all that are not promoted, by rank."""
    return _rank(table) - 2.0 * _LAST
