"""AlpaServe's placement: what it goes by, its program's simulation by hand, and small runs."""

from collections.abc import Sequence

import numpy as np
import pytest

from baselines.alpaserve import AlpaServe, attainment, late_requests
from baselines.fcfs import Fcfs
from baselines.least_loaded import LeastLoaded
from harness.costs.iteration import IterationTable
from harness.interface.entities import ServiceId
from harness.planning.forecast import ForecastGroup, Window
from harness.planning.group_search import GroupSearch, PlacementEstimate
from harness.planning.serial_forecast import SerialForecaster
from harness.planning.solo import solo_seconds
from harness.runs.building import window_of
from harness.tests.support.histories import window_of_requests
from harness.tests.support.serving import (
    SERVICE,
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    rule,
    serve,
    workload,
)

COSTS = LinearCosts(blocks=1000)
ONE = frozenset({SERVICE})


def _window(services: int) -> Window:
    load = workload([40] * 30, [20] * 30, [0.1 * at for at in range(30)], services=services)
    names = [service.id for service in load.services]
    return window_of_requests([load.facts(at) for at in range(30)], [20] * 30, names)


def _search(
    *, one_at_a_time: bool = False, costs: LinearCosts = COSTS, slo_scale: float = 5.0
) -> GroupSearch:
    return GroupSearch(
        scheduling=None if one_at_a_time else Fcfs(rule=rule()),
        costs=costs,
        services_per_group=2,
        slo_scale=slo_scale,
        unplaced_first=True,
    )


def _placement(services: int, *, one_at_a_time: bool = False) -> AlpaServe:
    """One that knows a history of so many services."""
    search = _search(one_at_a_time=one_at_a_time)
    return AlpaServe(search=search, history=_window(services), costs=COSTS)


class _Halved(FlatCosts):
    """Flat costs that two GPUs halve."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Divided by the degree."""
        return FlatCosts.table(self, service, tensor_parallel).scaled(1.0 / tensor_parallel)


def _of_two_seconds(arrivals_s: Sequence[float]) -> Window:
    """Requests of 7 tokens: half a second for the first, a quarter for each other one."""
    count = len(arrivals_s)
    return window_of(workload([40] * count, [7] * count, list(arrivals_s)))


def _finished_s(window: Window, *groups: ForecastGroup) -> list[float | None]:
    """As the program simulates at an SLO of twice the seconds alone; None: dropped."""
    forecast = SerialForecaster(
        costs=_Halved(), window=window, limit_s=np.full(len(window), 4.0), until_s=99.0
    )
    return [None if np.isnan(end_s) else end_s for end_s in forecast.finished_s(groups)]


def test_latency_does_not_count() -> None:
    """Of two plans with as many late requests, none is better and no service needs more."""
    one = np.array([1, 0])
    slow, fast = (
        PlacementEstimate(
            placement=(), groups=one, requests=one * 4, late=one, latency=one * seconds
        )
        for seconds in (9.0, 2.0)
    )
    assert attainment(slow) == attainment(fast) == (0.75,)
    np.testing.assert_array_equal(late_requests(slow), late_requests(fast))


def test_the_program_drops_what_would_be_late() -> None:
    """The third would end at 6, later than 1 + 4; for the fourth the group is free at 4."""
    window = _of_two_seconds([0.0, 0.5, 1.0, 3.0])
    assert _finished_s(window, ForecastGroup(services=ONE)) == [2.0, 4.0, None, 6.0]


def test_the_program_answers_at_the_limit() -> None:
    """Both end 4 s after they came, which is not late."""
    window = _of_two_seconds([0.0, 0.0, 2.0])
    assert _finished_s(window, ForecastGroup(services=ONE)) == [2.0, 4.0, 6.0]


def test_the_program_takes_the_group_that_is_free_first() -> None:
    """On two GPUs a request takes a second. The groups are free at 0, 0; 2, 0; 2, 1; 2, 2; 4, 2.

    The fifth finds both idle and goes to the second, which has been free for longer.
    """
    groups = ForecastGroup(services=ONE), ForecastGroup(services=ONE, tensor_parallel=2)
    window = _of_two_seconds([0.0, 0.0, 0.5, 0.5, 9.0])
    assert _finished_s(window, *groups) == [2.0, 1.0, 2.0, 4.0, 10.0]


def test_the_program_drops_requests_without_a_group_and_waits_for_one_that_loads() -> None:
    window = _of_two_seconds([0.0, 0.0])
    other = ForecastGroup(services=frozenset({ServiceId("m1")}))
    assert _finished_s(window) == _finished_s(window, other) == [None, None]
    loading = ForecastGroup(services=ONE, ready_s=1.0)
    assert _finished_s(window, loading) == [3.0, None]


def test_the_search_of_the_program_counts_dropped_requests_as_late() -> None:
    search = _search(one_at_a_time=True, costs=FlatCosts(), slo_scale=2.0)
    forecast = search.forecast(_of_two_seconds([0.0, 0.5, 1.0, 3.0]))
    found = forecast.of([ForecastGroup(services=ONE)])
    np.testing.assert_array_equal(late_requests(found), [1.0])
    assert attainment(found) == (0.75,)


def test_seconds_in_a_group_are_those_alone() -> None:
    """Far apart, on the fewest GPUs, requests take what `solo_seconds` says."""
    count = 50
    rng = np.random.default_rng(5)
    prompts, outputs = rng.integers(1, 300, count).tolist(), rng.integers(1, 90, count).tolist()
    window = window_of(workload(prompts, outputs, [1e3 * at for at in range(count)], services=2))
    table, costs = window.table, UnevenCosts()
    forecast = SerialForecaster(
        costs=costs, window=window, limit_s=np.full(count, 1e3), until_s=1e9
    )
    finished_s = forecast.finished_s([ForecastGroup(services=frozenset(table.services))])
    alone_s = solo_seconds(
        costs, table.services, table.service, table.prompt_tokens, window.output_tokens
    )
    np.testing.assert_allclose(finished_s - table.arrival_s, alone_s, rtol=1e-8)


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_three_services_share_two_gpus(one_at_a_time: bool) -> None:
    """No request is dropped while serving, whichever search found the placement."""
    load = workload([40] * 12, [20] * 12, services=3)
    dispatch = LeastLoaded(counts="requests")
    placement = _placement(3, one_at_a_time=one_at_a_time)
    ran = serve(load, placement=placement, costs=COSTS, dispatch=dispatch)
    assert not ran.requests["finished_s"].isna().any()


def test_a_history_of_other_services_is_refused() -> None:
    with pytest.raises(ValueError, match="a history of 2 services for a run of 3: m2"):
        serve(workload([5] * 3, [5] * 3, services=3), placement=_placement(2), costs=COSTS)
