"""Sweeps of which a process is killed at a random moment, resumed, and compared with a whole one.

Only processes that a sweep started are ever killed: its own, and those that descend from it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import Random

import pandas as pd

from harness.attack.cases import BASE
from harness.paths import ROOT
from harness.runs.leftovers import TEMPORARY

CELLS = 6
SWEEP = (*BASE, "workload.requests=300", f"+matrix.seed={[*range(CELLS)]}".replace(" ", ""))
LONGEST_S = 150.0
RESUMED = 3
"""Times that a sweep may be given again until it ends well."""

TARGETS = ("driver", "worker")
MEASURED = ("extra_s", "end_to_end_s", "decisions")
"""Of a summary: what the clock of this machine says."""
UNWANTED = ("lost", "doubled", "different", "unfinished")
OUTCOMES = ("equal", *UNWANTED)
TABLES = ("requests.parquet", "gpu.parquet")
WORKER = "multiprocessing.spawn"
"""What the command line of a worker of a sweep's process pool holds."""


def try_kills(seed: int, kills: int, *, at_once: int) -> Counter[str]:
    """So many sweeps, each killed once and resumed, some side by side; how many came out how."""
    folder = Path(tempfile.mkdtemp(prefix="attack-kills-"))
    with ThreadPoolExecutor(at_once) as pool:
        lasts_s = max(pool.map(_whole, [folder / f"whole{it}" for it in range(at_once)]))
        tried = [pool.submit(_tried, seed, number, lasts_s, folder) for number in range(kills)]
        counts = Counter(it.result() for it in as_completed(tried))
    if not any(counts[name] for name in UNWANTED):
        shutil.rmtree(folder)
    return counts


def _whole(place: Path) -> float:
    """Seconds of a sweep that nobody disturbs, beside as many as there will be of the others."""
    started_s = time.monotonic()
    code = _ended(_sweep(place, workers=2))
    lasts_s = time.monotonic() - started_s
    if code != 0 or len(_runs(place)) != CELLS:
        raise RuntimeError(f"a sweep that nobody disturbs ends with {code}: see {place}.txt")
    return lasts_s


def _tried(seed: int, number: int, lasts_s: float, folder: Path) -> str:
    """Kill one sweep while it lasts, resume it; what came of it."""
    rng = Random(f"{seed} {number}")
    target, after_s = TARGETS[number % len(TARGETS)], rng.uniform(0.0, lasts_s)
    place = folder / str(number)
    _kill(_sweep(place, workers=2), target, after_s, rng)
    outcome = _resumed(place, folder / "whole0")
    if outcome == "equal":
        shutil.rmtree(place)
    else:
        print(f"{outcome}: kill {number}: {target} after {after_s:.2f} s, see {place}")
    return outcome


def _sweep(results: Path, *, workers: int) -> subprocess.Popen[bytes]:
    """Start the sweep; with one worker without a process pool."""
    results.parent.mkdir(parents=True, exist_ok=True)
    with (results.parent / f"{results.name}.txt").open("ab") as said:
        command = [sys.executable, str(ROOT / "harness" / "run.py"), *SWEEP]
        return subprocess.Popen(
            [*command, f"results={results}", f"workers={workers}"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _ended(sweep: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a sweep; None for one that went on for too long and was ended."""
    try:
        return sweep.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        _end([sweep.pid, *_descendants(sweep.pid)])
        sweep.wait()
        return None


def _kill(sweep: subprocess.Popen[bytes], target: str, after_s: float, rng: Random) -> None:
    """Kill a process of a sweep after a while and wait until nothing is left of the sweep.

    Where there is none of that kind at that moment, it is the first that there is; none where the
    sweep ends before.
    """
    below: set[int] = set()
    until_s = time.monotonic() + after_s
    killed = False
    while sweep.poll() is None and time.monotonic() < until_s + LONGEST_S:
        below |= _descendants(sweep.pid)
        if not killed and time.monotonic() >= until_s:
            found = [sweep.pid] if target == "driver" else _workers(below)
            if found:
                _end([rng.choice(found)])
                killed = True
        time.sleep(0.02)
    _ended(sweep)
    # What a killed driver leaves behind would go on for a while and disturb the next one.
    _end(below)


def _resumed(results: Path, whole: Path) -> str:
    """Give the sweep again until it ends well, and compare its runs with those of a whole one."""
    for _ in range(RESUMED):
        if _ended(_sweep(results, workers=1)) == 0:
            return _compared(results, whole)
    return "unfinished"


def _compared(results: Path, whole: Path) -> str:
    found, wanted = _runs(results), _runs(whole)
    if set(wanted) - set(found):
        return "lost"
    if set(found) - set(wanted) or len(found) != CELLS:
        return "doubled"
    same = all(_is_same(found[name], wanted[name]) for name in wanted)
    return "equal" if same else "different"


def _runs(results: Path) -> dict[str, Path]:
    """Run folders by name; half-written ones too, which must not be left."""
    folders = {path.name: path for path in results.glob("*/*") if path.is_dir()}
    return {
        name: path
        for name, path in folders.items()
        if not name.startswith(".") or name.startswith(TEMPORARY)
    }


def _is_same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same, but for what was measured on the clock of this machine."""
    for name in TABLES:
        if not pd.read_parquet(one / name).equals(pd.read_parquet(other / name)):
            return False
    summaries = [json.loads((path / "summary.json").read_text()) for path in (one, other)]
    simulated = [
        {key: value for key, value in summary.items() if key not in MEASURED}
        for summary in summaries
    ]
    return simulated[0] == simulated[1]


def _descendants(pid: int) -> set[int]:
    """Processes that a process started, and those that these started, while they live."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything; the parent is the second word behind it.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        parents.setdefault(parent, []).append(int(path.parent.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = [child for child in parents.get(waiting.pop(), []) if child not in found]
        found.update(below)
        waiting += below
    return found


def _workers(processes: set[int]) -> list[int]:
    """Workers among these processes that live."""
    found = []
    for pid in sorted(processes):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if WORKER in words:
            found.append(pid)
    return found


def _end(processes: Sequence[int] | set[int]) -> None:
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
