"""SeaLLM's placement: which services share which GPUs, found by simulating a history.

Paper      Zhao et al., SeaLLM: Service-Aware and Latency-Optimized Resource Sharing for Large
           Language Model Inference, arXiv 2504.15720; its sections below.
Idea       Split the GPUs into equal groups and fill these service by service: the service with the
           most late requests in a simulation of the history goes to the group with the least to
           do. Of all group sizes, keep the plan with the highest SLO attainment.
Map        A.1 Algorithm 1                    -> harness.planning.group_search
           A.1 GetParallelismConfig           -> powers of two up to the GPUs of an island
           A.1 GenerateGPUGroups, 4.1         -> harness.planning.partition: equal groups, merged
           A.1 CanAllocate                    -> GroupMemory.holds
           A.1 SimulateUI, eq. 6              -> unserved_index
           A.1 lines 21-25                    -> performance
           3, a new service                   -> placed first, in one group
           4.3, eq. 8                         -> AdaptivePlacement, next_interval_s
           5, migration                       -> harness.planning.in_place
Constants  alpha 1e-4, beta 0.1, two services per group, SLO 5 times the seconds alone (all 6.1)
Differs    Services without a group come before all others and a plan that leaves one out is not
           taken (eq. 3; Algorithm 1 as printed, unplaced_first false, leaves services out). Groups
           are merged also where services do not fit by memory. A new service's group may be
           shared, for GPUs are fewer than services.
           Not stated, chosen by us: M of eq. 8 is the SLO attainment of the requests that came in
           the interval and are answered or late by its end; equality, and two attainments of 0,
           lengthen the interval; one without requests leaves it. A request of the interval that is
           not answered counts as long as the mean answer of its service. The plan stays if the new
           one would not have served the interval better; by counts_loading also if its groups, but
           for the ones that are there, had loaded at its beginning
Checked    systems/tests/test_seallm_placement.py::test_algorithm_1_by_hand
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from harness.interface.decisions import Deployment
from harness.interface.entities import Group
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.tables import Floats, Ints, RequestTable
from harness.interface.views import ClusterView
from harness.planning.forecast import Window, observed_window
from harness.planning.group_search import GroupSearch, PlacementEstimate, WindowForecast
from harness.planning.in_place import loading_s, placed_in_place


def unserved_index(estimate: PlacementEstimate, alpha: float) -> Floats:
    """How much each service needs another group (eq. 6): late requests first, then latency."""
    return estimate.late + alpha * estimate.latency


def performance(estimate: PlacementEstimate) -> tuple[float, float]:
    """What plans are compared by (Algorithm 1, lines 21-25): attainment, then low latency."""
    return estimate.attainment, -estimate.normalized


class SharedPlacement:
    """Placement policy: Algorithm 1, once, from the requests of a history."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self, *, search: GroupSearch, alpha: float, history: Window, costs: CostModel
    ) -> None:
        """`alpha` weighs latency beside late requests."""
        self._search, self._alpha, self._history = search, alpha, history
        self._costs, self._load_s = costs, costs.load_s
        self.plan: PlacementEstimate

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same at all times. ValueError where the services do not fit the GPUs."""
        if view.deployment.groups:
            return view.deployment
        self.plan = self._best(self._search.forecast(self._history), view)
        groups = placed_in_place(self.plan.placement, (), view.cluster, self._load_s)
        return Deployment(groups)

    def _best(self, forecast: WindowForecast, view: ClusterView) -> PlacementEstimate:
        """Algorithm 1."""
        return self._search.best(
            forecast,
            view.services,
            view.cluster,
            need=lambda estimate: unserved_index(estimate, self._alpha),
            score=performance,
        )


class AdaptivePlacement(SharedPlacement):
    """Placement policy: Algorithm 1 again and again, at intervals that adapt (4.3).

    At the end of an interval its requests are the history. A new plan is taken if it would have
    served them better than the one that is there.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SHARED_GROUP, Capability.REDEPLOY}
    )

    def __init__(
        self,
        *,
        search: GroupSearch,
        alpha: float,
        history: Window,
        costs: CostModel,
        interval_s: float,
        beta: float,
        counts_loading: bool,
    ) -> None:
        """The first interval lasts `interval_s`; `beta` is by how much the next differs from one.

        With `counts_loading` a new plan must be better although its groups load first. Raises
        ValueError for an interval that is not above 0, and a beta outside (0, 1).
        """
        super().__init__(search=search, alpha=alpha, history=history, costs=costs)
        if not 0.0 < interval_s < float("inf"):
            raise ValueError(f"interval_s is {interval_s}, it must be above 0")
        if not 0.0 < beta < 1.0:
            raise ValueError(f"beta is {beta}, it must be between 0 and 1")
        self.interval_s, self._beta, self._counts_loading = interval_s, beta, counts_loading
        self._begun_s = 0.0

    def place(self, view: ClusterView) -> Deployment:
        """The plan, with the end of the interval as the time to be asked again."""
        if not view.deployment.groups:
            first = super().place(view)
        elif view.now_s < self._begun_s + self.interval_s:
            return view.deployment
        else:
            first = Deployment(self._again(view))
        self._begun_s = view.now_s
        return Deployment(first.groups, wake_s=view.now_s + self.interval_s)

    def _again(self, view: ClusterView) -> tuple[Group, ...]:
        """Groups for the next interval, of which the length is set, too."""
        table, finished_s = view.arrived_after(-np.inf)
        came = (table.arrival_s >= self._begun_s) & (table.arrival_s < view.now_s)
        rows = np.flatnonzero(came)[np.argsort(table.arrival_s[came], kind="stable")]
        current = view.deployment.groups
        if not len(rows):
            return current
        window = observed_window(table.of(rows), self._output_tokens(table, finished_s)[rows])
        forecast = self._search.forecast(window)
        arrival_s = table.arrival_s[rows]
        real = attainment(arrival_s, finished_s[rows], forecast.limit_s, view.now_s)
        if real is not None:
            estimated = self.plan.attainment
            self.interval_s = next_interval_s(self.interval_s, real, estimated, self._beta)
        kept, found = forecast.of(self.plan.placement), self._best(forecast, view)
        groups = placed_in_place(found.placement, current, view.cluster, self._load_s)
        if self._counts_loading:
            seconds = loading_s(groups, current, self._costs)
            loads = zip(found.placement, seconds, strict=True)
            loading = forecast.of([replace(group, ready_s=ready_s) for group, ready_s in loads])
            is_better = performance(loading) > performance(kept)
        else:
            is_better = performance(found) > performance(kept)
        self.plan = found if is_better else kept
        return groups if is_better else current

    def _output_tokens(self, table: RequestTable, finished_s: Floats) -> Ints:
        """Tokens of each answer; while there is none, the mean of the service, or of all."""
        past, is_answered = self._history.table, ~np.isnan(finished_s)
        names = [*past.services, *(name for name in table.services if name not in past.services)]
        counts, tokens = np.zeros(len(names)), np.zeros(len(names))
        own = np.array([names.index(name) for name in table.services])[table.service]
        np.add.at(counts, past.service, 1.0)
        np.add.at(tokens, past.service, self._history.output_tokens)
        np.add.at(counts, own[is_answered], 1.0)
        np.add.at(tokens, own[is_answered], table.generated_tokens[is_answered])
        mean = np.where(counts > 0, tokens / np.maximum(1.0, counts), tokens.sum() / counts.sum())
        guessed = np.rint(mean[own]).clip(1, table.max_output_tokens)
        return np.where(is_answered, table.generated_tokens, guessed).astype(np.int64)


def attainment(
    arrival_s: Floats, finished_s: Floats, limit_s: Floats, now_s: float
) -> float | None:
    """Share of the requests that kept their limits, of all that are answered or late by now."""
    is_answered = ~np.isnan(finished_s)
    is_late = np.where(is_answered, finished_s, now_s) - arrival_s > limit_s
    known = int((is_late | is_answered).sum())
    return 1.0 - int(is_late.sum()) / known if known else None


def next_interval_s(interval_s: float, real: float, estimated: float, beta: float) -> float:
    """Eq. 8: shorter where performance was not as estimated, longer where it was."""
    is_off = abs(real - estimated) > beta * estimated
    return interval_s * (1.0 - beta if is_off else 1.0 + beta)
