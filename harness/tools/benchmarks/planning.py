"""Requests a second that a search over placements simulates, one process, warm; seconds of plans.

A history of requests of many services, a few of which most ask for: every service is forecast in a
group of one GPU and of two. At 80% load on average, the busiest are overloaded on one GPU. All
services, each asked for as often, are forecast on groups of two of them, by load. And seconds to
plan the largest setting of the ensembling scenario, by planner.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from harness.config.build import build
from harness.config.paths import ROOT
from harness.config.yaml_files import read_policy, read_yaml
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.entities import ServiceId
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.planning.estimate import Forecaster
from harness.planning.forecast import ForecastGroup, GroupForecaster, Window
from harness.planning.plans import ready_load
from harness.planning.preview import StagePreview
from harness.runs.building import window_of
from harness.tools.benchmarks.moving_policies import doubling_budget_s, predicted_tokens
from harness.tools.benchmarks.reference_load import (
    MODEL,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    RATE_PER_S,
    SEED,
    reference_costs,
    seconds_of,
    vllm_rule,
    w1,
)
from harness.tools.benchmarks.shared_groups import GROUPS, RULE, pairs
from harness.tools.fidelity.applications import paper_system
from harness.workloads.ecdf import load_lengths, output_lengths

REQUESTS, SERVICES, DEGREES = 15_000, 16, (1, 2)
FORECASTS, PLANS = 20, 3
POLICY, LIMIT_TOKENS, ENSEMBLED, GPUS = "vllm_0_3", 512, 10_000, 8


def measure_forecasts() -> dict[str, float]:
    """The slower of first come first served and shortest first; the best of several repetitions.

    On shared groups, of first come first served and budgets that double.
    """
    rule, windows = vllm_rule(), history()
    orders = (PriorityOrder(None, rule), PriorityOrder(predicted_tokens, rule))
    seconds = [min(_sweep_s(order, windows) for _ in range(1 + FORECASTS)) for order in orders]
    return {
        "forecast_requests_per_s": REQUESTS * len(DEGREES) / max(seconds),
        "forecast_shared_requests_per_s": REQUESTS / shared_s(),
    }


def history() -> list[Window]:
    """A window for each service, by rank: the n-th is asked for 1/n as often as the first."""
    rng = np.random.default_rng(SEED)
    share = 1 / np.arange(1, SERVICES + 1)
    counts = rng.multinomial(REQUESTS, share / share.sum())
    duration_s = REQUESTS / SERVICES / RATE_PER_S
    return [_window(rng, int(count), duration_s) for count in counts]


def shared_s() -> float:
    """Seconds of a forecast of the groups of `shared_groups`, W1 on each, of the slower order."""
    load, costs = w1(REQUESTS, GROUPS, SERVICES), reference_costs()
    window, placed = window_of(load), pairs(load.services, GROUPS)
    groups = [ForecastGroup(services=group.services) for group in placed.groups]
    found = []
    doubling = PriorityOrder(doubling_budget_s, RULE, Displaced.PAUSE)
    for order in (PriorityOrder(None, RULE), doubling):
        forecaster = GroupForecaster(costs=costs, order=order, max_num_batched_tokens=65536)
        forecast = partial(forecaster.forecast_placement, groups, window, LoadOrder())
        found.append(min(seconds_of(forecast) for _ in range(1 + FORECASTS)))
    return max(found)


def _window(rng: np.random.Generator, count: int, duration_s: float) -> Window:
    """Requests at any time of the window, with lengths up to twice those of W1, as their limits."""
    output_tokens = rng.integers(1, 2 * OUTPUT_TOKENS, count)
    load = replace(
        w1(count, 1),
        output_tokens=output_tokens,
        max_output_tokens=output_tokens,
        arrival_s=np.sort(rng.uniform(0.0, duration_s, count)),
        prompt_tokens=rng.integers(1, 2 * PROMPT_TOKENS, count),
    )
    return window_of(load)


def _sweep_s(order: PriorityOrder, windows: list[Window]) -> float:
    forecaster = GroupForecaster(costs=reference_costs(), order=order, max_num_batched_tokens=65536)

    def sweep(windows: list[Window]) -> None:
        for degree in DEGREES:
            services = frozenset({ServiceId(MODEL)})
            group = ForecastGroup(services=services, tensor_parallel=degree)
            for window in windows:
                forecaster.forecast_placement([group], window, TurnOrder())

    sweep(windows[-1:])
    return seconds_of(lambda: sweep(windows))


def measure_planners() -> dict[str, float]:
    """Best of several plans, one core."""
    rule = build(read_policy(ROOT / "scenarios" / "policy" / f"{POLICY}.yaml")["rule"])
    words = {"requests": ENSEMBLED, "max_output_tokens": LIMIT_TOKENS}
    workload = read_yaml(ROOT / "scenarios" / "workload" / "mixinstruct.yaml")
    load = build(workload | words).build(0)
    rng = np.random.default_rng(0)
    loads = {}
    for index, service in enumerate(load.services):
        prompts = load.prompt_tokens[load.service == index]
        sampled = output_lengths(
            load_lengths(service.id),
            prompts,
            max_output_tokens=LIMIT_TOKENS,
            max_context_tokens=service.max_context_tokens,
            rng=rng,
        )
        loads[service.id] = ready_load(prompts, np.zeros_like(prompts), sampled)
    figures = {}
    for path in sorted((ROOT / "scenarios" / "system").glob("*.yaml")):
        system = paper_system(path.stem, POLICY)["system"]
        if "planner" in system["placement"]:
            planner = build(system["placement"]["planner"], path="planner")
            costs = reference_costs().with_parts(tuple(system["planner_parts"]))
            degrees = tuple(system["placement"]["tensor_parallel"])
            about = (Forecaster(costs=costs, rule=rule), loads, GPUS, degrees)
            plans = [partial(planner.plan, StagePreview(*about), GPUS) for _ in range(PLANS)]
            figures[f"plan_{path.stem}_s"] = min(map(seconds_of, plans))
    return figures
