"""Hermes: adapters and contexts are loaded before the calls come that read them.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       As evicting and prefetching by the waiting queue, and an application of which a unit
           runs outside any LLM counts as one of the queue from the moment at which its next call
           is likely enough to come while its content is being loaded.
Map        3.4 knob K, eq. 3         -> `Prewarming._starts_after_s`, of the adapter or context
           3.4 KV and LoRA caches    -> `Caching.prewarm`
Constants  K = 0.5 (section 5.1; its program: 0.1, in scenarios as a variation). `ahead_s`: seconds
           that loading is taken to last, of its program: 1 for contexts, 0.3 for adapters.
           `contexts_share`: how much of host memory contexts that are loaded ahead may fill, of its
           program
Differs    applications whose calls are expected come before the queue, the earliest first; its
           program has both in the order of their ranks, and stops wanting an adapter when the call
           is late. The reading of eq. 3 is that of prewarm.py
Checked    systems/tests/test_hermes_caching.py
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from harness.interface.decisions import Prewarm
from harness.interface.entities import AppId, ResourceId
from harness.interface.events import AppArrived, AppFinished, Event, UnitStarted
from harness.interface.views import ClusterView
from harness.planning.application_history import ApplicationHistory
from systems.hermes.prewarm import Prewarming


class Caching(Prewarming):
    """Wants what calls read that have come, or that will soon."""

    subscribes: ClassVar[frozenset[type[Event]]] = Prewarming.subscribes

    def __init__(
        self,
        *,
        effectiveness: float,
        reading: str,
        prompt_token_s: float,
        output_token_s: float,
        fewest_observed: int,
        ahead_s: float,
        contexts_share: float,
        applications: ApplicationHistory | None = None,
    ) -> None:
        """`effectiveness` is K, in (0, 1]; `ahead_s` are seconds of loading. Raises ValueError.

        `contexts_share` is from 0 to 1.
        """
        super().__init__(
            effectiveness=effectiveness,
            reading=reading,
            prompt_token_s=prompt_token_s,
            output_token_s=output_token_s,
            fewest_observed=fewest_observed,
            applications=applications,
        )
        if not ahead_s >= 0:
            raise ValueError(f"prewarm.ahead_s is {ahead_s}, it must be at least 0")
        self._ahead_s = ahead_s
        self._queue = Prewarm(wants_queue=True, contexts_share=contexts_share)
        runs = {} if applications is None else applications.runs
        self._calls = {
            kind: {unit.unit for run in of_kind for unit in run if unit.prompt_tokens}
            for kind, of_kind in runs.items()
        }
        self._contents: dict[AppId, ResourceId] = {}

    def observe(self, event: Event) -> None:
        """Note what an application reads; plan when a unit starts."""
        if isinstance(event, AppArrived) and event.content is not None:
            self._contents[event.app] = event.content
        super().observe(event)
        if isinstance(event, AppFinished):
            self._contents.pop(event.app, None)

    def prewarm(self, view: ClusterView) -> Prewarm:
        """What calls will read that come soon, then the queue; wake for the next of the former."""
        plans = sorted(plan for plans in self._due.values() for plan in plans)
        soon = [name for at_s, name in plans if at_s <= view.now_s]
        later_s = [at_s for at_s, _ in plans if at_s > view.now_s]
        wake_s = min(later_s, default=None)
        return replace(self._queue, wanted=tuple(dict.fromkeys(soon)), wake_s=wake_s)

    def _planned(self, event: UnitStarted) -> Sequence[tuple[float, ResourceId]]:
        """When the content of an application is wanted while a unit outside any LLM runs."""
        kind, content = self._kinds[event.app], self._contents.get(event.app)
        if content is None or not event.is_outside:
            return []
        after = self._after.get(kind, {}).get(event.unit, {})
        share = sum(after[unit] for unit in self._calls.get(kind, set()) & set(after))
        if share < self._effectiveness:
            return []
        starts_s = self._starts_after_s(self._taken_s(kind, event.unit), share, self._ahead_s)
        return [(event.now_s + max(0.0, starts_s), content)]
