"""Cells a second of a sweep, on one worker and on two: `python -m harness.benchmarks.sweep`.

A cell serves one request, so that nearly all of its time is composing, handing over and writing.
The seconds that a command and its workers take to start are taken off.
"""

import subprocess
import sys
import tempfile
import time

from harness.paths import ROOT

FEW, MANY = 20, 500
WORKERS = (1, 2)
REPEATS = 2


def measure(cells: int = MANY) -> dict[str, float]:
    """Best of several sweeps over seeds, less a sweep over few of them."""
    return {
        f"sweep_cells_per_s_workers_{workers}": (cells - FEW)
        / (_best_s(cells, workers) - _best_s(FEW, workers))
        for workers in WORKERS
    }


def _best_s(cells: int, workers: int) -> float:
    return min(_seconds(cells, workers) for _ in range(REPEATS))


def _seconds(cells: int, workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "harness/run.py", "workload.requests=1", "tracking=none"]
        words += [f"+matrix.seed={[*range(cells)]}", f"workers={workers}", f"results={folder}"]
        started_s = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True, cwd=ROOT)
        return time.perf_counter() - started_s


def main() -> int:
    """Measure 2,000 cells and print; the exit status."""
    for name, rate in measure(2_000).items():
        print(f"{name}: {rate:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
