"""Evict and prefetch by the waiting queue: contents that waiting calls read come first.

Paper      Gao et al., Cost-Efficient Large Language Model Serving for Multi-turn Conversations with
           CachedAttention, USENIX ATC 2024, arXiv 2403.19708 (scheduler-aware fetching and
           eviction); as the baseline EPWQ of Hermes, arXiv 2506.14851 section 5.4
Idea       What a call in the queue reads is loaded from disk to host memory while the call waits,
           in the order of the queue. What no call in the queue reads is evicted first, by the time
           of its last use; then what is read by the calls at the end of the queue.
Map        section 3.3.1 scheduler-aware fetching -> `Epwq.prewarm`, first to last
           section 3.3.2 scheduler-aware eviction -> `Epwq.prewarm`: what is not named goes first
Constants  `contexts_share`: how much of host memory contexts that are loaded ahead may fill, of the
           program of Hermes; in the paper all of it
Differs    the context of a call that runs is on the GPU and not wanted any more; in the program of
           Hermes it is. Adapters of calls that run come before those of the queue, as there, but
           its batches have at most half as many adapters as host memory holds
Checked    baselines/tests/test_epwq.py
"""

from typing import ClassVar

from harness.interface.decisions import Prewarm
from harness.interface.events import Event, UnitFinished, UnitStarted
from harness.interface.views import ClusterView


class Epwq:
    """Wants what the calls read that wait."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({UnitStarted, UnitFinished})

    def __init__(self, *, contexts_share: float) -> None:
        """`contexts_share` is from 0 to 1, else ValueError."""
        self._decision = Prewarm(wants_queue=True, contexts_share=contexts_share)

    def observe(self, event: Event) -> None:
        """The queue has changed; the engine knows it."""

    def prewarm(self, view: ClusterView) -> Prewarm:
        """What is read in the order of the queue."""
        return self._decision
