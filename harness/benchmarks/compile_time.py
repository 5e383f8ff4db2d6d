"""Seconds from an empty compile cache to the end of a small run, and to all compiled code."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress

from baselines.least_loaded import ORDERS, LeastLoaded
from baselines.round_robin import RoundRobin
from harness.benchmarks import forecasts
from harness.benchmarks.applications import applications
from harness.benchmarks.reference_load import serve_s, w1
from harness.benchmarks.shared_groups import GROUPS, SERVICES, shared_s
from harness.benchmarks.speed import kinds, policies
from harness.engines.simulator.warm_up import warm_up
from harness.interface.checks import IllegalDecision
from harness.interface.policies import DispatchPolicy
from harness.paths import ROOT

_ALL = """
from harness.benchmarks.compile_time import serve_everything
serve_everything()
"""


def serve_everything() -> None:
    """A small run of every kind of policy, dispatch and workload, and of forecasts."""
    warm_up()
    for members in kinds().values():
        for policy in members.values():
            serve_s(policy, w1(50, 1), 1)
    by_load = (LeastLoaded(counts=counts) for counts in ORDERS)
    dispatches: tuple[DispatchPolicy, ...] = (RoundRobin(), *by_load)
    for dispatch in dispatches:
        serve_s(policies()["vllm"], w1(64, 8, 4), 8, dispatch=dispatch)
        serve_s(policies()["vllm"], applications(8), 8, dispatch=dispatch)
    forecasts.measure()
    with suppress(IllegalDecision):  # an engine that has no orders of several services
        shared_s(w1(GROUPS, GROUPS, SERVICES))


def measure() -> dict[str, float]:
    """One run each in a process of its own, from its start to its end, with an empty home."""
    with tempfile.TemporaryDirectory() as results:
        words = ["harness/run.py", "tracking=none", "workers=1", "workload.requests=100"]
        first_s = seconds_from_empty_cache([*words, f"results={results}"])
    return {
        "first_run_from_empty_cache_s": first_s,
        "compile_all_s": seconds_from_empty_cache(["-c", _ALL]),
    }


def seconds_from_empty_cache(words: Sequence[str]) -> float:
    """Wall-clock seconds of Python with these arguments, where nothing is compiled yet."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "NUMBA_CACHE_DIR": home}
        started_s = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=ROOT, env=env)
        return time.perf_counter() - started_s
