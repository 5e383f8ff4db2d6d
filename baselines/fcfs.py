"""FCFS: first come, first served, as plain vLLM schedules.

Paper      Kwon et al., Efficient Memory Management for Large Language Model Serving with
           PagedAttention, SOSP 2023, arXiv 2309.06180; sections below are its sections.
Idea       Requests run in the order of their arrival. KV is allocated block by block on demand;
           when it runs out, the latest request is preempted and later recomputed.
Map        4.5 first-come-first-serve     -> no key: a priority order by arrival
           4.5 preempt the latest         -> preemption from behind, part of a priority order
           4.5 recomputation              -> PreemptionMode.RECOMPUTE
Constants  none of its own; the batch rule (slots, token budget, watermark) comes from the
           scenario: scenarios/policy/vllm_0_3.yaml and vllm.yaml, each with its source
Differs    no swapping, which vLLM used for sequence groups only
Checked    baselines/tests/test_fcfs.py::test_order_and_preemption_by_hand
"""

from typing import ClassVar

from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder, StaticBatching
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView


class Fcfs:
    """Scheduling policy: a priority order by arrival."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching | StaticBatching) -> None:
        """Fill batches by `rule`."""
        self._decision = Decision(priority_order=PriorityOrder(None, rule))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision
