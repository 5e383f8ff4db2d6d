"""A peer on the same load in the same run: DynoSim, where `make peer` has installed it."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.config.paths import ROOT
from harness.report.pages import PEER, matched_over_peer

PYTHON = ROOT / ".venv-peer" / "bin" / "python"
REQUESTS = 2000
REPEATS = 5
ALONE = ("doubling_budget", "learnt_allocation")
"""Policies with bounds of their own: budgets of GPU seconds, and KV reserved again."""
_ENGINE = (
    '{"block_size":16,"num_gpu_blocks":9000,"max_num_seqs":256,"max_num_batched_tokens":4096,'
    '"enable_prefix_caching":false,"enable_chunked_prefill":true}'
)
_LOAD = (
    f"--input-tokens 512 --output-tokens 128 --request-count {REQUESTS} --request-rate 8 "
    "--arrival-seed 42 --num-workers 1 --replay-mode offline"
).split()


def over_peer(figures: Mapping[str, float]) -> dict[str, float]:
    """Each kind's slowest policy over the peer, and policies with bounds of their own.

    Nothing where the peer is not installed.
    """
    compared = f"(?:slowest|w1(?=_(?:{'|'.join(ALONE)})_requests))_(.*)_requests_per_s"
    found = matched_over_peer(figures, compared)
    return {f"{kind}_over_peer": ratio for kind, ratio in found.items()}


def measure() -> dict[str, float]:
    """W1 requests per second by the peer's own clock; nothing where it is not installed."""
    if not PYTHON.is_file():
        return {}
    best_s = min(_replay_s() for _ in range(REPEATS))
    return {PEER: REQUESTS / best_s}


def _replay_s() -> float:
    """Seconds that the peer reports for the simulation alone, its start not counted."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(PYTHON), "-m", "dynamo.replay", *_LOAD, "--extra-engine-args", _ENGINE]
        subprocess.run([*command, "--report-json", str(report)], check=True, capture_output=True)
        return float(json.loads(report.read_text())["wall_time_ms"]) / 1e3
