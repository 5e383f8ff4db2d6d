"""Cells in a process pool: dead workers are replaced, an end of the command loses nothing."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.runs.cells import Cell, Run
from harness.runs.cluster import LocalPool
from harness.runs.failures import Failure
from harness.tests.support.command import COMMAND, SMALL, command, runs_below
from harness.tests.support.configured import cells_of
from harness.tests.support.failing import Deadly, Failing
from harness.tests.support.processes import below, named

Gave = dict[int, Run | Failure]


def seeds(count: int) -> list[Cell]:
    return cells_of(*SMALL, f"+matrix.seed=[{','.join(map(str, range(count)))}]")


def gave(cells: list[Cell], workers: int) -> Gave:
    """What each gave, by its seed, in the order in which they ended."""
    found: Gave = {}
    LocalPool(workers=workers).run(
        iter(cells), lambda cell, result: found.update({cell.seed: result}), samples=cells
    )
    return found


def test_one_worker_is_this_process_and_cells_run_in_order() -> None:
    before = below(os.getpid())
    assert list(gave(seeds(3)[::-1], workers=1)) == [2, 1, 0]
    assert below(os.getpid()) == before


def test_no_cells_end_at_once() -> None:
    assert gave([], workers=2) == {}


class Alone:
    """An engine that measures, and so has the machine for itself."""

    runs_alone = True

    def warm_up(self) -> None:
        """Name the process that calls it."""
        raise ValueError(f"process {os.getpid()}")


def test_measured_cells_run_one_by_one_in_this_process() -> None:
    cells = [replace(cell, engine=Alone()) for cell in seeds(2)]  # type: ignore[arg-type]
    found = gave(cells, workers=2)
    assert {str(one.sentence) for one in found.values() if isinstance(one, Failure)} == {
        f"process {os.getpid()}"
    }


@pytest.mark.slow
def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    """A cell is tried again after two deaths of its worker; the third is a failure."""
    whole = seeds(5)
    deaths = {1: 1, 2: 99}
    cells = [
        replace(
            cell,
            workload_factory=Deadly(cell.workload_factory, tmp_path, deaths.get(cell.seed, 0)),
        )
        for cell in whole
    ]
    cells[3] = replace(cells[3], workload_factory=Failing(ValueError("row 7 is bad")))
    found = gave(cells, workers=2)
    failed = {seed: one for seed, one in found.items() if isinstance(one, Failure)}
    assert sorted(failed) == [2, 3]
    assert failed[2].sentence.startswith("its worker died 3 times, killed or out of memory")
    assert failed[3].sentence == "row 7 is bad"
    assert "in build" in failed[3].log
    alone = gave(whole, workers=1)
    for seed in (0, 1, 4):
        here, there = alone[seed], found[seed]
        assert isinstance(here, Run)
        assert isinstance(there, Run)
        assert here.tables["requests"].equals(there.tables["requests"])
        assert here.tables["gpu"].equals(there.tables["gpu"])


SWEEP = (*SMALL, f"+matrix.seed={[*range(40)]}", "tracking=none", "workers=2")


def kept_below(results: Path) -> dict[str, int]:
    """Finished runs; a run that is being written has another name."""
    return {name: at for name, at in runs_below(results).items() if "/." not in name}


@pytest.mark.slow
def test_a_command_that_is_killed_in_mid_sweep_keeps_finished_cells(tmp_path: Path) -> None:
    results, errors = tmp_path / "results", tmp_path / "errors"
    with errors.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(COMMAND), *SWEEP, f"results={results}"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    until_s = time.monotonic() + 120
    while not kept_below(results) and time.monotonic() < until_s:
        assert process.poll() is None, errors.read_text()
        time.sleep(0.05)
    workers = below(process.pid)
    process.kill()
    process.wait(60)
    kept = kept_below(results)
    assert 0 < len(kept) < 40
    assert "Traceback" not in errors.read_text()
    until_s = time.monotonic() + 30
    while any(map(named, workers)) and time.monotonic() < until_s:
        time.sleep(0.1)
    assert not any(map(named, workers))
    done = command(*SWEEP, f"results={results}", folder=tmp_path)
    assert (done.returncode, len(runs_below(results))) == (0, 40)
    assert kept.items() <= runs_below(results).items()
