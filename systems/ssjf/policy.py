"""SSJF: speculative shortest job first, by the output length that a proxy model predicts.

Paper      Qiu et al., Efficient Interactive LLM Serving with Proxy Model-based Sequence Length
           Prediction, AIOps 2024, arXiv 2404.08509; sections below are its sections.
Idea       A small model predicts how long each answer will be; the request with the shortest
           prediction is admitted first. Running requests are not preempted (section 6).
Map        3.2 speculative shortest-job-first -> the key, predicted output tokens
           3.2 no, dynamic, continuous        -> the batch rule
           6 starvation                       -> aging, a guard that the paper leaves to later
Constants  none; the batch rule comes from the scenario
Differs    a request whose prediction is not ready yet waits behind those whose prediction is. With
           aging a second of waiting counts as so many tokens less; its program instead serves the
           longest waiting once it has waited 100 s or ten times its true duration. Under a rule
           that refills, as its program's is, one that has begun goes on only while none with a
           shorter prediction waits: it is preempted, keeps its KV, and is counted so
Checked    systems/tests/test_ssjf.py::test_shortest_prediction_first_by_hand
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder, StaticBatching
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView


class Ssjf:
    """Scheduling policy: a priority order by predicted length."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self, *, rule: ContinuousBatching | StaticBatching, aging_tokens_per_s: float
    ) -> None:
        """Fill batches by `rule`. Waiting lowers a prediction by `aging_tokens_per_s`; 0: never.

        Raises ValueError for negative aging.
        """
        if aging_tokens_per_s < 0:
            raise ValueError(f"aging_tokens_per_s is {aging_tokens_per_s}, it cannot be negative")
        self._aging_tokens_per_s = aging_tokens_per_s
        self._decision = Decision(priority_order=PriorityOrder(self._key, rule))

    def observe(self, event: Event) -> None:
        """Nothing to learn: predictions are in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision

    def _key(self, table: RequestTable) -> NDArray[np.float64]:
        """Predicted tokens, and more the later a request has come.

        All age alike, so that waiting requests are in the order of prediction less age.
        """
        predicted = np.nan_to_num(table.predicted_mean_tokens, nan=np.inf, posinf=np.inf)
        return np.asarray(predicted + self._aging_tokens_per_s * table.arrival_s)
