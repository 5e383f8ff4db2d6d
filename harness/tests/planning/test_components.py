"""A placement forecast component by component is the placement forecast as a whole."""

import numpy as np

from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.entities import ServiceId
from harness.interface.load_order import LoadOrder
from harness.planning.components import ComponentForecaster, components
from harness.planning.forecast import ForecastGroup, GroupForecaster, Window
from harness.runs.building import window_of
from harness.tests.support.serving import UnevenCosts, rule, workload
from harness.tools.benchmarks.moving_policies import doubling_budget_s

NAMES = [ServiceId(f"m{at}") for at in range(5)]


def _group(*services: int, gpus: int = 1) -> ForecastGroup:
    names = frozenset(NAMES[at] for at in services)
    return ForecastGroup(services=names, tensor_parallel=gpus)


def _window(requests: int) -> Window:
    rng = np.random.default_rng(3)
    arrivals_s = np.cumsum(rng.exponential(0.05, requests)).tolist()
    prompts, outputs = (rng.integers(1, 60, requests).tolist() for _ in range(2))
    return window_of(workload(prompts, outputs, arrivals_s, services=5))


def test_groups_that_share_services_directly_or_through_others_are_one_component() -> None:
    chain = _group(0, 1), _group(3), _group(2, 4), _group(1, 2), _group()
    assert list(components(chain)) == [(chain[0], chain[2], chain[3]), (chain[1],)]


def test_components_are_forecast_once_and_as_in_the_whole() -> None:
    """The second placement differs in a group of m3 alone, the third is the first again."""
    window = _window(300)
    forecaster = GroupForecaster(
        costs=UnevenCosts(blocks=40),
        order=PriorityOrder(doubling_budget_s, rule(), Displaced.PAUSE),
        max_num_batched_tokens=256,
    )
    parts = ComponentForecaster(
        forecaster=forecaster, window=window, dispatch=LoadOrder(), until_s=15.0
    )
    rest = [_group(0, 1), _group(2, 1), _group(0, gpus=2)]
    counts = []
    for more in ([_group(3)], [_group(3, gpus=2)], [_group(3)]):
        before = parts.simulated
        found = parts.finished_s([*rest, _group(), *more])
        counts.append(parts.simulated - before)
        whole = forecaster.forecast_placement([*rest, *more], window, LoadOrder(), until_s=15.0)
        np.testing.assert_allclose(found, whole, rtol=1e-12)
        # Nothing serves m4, and not all is answered in time.
        assert np.isnan(found[window.table.service == 4]).all()
    assert counts == [240, 60, 0]
