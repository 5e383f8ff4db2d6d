"""AlpaServe's placement: what it goes by, and a small run."""

import numpy as np
import pytest

from baselines.alpaserve import AlpaServe, attainment, late_requests
from baselines.fcfs import Fcfs
from baselines.least_loaded import LeastLoaded
from harness.planning.forecast import Window
from harness.planning.group_search import Estimate, GroupSearch
from harness.tests.support.histories import window_of_requests
from harness.tests.support.serving import LinearCosts, rule, serve, workload

COSTS = LinearCosts(blocks=1000)


def _window(services: int) -> Window:
    load = workload([40] * 30, [20] * 30, [0.1 * at for at in range(30)], services=services)
    names = [service.id for service in load.services]
    return window_of_requests([load.facts(at) for at in range(30)], [20] * 30, names)


def _placement(services: int) -> AlpaServe:
    """One that knows a history of so many services."""
    search = GroupSearch(
        scheduling=Fcfs(rule=rule()),
        costs=COSTS,
        services_per_group=2,
        slo_scale=5.0,
        unplaced_first=True,
    )
    return AlpaServe(search=search, history=_window(services), costs=COSTS)


def test_latency_does_not_count() -> None:
    """Of two plans with as many late requests, none is better and no service needs more."""
    one = np.array([1, 0])
    slow, fast = (
        Estimate(placement=(), groups=one, requests=one * 4, late=one, latency=one * seconds)
        for seconds in (9.0, 2.0)
    )
    assert attainment(slow) == attainment(fast) == (0.75,)
    np.testing.assert_array_equal(late_requests(slow), late_requests(fast))


def test_three_services_share_two_gpus() -> None:
    load = workload([40] * 12, [20] * 12, services=3)
    dispatch = LeastLoaded(counts="requests")
    ran = serve(load, placement=_placement(3), costs=COSTS, dispatch=dispatch)
    assert not ran.requests["finished_s"].isna().any()


def test_a_history_of_other_services_is_refused() -> None:
    with pytest.raises(ValueError, match="a history of 2 services for a run of 3: m2"):
        serve(workload([5] * 3, [5] * 3, services=3), placement=_placement(2), costs=COSTS)
