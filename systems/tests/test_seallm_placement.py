"""SeaLLM's placement and replacement: small cases by hand."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.least_loaded import LeastLoaded
from harness.engines.recorder import Recorder
from harness.interface.decisions import Deployment
from harness.interface.entities import Service, ServiceId
from harness.interface.views import ClusterView
from harness.planning.forecast import ForecastGroup, Window
from harness.planning.group_search import GroupSearch, PlacementEstimate, WindowForecast
from harness.tests.support.fakes import a_request
from harness.tests.support.histories import window_of_requests
from harness.tests.support.serving import LinearCosts, cluster, rule, serve, workload
from harness.workloads.workload import Workload
from systems.seallm.placement import (
    AdaptivePlacement,
    SharedPlacement,
    next_interval_s,
    performance,
    unserved_index,
)

A, B, C = (ServiceId(name) for name in "abc")
SERVICES = {name: Service(name, 100, 4096) for name in (A, B, C)}
REQUESTS = np.array([10, 6, 3])
ROOMY = LinearCosts(blocks=1000)
SLOW = LinearCosts(blocks=1000, base_s=0.05)


def _estimate(late: Sequence[int], latency: Sequence[float]) -> PlacementEstimate:
    none = np.zeros(len(late), np.int64)
    return PlacementEstimate(
        placement=(), groups=none, requests=none, late=np.array(late), latency=np.array(latency)
    )


def test_the_unserved_index_by_hand() -> None:
    """7 late and latencies of 150, the same and 90, and 5 requests of a service without a group."""
    index = unserved_index(_estimate([7, 7, 5], [150.0, 90.0, 0.0]), 1e-4)
    np.testing.assert_allclose(index, [7.015, 7.009, 5.0])


class _Told:
    """A forecast in which `a` keeps some requests late in one group, and the others none."""

    services = A, B, C
    requests, rate_per_s = REQUESTS, REQUESTS / 1.0

    def __init__(self, late_of_a: int) -> None:
        self.late_of_a = late_of_a

    def of(self, placement: Sequence[ForecastGroup]) -> PlacementEstimate:
        """Late are all requests of services without a group."""
        groups = np.array([sum(s in g.services for g in placement) for s in self.services])
        late = np.where(groups > 0, 0, REQUESTS)
        late[0] = {0: 10, 1: self.late_of_a}.get(int(groups[0]), 0)
        return PlacementEstimate(
            placement=tuple(group for group in placement if group.services),
            groups=groups,
            requests=REQUESTS,
            late=late,
            latency=np.where(groups > 0, [120.0, 150.0, 90.0], 0.0),
        )


def _search(*, unplaced_first: bool = True, costs: LinearCosts = ROOMY) -> GroupSearch:
    return GroupSearch(
        scheduling=Fcfs(rule=rule()),
        costs=costs,
        services_per_group=2,
        slo_scale=5.0,
        unplaced_first=unplaced_first,
    )


def _best(search: GroupSearch, forecast: WindowForecast, *, gpus: int = 2) -> PlacementEstimate:
    return search.best(
        forecast,
        SERVICES,
        cluster(gpus),
        need=lambda estimate: unserved_index(estimate, 1e-4),
        score=performance,
    )


def _placed(late_of_a: int, *, unplaced_first: bool) -> list[str]:
    """The services of each group on two GPUs."""
    search = _search(unplaced_first=unplaced_first)
    found = _best(search, cast(WindowForecast, _Told(late_of_a)))
    assert [group.tensor_parallel for group in found.placement] == [1, 1]
    return ["".join(sorted(group.services)) for group in found.placement]


@pytest.mark.parametrize("unplaced_first", [True, False])
def test_algorithm_1_by_hand(unplaced_first: bool) -> None:
    """Two GPUs; a, b and c ask 10, 6 and 3 times; one group of two GPUs would leave out a service.

    a goes to the first group and keeps 2 late, b and c to the second, which has the lower rate.
    Of these b has the greater latency and gets the room beside a.
    """
    assert _placed(2, unplaced_first=unplaced_first) == ["ab", "bc"]


def test_algorithm_1_as_printed_gives_a_second_group_before_a_service_has_one() -> None:
    """a keeps 7 late, more than b and c have requests, and takes the second group, too."""
    assert _placed(7, unplaced_first=False) == ["ab", "ac"]
    assert _placed(7, unplaced_first=True) == ["ab", "bc"]


def test_the_interval_by_hand() -> None:
    """.90 against .95 is near enough, .80 is not; equality and two zeros count as near."""
    longer_s = next_interval_s(120.0, 0.90, 0.95, 0.1)
    assert longer_s == pytest.approx(132.0)
    assert next_interval_s(longer_s, 0.80, 0.95, 0.1) == pytest.approx(118.8)
    assert next_interval_s(100.0, 0.75, 0.5, 0.5) == next_interval_s(100.0, 0.0, 0.0, 0.5) == 150.0
    assert next_interval_s(100.0, 0.2, 0.0, 0.5) == 50.0


def test_a_history_without_requests_is_refused() -> None:
    window = window_of_requests([], [], [A, B, C])
    with pytest.raises(ValueError, match="3 services is forecast from 0 requests"):
        _search().forecast(window)


def test_services_that_fit_nowhere_are_refused() -> None:
    """KV for 4096 tokens of each is 256 blocks; 300 blocks hold one service, and two GPUs two."""
    window = window_of_requests([a_request(0, service=A)], [5], [A, B, C])
    for blocks, said in ((300, "3 services do not fit 2 GPUs"), (200, "a does not fit 2 GPUs")):
        search = _search(costs=LinearCosts(blocks=blocks))
        with pytest.raises(ValueError, match=said):
            _best(search, search.forecast(window))


def test_a_service_without_requests_gets_one_group() -> None:
    """a alone is asked for and shares every group; b and c have one each."""
    window = window_of_requests([a_request(at, service=A) for at in range(9)], [5] * 9, [A, B, C])
    search = _search()
    placement = _best(search, search.forecast(window), gpus=4).placement
    served = [sum(name in group.services for group in placement) for name in (A, B, C)]
    assert served == [len(placement), 1, 1]


class _Watched(AdaptivePlacement):
    """Notes how many groups each service has, and when that was placed."""

    def __init__(self, history: Window) -> None:
        super().__init__(
            search=_search(costs=SLOW),
            alpha=1e-4,
            history=history,
            costs=SLOW,
            interval_s=10.0,
            beta=0.1,
            counts_loading=True,
        )
        self.noted: list[tuple[float, Counter[ServiceId]]] = []

    def place(self, view: ClusterView) -> Deployment:
        """What the placement says."""
        deployment = super().place(view)
        names = (name for group in deployment.groups for name in group.services)
        self.noted.append((view.now_s, Counter(names)))
        return deployment


def _serve(load: Workload, placement: SharedPlacement) -> Recorder:
    dispatch = LeastLoaded(counts="requests")
    return serve(load, placement=placement, costs=SLOW, gpus=4, dispatch=dispatch)


def _moving_load() -> Workload:
    """Requests for m0 alone up to 20 s, then for m1 alone, 20 a second; m2 is never asked for."""
    arrival_s = [0.05 * at for at in range(1200)]
    load = workload([40] * 1200, [60] * 1200, arrival_s, services=3)
    return replace(load, service=np.array([int(at >= 400) for at in range(1200)]))


def _history(load: Workload) -> Window:
    """Its first 20 s."""
    names = [service.id for service in load.services]
    return window_of_requests([load.facts(at) for at in range(400)], [60] * 400, names)


def test_replacement_follows_the_requests() -> None:
    """m0 has all four groups at first, and m1 in the end, when it alone is asked for."""
    load = _moving_load()
    once, again = _Watched(_history(load)), _Watched(_history(load))
    ran = _serve(load, once)
    assert not ran.requests["finished_s"].isna().any()
    names = [service.id for service in load.services]
    assert once.noted[0] == (0.0, Counter({names[0]: 4, names[1]: 1, names[2]: 1}))
    assert once.noted[-1][1] == Counter({names[1]: 4, names[0]: 1, names[2]: 1})
    _serve(load, again)
    assert once.noted == again.noted
