"""Cells on a Ray of the command's own: nobody else in, nothing left, dead workers replaced."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from harness.engines import own_ray as own_ray_module
from harness.engines.own_ray import PREFIX, RayLost, own_ray
from harness.paths import ROOT
from harness.runs.cells import Cell, Computed
from harness.runs.cluster import LocalRay
from harness.runs.ending import Terminated
from harness.runs.failures import Failure
from harness.tests.support.command import COMMAND, SMALL, command, runs_below
from harness.tests.support.configured import cells_of
from harness.tests.support.failing import Deadly, Failing
from harness.tests.support.processes import below, listening_beyond_loopback, named

Gave = dict[int, Computed | Failure]


@pytest.fixture
def own_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's Rays keep theirs: tests beside it have Rays too, in the usual place.

    Not tmp_path, whose name is too long for Ray's sockets.
    """
    with tempfile.TemporaryDirectory(prefix="rays-") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


def left(folders: Path) -> list[Path]:
    return list(folders.glob(f"{PREFIX}*"))


def seeds(count: int) -> list[Cell]:
    return cells_of(*SMALL, f"+matrix.seed=[{','.join(map(str, range(count)))}]")


def gave(cells: list[Cell], workers: int) -> Gave:
    """What each gave, by its seed, in the order in which they ended."""
    found: Gave = {}
    LocalRay(workers=workers).run(
        iter(cells), lambda cell, result: found.update({cell.seed: result}), samples=cells
    )
    return found


def test_one_worker_is_this_process_and_cells_run_in_order() -> None:
    assert list(gave(seeds(3)[::-1], workers=1)) == [2, 1, 0]
    assert "ray" not in {named(child) for child in below(os.getpid())}


def test_no_cells_are_soon_done() -> None:
    assert gave([], workers=2) == {}


class Alone:
    """An engine that needs the machine for itself, and has it."""

    runs_alone = True

    def warm_up(self) -> None:
        """Say who was asked."""
        raise ValueError(f"process {os.getpid()}")


def test_what_measures_runs_one_by_one_in_this_process() -> None:
    cells = [replace(cell, engine=Alone()) for cell in seeds(2)]  # type: ignore[arg-type]
    found = gave(cells, workers=2)
    assert {str(one.sentence) for one in found.values() if isinstance(one, Failure)} == {
        f"process {os.getpid()}"
    }


