"""Round robin: a service's requests go to its groups in turn.

Paper      Fang et al., Improving the End-to-End Efficiency of Offline Inference for Multi-LLM
           Applications Based on Sampling and Simulation, arXiv 2503.16893.
Idea       Data parallelism splits the requests of a model evenly over its replicas.
Map        section 3, data parallelism -> dispatch
Constants  none
Differs    the paper only says that requests are partitioned; its artefact deals them out in turn
Checked    baselines/tests/test_round_robin.py
"""

from collections.abc import Sequence
from typing import ClassVar

from harness.interface.entities import ServiceId
from harness.interface.load_order import TurnOrder
from harness.interface.views import ClusterView


class RoundRobin:
    """Dispatch policy. The engine keeps whose turn it is, by service."""

    reads_load: ClassVar[bool] = False

    def dispatch(self, requests: Sequence[int], service: ServiceId, view: ClusterView) -> TurnOrder:
        """The same for every service."""
        return TurnOrder()
