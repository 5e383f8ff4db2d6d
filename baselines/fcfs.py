"""FCFS: first come, first served, as plain vLLM schedules.

Paper      Kwon et al., Efficient Memory Management for Large Language Model Serving with
           PagedAttention, SOSP 2023, arXiv 2309.06180; sections below are its sections.
Idea       Requests run in the order of their arrival. KV is allocated block by block on demand;
           when it runs out, the latest request is preempted and later recomputed or swapped in.
Map        4.5 first-come-first-serve     -> no key: a priority order by arrival
           4.5 preempt the latest         -> preemption from behind, part of a priority order
           4.5 recomputation, swapping    -> `gives_way`
Constants  `gives_way`: recompute or swap; the batch rule (slots, token budget, watermark): both
           of the scenario, scenarios/policy/vllm_0_3.yaml, vllm.yaml and vllm_swap.yaml; of
           services that share a group, shared_fcfs.yaml (SeaLLM-F, and AlpaServe on such a group)
Differs    single requests are swapped, which vLLM before V1 did where told to; beside chunked
           prefill it admitted newcomers while others were swapped out, here none is
Checked    baselines/tests/test_fcfs.py::test_order_and_preemption_by_hand
           baselines/tests/test_fcfs.py::test_the_latest_is_swapped_out_by_hand
"""

from typing import ClassVar

from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView


class Fcfs:
    """Scheduling policy: a priority order by arrival."""

    requires: frozenset[Capability] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self, *, rule: ContinuousBatching | StaticBatching, gives_way: str = "recompute"
    ) -> None:
        """Fill batches by `rule`; `gives_way`: recompute or swap. ValueError for another word."""
        how = PreemptionMode(gives_way)
        if how is PreemptionMode.SWAP:
            self.requires = frozenset({Capability.SWAP})
        self._decision = Decision(priority_order=PriorityOrder(None, rule, gives_way=how))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision
