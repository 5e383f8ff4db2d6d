"""SeaLLM's scheduling: the service whose request has the least budget left times mean time runs.

Paper      Zhao et al., SeaLLM: Service-Aware and Latency-Optimized Resource Sharing for Large
           Language Model Inference; sections below are its sections.
Idea       Each request has a budget of GPU seconds: the mean and a standard deviation of what
           requests of its service take alone. What is left of it, times that mean, is its
           priority, lowest first; a budget that is used up doubles. An iteration is of one service
           and one phase. Under a threshold, a service that has waited for too long comes first.
Map        4.2 eq. 7, Algorithm 2: budgets and priorities -> `_key`
           Algorithm 2 lines 12-20: one service, one phase -> `PriorityOrder` in a shared group
           Algorithm 2 line 12: starved services          -> `_starved`
           3 service monitor, profiled execution time      -> `history`, harness.planning.solo
Constants  `starved_after` (the paper has a threshold and does not state it) and `displaces`, which
           holders of KV newcomers may displace (not stated): chosen by us. `rule.prompts_first`:
           as printed (off), the phase is that of the first request; on, prompts of the chosen
           service go first. See scenarios/policy/doubling_budget.yaml
Differs    Profiles come from the history alone, not from what is observed during the run. A
           service without requests there counts as the mean of the others; without a history, all
           take 1 s. A service has waited since a request of it, of those that are here, last ran,
           or since the first of them came; of starved services, priorities decide
Checked    systems/tests/test_seallm_doubling_budget.py::test_budgets_that_double_by_hand
           systems/tests/test_seallm_doubling_budget.py::test_five_requests_by_hand
           systems/tests/test_seallm_doubling_budget.py::test_a_starved_service_comes_first_by_hand
"""

from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Event
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable, attained_s
from harness.interface.views import GroupView
from harness.planning.forecast import Window
from harness.planning.solo import ServiceProfile, TableCosts, service_profiles

_BUDGETS = 12
"""Budgets that a key says ahead; when these are used up, it says as many more."""
_FIRST = 1e9
"""Taken off the keys of starved services: more than any budget times any mean."""


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
        self._rule, self._starved_after = rule, starved_after
        self._displaces = None if displaces is None else Displaced(displaces)
        self._costs, self._history = costs, history
        self._orders: dict[frozenset[ServiceId], PriorityOrder] = {}
        """By services that are starved."""
        self._seen_s = np.zeros(0)
        """GPU seconds of each request, by id, at the last decision about it."""
        self._ran_s: dict[tuple[GroupId, ServiceId], float] = {}

    def observe(self, event: Event) -> None:
        """Nothing to learn: GPU time attained is in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for every group in which the same services are starved."""
        starved, wake_s = frozenset[ServiceId](), None
        if self._starved_after is not None:
            starved, wake_s = self._starved(view, self._starved_after)
        if starved not in self._orders:
            key = partial(self._key, starved)
            self._orders[starved] = PriorityOrder(key, self._rule, self._displaces)
        return Decision(priority_order=self._orders[starved], wake_s=wake_s)

    def _starved(self, view: GroupView, after: float) -> tuple[frozenset[ServiceId], float]:
        """Services that have waited for too long, and when the next one may have."""
        table, now_s = view.table, view.now_s
        missing = int(table.id[-1]) + 1 - len(self._seen_s)
        if missing > 0:
            self._seen_s = np.concatenate([self._seen_s, np.zeros(missing)])
        runs = table.gpu_s > self._seen_s[table.id]
        self._seen_s[table.id] = table.gpu_s
        starved, next_s = set(), np.inf
        for index in np.unique(table.service):
            service, own = table.services[index], table.service == index
            place, threshold_s = (view.group.id, service), after * self._profile(service).mean_s
            if runs[own].any():
                self._ran_s[place] = now_s
            since_s = max(self._ran_s.get(place, 0.0), float(table.arrival_s[own].min()))
            due_s = since_s + threshold_s
            if due_s <= now_s:
                starved.add(service)
                # It runs now, or cannot: the policy is asked after every iteration.
                due_s = now_s + threshold_s
            next_s = min(next_s, due_s)
        return frozenset(starved), float(next_s)

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

    def _key(self, starved: frozenset[ServiceId], table: RequestTable) -> MovingKey:
        """A piece per budget, from the one that a request is using: what is left, times the mean.

        Budgets of 1, 2, 4 ... times the first end at 1, 3, 7 ... times.
        """
        profiles = [self._profile(service) for service in table.services]
        mean_s = np.array([profile.mean_s for profile in profiles])[table.service, None]
        std_s = np.array([profile.std_s for profile in profiles])[table.service, None]
        first_s: Floats = mean_s + std_s
        used_up = np.floor(np.log2(table.gpu_s[:, None] / first_s + 1.0))
        until = attained_s(first_s * (np.exp2(used_up + np.arange(1.0, _BUDGETS + 1.0)) - 1.0))
        before = np.array([_FIRST * (service in starved) for service in table.services])
        value = mean_s * until - before[table.service, None]
        return MovingKey(value, -mean_s * np.ones_like(until), until, Progress.GPU_S)
