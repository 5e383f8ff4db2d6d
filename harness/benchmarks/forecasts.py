"""Requests a second that a search over placements simulates: forecasts, one process, warm.

A history of requests of many services, a few of which most ask for: every service is forecast in a
group of one GPU and of two. At 80% load on average, the busiest are overloaded on one GPU. All
services, each asked for as often, are forecast on groups of two of them, by load.
"""

import time

import numpy as np
import yaml

from harness.benchmarks.moving_policies import doubling_budget_s, predicted_tokens
from harness.benchmarks.reference_load import (
    MODEL,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    RATE_PER_S,
    SEED,
    reference_costs,
    w1,
)
from harness.benchmarks.shared_groups import GROUPS, RULE, pairs
from harness.build import build
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.entities import ServiceId
from harness.interface.load_order import LoadOrder
from harness.interface.tables import RequestTable
from harness.paths import ROOT
from harness.planning.forecast import ForecastGroup, GroupForecaster, Window
from harness.runs.building import window_of

REQUESTS, SERVICES, DEGREES = 15_000, 16, (1, 2)
REPEATS = 20


def measure() -> dict[str, float]:
    """The slower of first come first served and shortest first; the best of several repetitions.

    On shared groups, of first come first served and budgets that double.
    """
    rule = build(yaml.safe_load((ROOT / "scenarios" / "policy" / "vllm.yaml").read_text())["rule"])
    windows = history()
    orders = (PriorityOrder(None, rule), PriorityOrder(predicted_tokens, rule))
    seconds = [min(_sweep_s(order, windows) for _ in range(1 + REPEATS)) for order in orders]
    return {
        "forecast_requests_per_s": REQUESTS * len(DEGREES) / max(seconds),
        "forecast_shared_requests_per_s": REQUESTS / max(shared_s().values()),
    }


def history() -> list[Window]:
    """A window for each service, by rank: the n-th is asked for 1/n as often as the first."""
    rng = np.random.default_rng(SEED)
    share = 1 / np.arange(1, SERVICES + 1)
    counts = rng.multinomial(REQUESTS, share / share.sum())
    duration_s = REQUESTS / SERVICES / RATE_PER_S
    return [_window(rng, int(count), duration_s) for count in counts]


def shared_s() -> dict[str, float]:
    """Seconds of a forecast of the groups of `shared_groups`, W1 on each, by order."""
    load, costs = w1(REQUESTS, GROUPS, SERVICES), reference_costs()
    window = window_of(load)
    groups = [
        ForecastGroup(services=group.services) for group in pairs(load.services, GROUPS).groups
    ]
    orders = {
        "fcfs": PriorityOrder(None, RULE),
        "doubling_budget": PriorityOrder(doubling_budget_s, RULE, Displaced.PAUSE),
    }
    found: dict[str, float] = {}
    for name, order in orders.items():
        forecaster = GroupForecaster(costs=costs, order=order, max_num_batched_tokens=65536)
        for _ in range(1 + REPEATS):
            started_s = time.perf_counter()
            forecaster.forecast_placement(groups, window, LoadOrder())
            seconds = time.perf_counter() - started_s
            found[name] = min(found.get(name, seconds), seconds)
    return found


def _window(rng: np.random.Generator, count: int, duration_s: float) -> Window:
    """Requests at any time of the window, with lengths up to twice those of W1, foretold."""
    output_tokens = rng.integers(1, 2 * OUTPUT_TOKENS, count)
    table = RequestTable(
        id=np.arange(count),
        arrival_s=np.sort(rng.uniform(0.0, duration_s, count)),
        prompt_tokens=rng.integers(1, 2 * PROMPT_TOKENS, count),
        generated_tokens=np.zeros(count, np.int64),
        kv_tokens=np.zeros(count, np.int64),
        gpu_s=np.zeros(count),
        max_output_tokens=output_tokens,
        deadline_s=np.full(count, np.nan),
        predicted_mean_tokens=output_tokens.astype(np.float64),
        service=np.zeros(count, np.int64),
        services=(ServiceId(MODEL),),
    )
    return Window(table, output_tokens)


def _sweep_s(order: PriorityOrder, windows: list[Window]) -> float:
    forecaster = GroupForecaster(costs=reference_costs(), order=order, max_num_batched_tokens=65536)
    for degree in DEGREES:
        forecaster.forecast(ServiceId(MODEL), degree, windows[-1])
    started_s = time.perf_counter()
    for degree in DEGREES:
        for window in windows:
            forecaster.forecast(ServiceId(MODEL), degree, window)
    return time.perf_counter() - started_s
