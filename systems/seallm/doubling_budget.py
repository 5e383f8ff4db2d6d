"""SeaLLM's scheduling: the service whose request has the least budget left times mean time runs.

Paper      Zhao et al., SeaLLM: Service-Aware and Latency-Optimized Resource Sharing for Large
           Language Model Inference; sections below are its sections.
Idea       Each request has a budget of GPU seconds: the mean and a standard deviation of what
           requests of its service take alone. What is left of it, times that mean, is its
           priority, lowest first; a budget that is used up doubles. An iteration is of one service
           and one phase. Under a threshold, a service that has waited for too long comes first.
Map        4.2 eq. 7, Algorithm 2: budgets and priorities -> `_key`
           Algorithm 2 lines 12-20: one service, one phase -> `PriorityOrder` in a shared group
           Algorithm 2 line 12: starved services          -> `PriorityOrder.starves_after_s`
           3 service monitor, profiled execution time      -> `history`, harness.planning.solo
Constants  `starved_after` (the paper has a threshold and does not state it) and `displaces`, which
           holders of KV newcomers may displace (not stated): chosen by us. `rule.prompts_first`:
           as printed (off), the phase is that of the first request; on, prompts of the chosen
           service go first. See scenarios/policy/doubling_budget.yaml
Differs    Profiles come from the history alone, not from what is observed during the run. A
           service without requests there counts as the mean of the others; without a history, all
           take 1 s. A service has waited since it last ran, or since the first of its requests
           that are here came; of starved services, priorities decide
Checked    systems/tests/test_seallm_doubling_budget.py::test_budgets_that_double_by_hand
           systems/tests/test_seallm_doubling_budget.py::test_five_requests_by_hand
           systems/tests/test_seallm_doubling_budget.py::test_a_starved_service_comes_first_by_hand
"""

from functools import cached_property
from math import inf
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import ServiceId
from harness.interface.events import Event
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable, attained_s
from harness.interface.views import GroupView
from harness.planning.forecast import Window
from harness.planning.solo import ServiceProfile, TableCosts, service_profiles

_BUDGETS = 12
"""Budgets that a key says ahead; when these are used up, it says as many more."""


class DoublingBudget:
    """Scheduling policy: Algorithm 2."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        costs: TableCosts,
        rule: ContinuousBatching,
        displaces: str | None,
        starved_after: float | None,
        history: Window | None = None,
    ) -> None:
        """Profile services by `history`; `displaces`: pause, recompute or None.

        A service that has waited for `starved_after` times its mean seconds comes first; None:
        never. ValueError for a threshold that is not positive, and for another word.
        """
        if starved_after is not None and not starved_after > 0:
            raise ValueError(f"policy.starved_after is {starved_after}, it must be above 0")
        if displaces not in (None, "pause", "recompute"):
            raise ValueError(f"policy.displaces is {displaces}, not pause, recompute or null")
        self._costs, self._history = costs, history
        self._starved_after = inf if starved_after is None else starved_after
        order = PriorityOrder(
            self._key,
            rule,
            None if displaces is None else Displaced(displaces),
            starves_after_s=None if starved_after is None else self._starves_after_s,
        )
        self._decision = Decision(priority_order=order)

    def observe(self, event: Event) -> None:
        """Nothing to learn: GPU time attained is in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group."""
        return self._decision

    def _starves_after_s(self, service: ServiceId) -> float:
        return self._starved_after * self._profile(service).mean_s

    @cached_property
    def _profiles(self) -> dict[ServiceId, ServiceProfile]:
        return {} if self._history is None else service_profiles(self._costs, self._history)

    @cached_property
    def _other(self) -> ServiceProfile:
        """Of a service that the history does not have."""
        known = list(self._profiles.values()) or [ServiceProfile(1.0, 0.0)]
        return ServiceProfile(
            float(np.mean([profile.mean_s for profile in known])),
            float(np.mean([profile.std_s for profile in known])),
        )

    def _profile(self, service: ServiceId) -> ServiceProfile:
        return self._profiles.get(service, self._other)

    def _key(self, table: RequestTable) -> MovingKey:
        """A piece per budget, from the one that a request is using: what is left, times the mean.

        Budgets of 1, 2, 4 ... times the first end at 1, 3, 7 ... times.
        """
        profiles = [self._profile(service) for service in table.services]
        mean_s = np.array([profile.mean_s for profile in profiles])[table.service, None]
        std_s = np.array([profile.std_s for profile in profiles])[table.service, None]
        first_s: Floats = mean_s + std_s
        used_up = np.floor(np.log2(table.gpu_s[:, None] / first_s + 1.0))
        until = attained_s(first_s * (np.exp2(used_up + np.arange(1.0, _BUDGETS + 1.0)) - 1.0))
        return MovingKey(mean_s * until, -mean_s * np.ones_like(until), until, Progress.GPU_S)
