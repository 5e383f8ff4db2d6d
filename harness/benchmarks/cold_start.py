"""Seconds from the command to the first simulated event, and of one whole small run."""

import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from harness.paths import ROOT

REPEATS = 3


def measure() -> dict[str, float]:
    """Best of several starts of `python harness/run.py` with compiled code already on disk."""
    first_s, whole_s = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "harness/run.py", "tracking=none", "workers=1"]
            started_s = time.time()
            subprocess.run(
                [*command, f"results={folder}", "workload.requests=100"],
                check=True,
                capture_output=True,
                cwd=ROOT,
            )
            whole_s.append(time.time() - started_s)
            first_s.append(_first_event_s(folder) - started_s)
    return {"cold_start_s": min(first_s), "small_run_s": min(whole_s)}


def _first_event_s(folder: str) -> float:
    """Wall-clock time at which the run's engine started."""
    (path,) = Path(folder).glob("*/*/provenance.json")
    return datetime.fromisoformat(json.loads(path.read_text())["started"]).timestamp()
