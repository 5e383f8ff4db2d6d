"""Requests simulated per second: W1 under every policy, a million requests, 64 replicas."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from harness.benchmarks.draft_policies import DraftFcfs, DraftSrpt
from harness.benchmarks.reference_load import serve_s, w1
from harness.build import build
from harness.interface.policies import SchedulingPolicy
from harness.paths import ROOT

REPEATS = 5

_MILLION = """
import json, resource
from harness.benchmarks.speed import policies
from harness.benchmarks.reference_load import serve_s, w1
policy = policies()["vllm"]
serve_s(policy, w1(1000, 1), 1)
seconds = serve_s(policy, w1(1_000_000, 1), 1)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, peak]))
"""


def policies() -> dict[str, SchedulingPolicy]:
    """Every scheduling policy of the tree by the name of its file."""
    files = sorted(Path(ROOT / "scenarios" / "policy").glob("*.yaml"))
    return {path.stem: build(yaml.safe_load(path.read_text())) for path in files}


def measure() -> dict[str, float]:
    """Figures of this module; after a warm-up, the best of several repetitions."""
    figures = {}
    in_the_open: dict[str, SchedulingPolicy] = {
        "draft_fcfs": DraftFcfs(),
        "draft_srpt": DraftSrpt(max_num_seqs=28),
    }
    for name, policy in (policies() | in_the_open).items():
        load = w1(2000, 1)
        serve_s(policy, load, 1)
        best_s = min(serve_s(policy, load, 1) for _ in range(REPEATS))
        figures[f"w1_{name}_requests_per_s"] = len(load) / best_s
    figures["w1_fcfs_requests_per_s"] = figures["w1_vllm_requests_per_s"]
    out = subprocess.run(
        [sys.executable, "-c", _MILLION], check=True, capture_output=True, text=True, cwd=ROOT
    )
    seconds, peak_bytes = json.loads(out.stdout)
    figures["w1_1m_requests_per_s"] = 1_000_000 / seconds
    figures["w1_1m_peak_rss_bytes"] = peak_bytes
    for replicas in (8, 64):
        load = w1(2000 * replicas, replicas)
        seconds = min(serve_s(policies()["vllm"], load, replicas) for _ in range(3))
        figures[f"replicas{replicas}_requests_per_s"] = len(load) / seconds
    return figures
