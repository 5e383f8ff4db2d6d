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

from harness.interface.entities import GroupId, ServiceId
from harness.interface.views import ClusterView


class RoundRobin:
    """Dispatch policy. Each service remembers whose turn it is."""

    reads_load: ClassVar[bool] = False

    def __init__(self) -> None:
        """Nobody has had a turn."""
        self._dealt: dict[ServiceId, int] = {}

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId]:
        """Groups in turn, in the order of the deployment."""
        homes = [group.id for group in view.deployment.groups if service in group.services]
        first = self._dealt.get(service, 0)
        self._dealt[service] = first + len(requests)
        return [homes[(first + i) % len(homes)] for i in range(len(requests))]
