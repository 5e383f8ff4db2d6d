"""Seconds of whole commands: a start, all that is compiled from an empty cache, sweeps of cells."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from baselines.least_loaded import ORDERS, LeastLoaded
from baselines.round_robin import RoundRobin
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.core.checks import IllegalDecision
from harness.engines.simulator.warm_up import warm_up
from harness.interface.policies import DispatchPolicy
from harness.tools.benchmarks.applications import applications
from harness.tools.benchmarks.planning import measure_forecasts
from harness.tools.benchmarks.reference_load import seconds_of, serve_s, vllm_policy, w1
from harness.tools.benchmarks.shared_groups import GROUPS, SERVICES, shared_s
from harness.tools.benchmarks.speed import kinds

STARTS, SWEEPS = 3, 2
FEW, MANY = 20, 500
"""Cells of a sweep, each of one request, so that composing, handing over and writing them is nearly
all of its time. What a command and its workers take to start is taken off, by the sweep of few.
"""
SMALL = ["harness/run.py", "tracking=none", "workers=1", "workload.requests=100"]
_ALL = "from harness.tools.benchmarks.commands import serve_everything; serve_everything()"


def measure_start() -> dict[str, float]:
    """Best of several starts of `python harness/run.py` with compiled code already on disk.

    To the first simulated event, and of one whole small run.
    """
    first_s, whole_s = [], []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            started_s = time.time()
            _run([*SMALL, word("results", folder)])
            whole_s.append(time.time() - started_s)
            (path,) = Path(folder).glob("*/*/provenance.json")
            engine_started = datetime.fromisoformat(json.loads(path.read_text())["started"])
            first_s.append(engine_started.timestamp() - started_s)
    return {"cold_start_s": min(first_s), "small_run_s": min(whole_s)}


def measure_compilation() -> dict[str, float]:
    """One run each in a process of its own, from its start to its end, with an empty home."""
    with tempfile.TemporaryDirectory() as results:
        first_s = seconds_from_empty_cache([*SMALL, word("results", results)])
    return {
        "first_run_from_empty_cache_s": first_s,
        "compile_all_s": seconds_from_empty_cache(["-c", _ALL]),
    }


def serve_everything() -> None:
    """A small run of every kind of policy, dispatch and workload, and of forecasts."""
    warm_up()
    for members in kinds().values():
        for policy in members.values():
            serve_s(policy, w1(50, 1), 1)
    by_load = (LeastLoaded(counts=counts) for counts in ORDERS)
    dispatches: tuple[DispatchPolicy, ...] = (RoundRobin(), *by_load)
    for dispatch in dispatches:
        for load in (w1(64, 8, 4), applications(8)):
            serve_s(vllm_policy(), load, 8, dispatch=dispatch)
    measure_forecasts()
    with suppress(IllegalDecision):  # an engine that has no orders of several services
        shared_s(w1(GROUPS, GROUPS, SERVICES))


def seconds_from_empty_cache(words: Sequence[str]) -> float:
    """Wall-clock seconds of Python with these arguments, where nothing is compiled yet."""
    with tempfile.TemporaryDirectory() as home:
        names = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
        return seconds_of(lambda: _run(words, **dict.fromkeys(names, home)))


def measure_sweeps() -> dict[str, float]:
    """Cells a second: best of several sweeps over seeds, less a sweep over few of them."""
    figures = {}
    for workers in (1, 2):
        few_s, many_s = (
            min(_sweep_s(cells, workers) for _ in range(SWEEPS)) for cells in (FEW, MANY)
        )
        figures[f"sweep_cells_per_s_workers_{workers}"] = (MANY - FEW) / (many_s - few_s)
    return figures


def _sweep_s(cells: int, workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        words = ["harness/run.py", "workload.requests=1", "tracking=none", f"workers={workers}"]
        words += [f"+matrix.seed={[*range(cells)]}", word("results", folder)]
        return seconds_of(lambda: _run(words))


def _run(words: Sequence[str], **environment: str) -> None:
    command, env = [sys.executable, *words], {**os.environ, **environment}
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=env)
