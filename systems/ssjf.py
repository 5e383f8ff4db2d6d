"""SSJF: speculative shortest job first, by the output length that a proxy model predicts.

Paper      Qiu et al., Efficient Interactive LLM Serving with Proxy Model-based Sequence Length
           Prediction, AIOps 2024, arXiv 2404.08509; sections below are its sections.
Idea       A small model predicts how long each answer will be; whoever is predicted to be shortest
           is admitted first. Requests that run are not preempted.
Map        3.2 speculative shortest-job-first -> the key, predicted output tokens
           3.2 continuous batching            -> the batch rule
Constants  none of its own; the batch rule comes from the scenario
Differs    a request whose prediction is not ready yet waits behind those whose prediction is
Checked    systems/tests/test_ssjf.py::test_shortest_prediction_first_by_hand
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.decisions import BatchRule, Decision, Standing
from harness.events import Event
from harness.policies import Capability
from harness.views import GroupView, RequestTable


class Ssjf:
    """Scheduling policy: a standing order by predicted length."""

    needs: ClassVar[frozenset[Capability]] = frozenset()
    hears: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: BatchRule) -> None:
        """Fill batches by `rule`."""
        self._decision = Decision(standing=Standing(_predicted, rule))

    def observe(self, event: Event) -> None:
        """Nothing to learn: predictions are in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same standing order for every group."""
        return self._decision


def _predicted(table: RequestTable) -> NDArray[np.float64]:
    return np.nan_to_num(table.predicted_mean_tokens, nan=np.inf, posinf=np.inf)
