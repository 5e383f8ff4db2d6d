"""Search for groups that services share: equal groups, filled one service at a time.

Every power of two of GPUs is tried as the size of all groups (`partition`). Services are added to
the groups one by one; before each, a forecast of the requests of a window says which service needs
another group most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from harness.costs.model import TableCosts
from harness.interface.decisions import ContinuousBatching, PriorityOrder
from harness.interface.entities import Cluster, Service, ServiceId
from harness.interface.load_order import LoadOrder
from harness.interface.policies import SchedulingPolicy
from harness.interface.tables import Bools, Floats, Ints
from harness.interface.views import GroupView
from harness.planning.components import ComponentForecaster, Placement
from harness.planning.forecast import ForecastGroup, GroupForecaster, Window
from harness.planning.gpu_assignment import islands_of
from harness.planning.partition import GroupMemory, partition, powers_of_two
from harness.planning.serial_forecast import SerialForecaster
from harness.planning.solo import solo_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementEstimate:
    """What a placement would make of the requests of a window; a row per service of it.

    `late` counts the requests that exceed their limit or are not answered. `latency` adds up the
    seconds from arrival to answer, over the mean seconds that the service's requests take alone;
    a request without an answer counts to the end of the forecast, and one of a service without
    a group not at all.
    """

    placement: Placement
    groups: Ints
    requests: Ints
    late: Ints
    latency: Floats

    @property
    def attainment(self) -> float:
        """Share of the requests that keep their limits."""
        return 1.0 - float(self.late.sum()) / float(self.requests.sum())

    @property
    def normalized(self) -> float:
        """Mean latency, over that of requests alone, where services have a group."""
        return float(self.latency.sum()) / max(1, int(self.requests[self.groups > 0].sum()))


class GroupSearch:
    """Finds placements in which at most `services_per_group` services share a group.

    Forecasts follow the order of `scheduling`, and a request goes to the group of its service that
    has the fewest requests. Without `scheduling` they are those of `SerialForecaster`: one request
    at a time, without late ones. A request is late after `slo_scale` times the seconds that it
    takes alone; forecasts end when the last request, unanswered, is late. With `unplaced_first`,
    each group prefers services that have none yet.
    """

    def __init__(
        self,
        *,
        scheduling: SchedulingPolicy | None,
        costs: TableCosts,
        services_per_group: int,
        slo_scale: float,
        unplaced_first: bool,
    ) -> None:
        """Raises ValueError for a scheduling policy that has not one order for all groups."""
        if services_per_group < 1:
            raise ValueError(f"services_per_group is {services_per_group}, it must be at least 1")
        if not slo_scale > 0.0:
            raise ValueError(f"slo_scale is {slo_scale}, it must be above 0")
        self._forecaster: GroupForecaster | None = None
        if scheduling is not None:
            order, tokens = _order_of(scheduling)
            self._forecaster = GroupForecaster(
                costs=costs, order=order, max_num_batched_tokens=tokens
            )
        self._costs = costs
        self._services_per_group, self._slo_scale = services_per_group, slo_scale
        self._unplaced_first = unplaced_first

    def best(
        self,
        forecast: "WindowForecast",
        services: Mapping[ServiceId, Service],
        cluster: Cluster,
        *,
        need: Callable[[PlacementEstimate], Floats],
        score: Callable[[PlacementEstimate], tuple[float, ...]],
    ) -> PlacementEstimate:
        """The placement of the highest score; of equal ones that of the smallest groups.

        `need` says how much each service needs another group. ValueError where every placement
        leaves a service without a group.
        """
        if set(services) != set(forecast.services):
            raise ValueError(
                f"a history of {len(forecast.services)} services for a run of {len(services)}: "
                + ", ".join(sorted(set(services).symmetric_difference(forecast.services)))
            )
        memory = GroupMemory(self._costs, services, self._services_per_group)
        found: PlacementEstimate | None = None
        islands = [len(island) for island in islands_of(cluster)]
        for size in powers_of_two(max(islands)):
            sizes = partition(islands, size, memory)
            if sizes is None:
                continue
            tried = _Filling(forecast, memory, sizes, need, self._unplaced_first).filled()
            if tried.groups.all() and (found is None or score(tried) > score(found)):
                found = tried
        if found is None:
            raise ValueError(
                f"{len(services)} services do not fit {len(cluster.gpus)} GPUs, at most"
                f" {self._services_per_group} in a group"
            )
        return found

    def forecast(self, window: Window) -> "WindowForecast":
        """What placements would make of a window. ValueError where it has no requests."""
        if not len(window):
            raise ValueError(
                f"a placement of {len(window.table.services)} services is forecast from 0 requests,"
                " it needs at least 1"
            )
        table = window.table
        alone_s = solo_seconds(
            self._costs, table.services, table.service, table.prompt_tokens, window.output_tokens
        )
        limit_s = self._slo_scale * alone_s
        until_s = float((table.arrival_s + limit_s).max())
        return WindowForecast(self._of_placements(window, limit_s, until_s), limit_s, alone_s)

    def _of_placements(
        self, window: Window, limit_s: Floats, until_s: float
    ) -> "PlacementForecaster":
        if self._forecaster is None:
            return SerialForecaster(
                costs=self._costs, window=window, limit_s=limit_s, until_s=until_s
            )
        return ComponentForecaster(
            forecaster=self._forecaster, window=window, dispatch=LoadOrder(), until_s=until_s
        )


class PlacementForecaster(Protocol):
    """Forecasts of placements of a window, up to `until_s`."""

    window: Window
    until_s: float

    def finished_s(self, placement: Sequence[ForecastGroup]) -> Floats:
        """When each request of the window is answered; NaN where it is not."""


class WindowForecast:
    """What placements would make of a window, whose requests take `alone_s` seconds alone."""

    def __init__(self, forecaster: PlacementForecaster, limit_s: Floats, alone_s: Floats) -> None:
        self._forecaster, self.limit_s = forecaster, limit_s
        table = forecaster.window.table
        self.services = table.services
        self._service = table.service
        self.requests = self._sums(np.ones(len(table.id))).astype(np.int64)
        self._mean_s = self._sums(alone_s) / np.maximum(1, self.requests)
        span_s = float(table.arrival_s[-1] - table.arrival_s[0])
        self.rate_per_s = self.requests / max(span_s, 1e-9)

    def of(self, placement: Sequence[ForecastGroup]) -> PlacementEstimate:
        """What a placement would make of them."""
        forecaster, table = self._forecaster, self._forecaster.window.table
        finished_s = forecaster.finished_s(placement)
        latency_s = np.where(np.isnan(finished_s), forecaster.until_s, finished_s) - table.arrival_s
        late = np.isnan(finished_s) | (latency_s > self.limit_s)
        groups = np.array([sum(s in g.services for g in placement) for s in self.services])
        latency = self._sums(latency_s / self._mean_s[self._service])
        return PlacementEstimate(
            placement=tuple(group for group in placement if group.services),
            groups=groups,
            requests=self.requests,
            late=self._sums(late).astype(np.int64),
            latency=np.where(groups > 0, latency, 0.0),
        )

    def _sums(self, values: Floats | Bools) -> Floats:
        totals = np.bincount(self._service, values, minlength=len(self.services))
        return totals.astype(np.float64)


@dataclass(slots=True)
class _Filling:
    """Adds services to groups of these sizes until no group can take another."""

    forecast: WindowForecast
    memory: GroupMemory
    sizes: Sequence[int]
    need: Callable[[PlacementEstimate], Floats]
    unplaced_first: bool
    groups: list[frozenset[ServiceId]] = field(default_factory=list)

    def filled(self) -> PlacementEstimate:
        """What the groups are filled with, and what becomes of it."""
        self.groups = [frozenset()] * len(self.sizes)
        while True:
            estimate = self.forecast.of(
                [
                    ForecastGroup(services=names, tensor_parallel=size)
                    for names, size in zip(self.groups, self.sizes, strict=True)
                ]
            )
            found = self._next(estimate)
            if found is None:
                return estimate
            at, service = found
            self.groups[at] |= {service}

    def _next(self, estimate: PlacementEstimate) -> tuple[int, ServiceId] | None:
        """The group of the lowest rate that can take a service, and the one that needs it most.

        Of groups of equal rates come first those of fewest services, then the smallest.
        """
        wanting = self._wanting(estimate)
        places = [
            (self._rate_per_s(at, estimate), len(self.groups[at]), size, at)
            for at, size in enumerate(self.sizes)
        ]
        for *_, at in sorted(places):
            for service in wanting:
                here = self.groups[at]
                if service not in here and self.memory.holds(here | {service}, self.sizes[at]):
                    return at, service
        return None

    def _wanting(self, estimate: PlacementEstimate) -> list[ServiceId]:
        """Services in the order in which they get a group.

        First those without a group: without requests, then by GPUs needed, most first. Then all
        with requests by need; a service without requests gets one group only.
        """
        need, services, most = self.need(estimate), self.forecast.services, max(self.sizes)
        asked, placed = self.forecast.requests > 0, estimate.groups > 0

        def rank(at: int) -> tuple[bool, bool, int, float, int]:
            first = self.unplaced_first and not placed[at]
            least = self.memory.least_size(services[at], most) if first else 0
            return not first, bool(asked[at]), -least, -float(need[at]), at

        wanting = np.flatnonzero(asked | ~placed).tolist()
        return [services[at] for at in sorted(wanting, key=rank)]

    def _rate_per_s(self, at: int, estimate: PlacementEstimate) -> float:
        """Requests a second of a group, if those of a service are spread over its groups."""
        rates = self.forecast.rate_per_s / np.maximum(1, estimate.groups)
        return sum(
            float(rate)
            for service, rate in zip(self.forecast.services, rates, strict=True)
            if service in self.groups[at]
        )


class _NoGroup:
    """Stands for the view of a group in a forecast, which a policy may not read."""

    def __init__(self, policy: str) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> object:
        raise ValueError(
            f"{self._policy} looks at view.{name} to order requests, and a placement is forecast"
            " with one order for all groups"
        )


def _order_of(scheduling: SchedulingPolicy) -> tuple[PriorityOrder, int]:
    """The order that a policy has for every group, and the most tokens of its batches."""
    name = type(scheduling).__name__
    order = scheduling.schedule(cast(GroupView, _NoGroup(name))).priority_order
    if order is None or not isinstance(order.rule, ContinuousBatching):
        raise ValueError(f"{name} has no priority order of continuous batches, which is forecast")
    return order, order.rule.max_num_batched_tokens