@pytest.mark.slow
def test_killed_workers_are_replaced_and_none_is_reached_from_elsewhere(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With RAY_ADDRESS naming nobody. Two deaths are forgiven, a third is a failure."""
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.77:6379")
    whole = seeds(6)
    deaths = {1: 2, 2: 99}
    cells = [
        replace(
            cell,
            workload_factory=Deadly(cell.workload_factory, tmp_path, deaths.get(cell.seed, 0)),
        )
        for cell in whole
    ]
    cells[3] = replace(cells[3], workload_factory=Failing(ValueError("row 7 is bad")))
    open_to_all: list[str] = []
    meanwhile: list[Path] = []
    found: Gave = {}

    def settle(cell: Cell, result: Computed | Failure) -> None:
        found[cell.seed] = result
        meanwhile.extend(left(own_folders))
        open_to_all.extend(listening_beyond_loopback(below(os.getpid())))

    LocalRay(workers=2).run(iter(cells), settle, samples=cells)
    assert open_to_all == []
    failed = {seed: one for seed, one in found.items() if isinstance(one, Failure)}
    assert sorted(failed) == [2, 3]
    assert failed[2].sentence.startswith("its worker died 3 times, killed or out of memory")
    assert failed[3].sentence == "row 7 is bad"
    assert "in build" in failed[3].log
    alone = gave(whole, workers=1)
    for seed in (0, 1, 4, 5):
        here, there = alone[seed], found[seed]
        assert isinstance(here, Computed)
        assert isinstance(there, Computed)
        assert here.requests.equals(there.requests)
        assert here.gpu.equals(there.gpu)
    assert meanwhile
    assert left(own_folders) == []


@pytest.mark.slow
def test_two_rays_beside_each_other_do_not_meet() -> None:
    import ray

    program = (
        "import sys, ray; from harness.engines.own_ray import own_ray\n"
        "with own_ray(1, {}):\n"
        "    print(ray.get_runtime_context().gcs_address, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = other.stdout.readline().strip()
        with own_ray(1, {}):
            ours = ray.get_runtime_context().gcs_address
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(60) == 0
    assert theirs
    assert ours
    assert ours != theirs


def test_a_ray_that_does_not_start_is_a_sentence(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(**settings: object) -> None:
        tried.append(settings["address"])
        raise RuntimeError("The current node timed out\nduring startup")

    monkeypatch.setattr("ray.init", refuse)
    with (
        pytest.raises(RayLost, match=r"^Ray did not start: The current node timed out$"),
        own_ray(2, {}),
    ):
        pass
    assert tried == ["local", "local"]
    assert left(own_folders) == []


def test_a_process_of_ray_that_dies_while_it_starts_is_noticed(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would ask for half a minute whether it is there; and leave the others behind."""
    services = own_ray_module._ray()._private.services
    asked, dead, before = services.get_node, list[int](), set(own_ray_module._children())

    def get_node(*which: object) -> object:
        if not dead:
            dead.extend(it for it in own_ray_module._children() if "raylet/raylet" in named(it))
            for raylet in dead:
                os.kill(raylet, signal.SIGKILL)
        assert dead
        noticed.append(len(noticed))
        return asked(*which)

    noticed: list[int] = []
    monkeypatch.setattr(services, "get_node", get_node)
    with own_ray(2, {}):
        others = {named(it) for it in below(os.getpid()) if it not in before}
        assert sum("raylet/raylet" in it for it in others) == 1
        assert sum("gcs_server" in it for it in others) == 1
    assert len(noticed) < 15


def kept_below(results: Path) -> dict[str, int]:
    """Runs that are there. What is being written has a summary too, and another name."""
    return {name: at for name, at in runs_below(results).items() if "/." not in name}


def computing(processes: set[int]) -> list[str]:
    """Those that are there; Ray's agents may look for their dead server for a minute."""
    return [name for name in map(named, processes) if name and "Agent" not in name]


def started(results: Path, marks: Path, errors: Path) -> subprocess.Popen[bytes]:
    """The command with two workers, once it has kept a run."""
    with errors.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(COMMAND), *SWEEP, f"results={results}"],
            cwd=marks,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    until_s = time.monotonic() + 120
    while not kept_below(results) and time.monotonic() < until_s:
        assert process.poll() is None, errors.read_text()
        time.sleep(0.05)
    return process


def test_ray_does_not_take_sigterm_while_it_starts() -> None:
    """It would leave without a word; who starts it is told to end as at any other time."""
    before = signal.getsignal(signal.SIGTERM)
    with own_ray_module._quiet():
        own_ray_module._ray()._private.utils.set_sigterm_handler(lambda *_: None)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_end_while_ray_is_imported_is_no_other_error(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a module is left of it, which cannot shut down."""

    def ended(*_: object, **__: object) -> None:
        raise Terminated

    monkeypatch.setattr(own_ray_module, "start_ray", ended)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with pytest.raises(Terminated), own_ray(1, {}):
        raise AssertionError("it did not start")
    assert left(own_folders) == []


SWEEP = (*SMALL, f"+matrix.seed={[*range(40)]}", "tracking=none", "workers=2")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep on one core."""
    results, folder = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("elsewhere")
    assert command(*SWEEP[:-1], "workers=1", f"results={results}", folder=folder).returncode == 0
    return results


@pytest.mark.slow
@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends_in_mid_sweep_loses_nothing(
    tmp_path: Path, whole: Path, ends: signal.Signals
) -> None:
    """What it had kept stays, the same command does the rest, and all is as on one core."""
    results, marks = tmp_path / "results", tmp_path / "elsewhere"
    marks.mkdir()
    process = started(results, marks, tmp_path / "said")
    children = below(process.pid)
    process.send_signal(ends)
    code = process.wait(60)
    kept = kept_below(results)
    assert 0 < len(kept) < 40
    said = (tmp_path / "said").read_text()
    assert not {"Traceback", "***"} & {*said.split()}
    if ends is not signal.SIGKILL:
        assert code == 128 + ends
        assert said.splitlines()[-1].endswith("; finished cells are kept")
    until_s = time.monotonic() + 30
    while computing(children) and time.monotonic() < until_s:
        time.sleep(0.1)
    assert computing(children) == []
    done = command(*SWEEP, f"results={results}", folder=marks)
    assert (done.returncode, len(runs_below(results))) == (0, 40)
    assert kept.items() <= runs_below(results).items()
    for run in runs_below(whole):
        for table in ("requests.parquet", "gpu.parquet"):
            assert (results / run / table).read_bytes() == (whole / run / table).read_bytes()
