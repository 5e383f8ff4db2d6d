"""Seconds from an empty compile cache to the end of a small run, and to all compiled code."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from harness.paths import ROOT

_ALL = """
from harness.benchmarks.reference_load import serve_s, w1
from harness.benchmarks.speed import kinds
from harness.engines.simulator.fast.warm_up import warm_up
warm_up()
for members in kinds().values():
    for policy in members.values():
        serve_s(policy, w1(50, 1), 1)
"""


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
