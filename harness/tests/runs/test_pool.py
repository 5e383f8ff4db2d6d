"""Cells in a process pool: dead workers are replaced, an end of the command loses nothing."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness import run
from harness.runs.cells import Cell, Run
from harness.runs.cluster import PER_WORKER, LocalPool
from harness.runs.failures import Failure
from harness.tests.support.command import COMMAND, SMALL, runs_below
from harness.tests.support.configured import cells_of, composed
from harness.tests.support.failing import Deadly, Failing
from harness.tests.support.processes import below, eventually, named, started

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
def test_killed_workers_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is tried again after the death of its worker, here once; then it has failed."""
    monkeypatch.setattr("harness.runs.cluster.RETRIES", 1)
    whole = seeds(4)
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
    assert failed[2].sentence.startswith("its worker died 2 times, killed or out of memory")
    assert failed[3].sentence == "row 7 is bad"
    assert "in build" in failed[3].log
    alone = gave(whole[:2], workers=1)
    for seed in (0, 1):
        here, there = alone[seed], found[seed]
        assert isinstance(here, Run)
        assert isinstance(there, Run)
        assert here.tables["requests"].equals(there.tables["requests"])
        assert here.tables["gpu"].equals(there.tables["gpu"])


def kept_below(results: Path) -> dict[str, int]:
    """Finished runs; a run that is being written has another name."""
    return {name: at for name, at in runs_below(results).items() if "/." not in name}


@pytest.mark.slow
def test_a_command_that_is_killed_in_mid_sweep_keeps_finished_cells(tmp_path: Path) -> None:
    """A sweep of minutes, killed when a cell is kept; then what began of it is gone on with."""
    results, errors = tmp_path / "results", tmp_path / "errors"

    def sweep(count: int) -> tuple[str, ...]:
        return (*SMALL, f"+matrix.seed={[*range(count)]}", f"results={results}")

    words = [sys.executable, str(COMMAND), *sweep(1000), "workers=2", "tracking=none"]
    with (
        errors.open("wb") as said,
        started(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=said) as process,
    ):
        eventually(lambda: kept_below(results) or process.poll() is not None)
        assert process.poll() is None, errors.read_text()
        workers = below(process.pid)
        process.kill()
        process.wait()
        eventually(lambda: not any(map(named, workers)))
    kept = kept_below(results)
    assert 0 < len(kept) < 1000
    assert "Traceback" not in errors.read_text()
    begun = len(kept) + 2 * PER_WORKER
    with composed(*sweep(begun), "workers=1", "tracking=none") as config:
        assert run.run(config) == 0
    assert len(runs_below(results)) == begun
    assert kept.items() <= runs_below(results).items()
