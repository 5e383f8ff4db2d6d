"""Requests simulated per second where groups of many services are chosen among by their load."""

from baselines.least_loaded import ORDERS, LeastLoaded
from harness.benchmarks.reference_load import serve_s, w1
from harness.benchmarks.speed import policies

GROUPS, SERVICES, REQUESTS, REPEATS = 32, 16, 64_000, 3


def measure() -> dict[str, float]:
    """Two groups for each of 16 services, W1 on each group; the slower way to count.

    The best of several repetitions after a warm-up.
    """
    load, policy = w1(REQUESTS, GROUPS, SERVICES), policies()["vllm"]
    name = f"groups{GROUPS}_services{SERVICES}"
    figures = {}
    for counts in ORDERS:
        dispatch = LeastLoaded(counts=counts)
        seconds = [serve_s(policy, load, GROUPS, dispatch=dispatch) for _ in range(1 + REPEATS)]
        figures[f"{name}_by_{counts}_requests_per_s"] = len(load) / min(seconds[1:])
    return figures | {f"{name}_requests_per_s": min(figures.values())}
