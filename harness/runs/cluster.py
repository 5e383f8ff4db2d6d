"""Where cells run: in this process, in a process pool on this machine, or on a Ray cluster.

A task computes a cell and returns the value; the driver writes. Nodes of a Ray cluster need no
shared disk: the code is sent to them, and results are sent back. A file outside the project that a
cell reads must be at the same place on every node; a node without it says so.
"""

import os
import pickle
import socket
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import chain, islice
from multiprocessing import active_children, get_context
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask
from types import ModuleType
from typing import Any

from harness.config.paths import ROOT
from harness.engines.ray_session import RayLost, joined_ray
from harness.runs.cells import Cell, Run
from harness.runs.failures import Failure, attempt
from harness.runs.pool_worker import begin, cores_here, run_pickled
from harness.runs.source_files import targets
from harness.runs.sweep import Settle

IN_FLIGHT = 256
"""Cells of a Ray cluster that have started and not ended, at most."""
PER_WORKER = 4
"""The same for each worker of a process pool."""
RETRIES = 2
"""How often a cell is tried again, on another worker, when its worker or node dies."""

_AT_ONCE = 8  # cells handed over before it is looked which have ended
_NOT_SENT = [".git", ".venv*", "/results", "/plots", "__pycache__", ".*_cache", ".hypothesis"]
_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


class LocalPool:
    """On the machine of the command: its process with one worker, with more a process pool."""

    def __init__(self, *, workers: int | None) -> None:
        """`workers` cells run at the same time; None: one per usable core."""
        self._workers = cores_here() if workers is None else workers

    def run(self, cells: Iterator[Cell], settle: Settle, *, samples: Sequence[Cell]) -> None:
        """See `Cluster.run`."""
        first = list(islice(cells, 2))
        cells = chain(first, cells)
        alone = any(cell.engine.runs_alone for cell in samples)
        if alone or self._workers == 1 or len(first) < 2:
            for cell in cells:
                settle(cell, attempt(cell))
            return
        first[0].engine.warm_up()  # what it compiles, workers load
        while lost := _pooled(cells, settle, self._workers):
            _one_by_one(lost, settle)


def _one_by_one(cells: Sequence[Cell], settle: Settle) -> None:
    """Cells that were in a pool of which a worker died: one of them may have ended it.

    Each runs alone, so that a cell that ends its worker again ends no other cell. The death in the
    pool counts for no cell.
    """
    left, deaths = iter(cells), Counter[Path]()
    while died := _pooled(left, settle, 1, each=1):
        (cell,) = died
        deaths[cell.folder] += 1
        if deaths[cell.folder] > RETRIES:
            sentence = f"its worker died {RETRIES + 1} times, killed or out of memory"
            settle(cell, Failure(sentence, BrokenProcessPool.__name__, sentence))
        else:
            left = chain(died, left)


def _pooled(
    cells: Iterator[Cell], settle: Settle, workers: int, *, each: int = PER_WORKER
) -> list[Cell]:
    """Run cells in a new pool, so many `each` worker in flight.

    Returns the cells in flight when a worker died; empty where all cells have ended.
    """
    running: dict[Future[Run | Failure], Cell] = {}
    with _pool(workers) as pool:
        while True:
            for cell in islice(cells, workers * each - len(running)):
                try:
                    running[_submitted(pool, cell)] = cell
                except BrokenProcessPool:
                    return [*running.values(), cell]
                except Exception as error:  # what cannot be pickled, of many kinds
                    settle(cell, Failure.of(error))
            if not running:
                return []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                if isinstance(future.exception(), BrokenProcessPool):
                    return [*running.values()]
                settle(running.pop(future), future.result())


def _submitted(pool: ProcessPoolExecutor, cell: Cell) -> "Future[Run | Failure]":
    """Hand a cell over; a worker that is started for it ignores Ctrl-C.

    A worker inherits the blocked signal. It would load the program's main module, and Hydra with
    it, if there was one.
    """
    pickled = pickle.dumps(cell)
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    before = pthread_sigmask(SIG_BLOCK, {SIGINT})
    try:
        return pool.submit(run_pickled, pickled)
    finally:
        sys.modules["__main__"] = main
        pthread_sigmask(SIG_SETMASK, before)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers are killed where the command ends before its cells."""
    others = active_children()
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=begin, initargs=(os.getpid(),)
    )
    try:
        yield pool
    except BaseException:
        for worker in active_children():
            if worker not in others:
                worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class JoinedRay:
    """A Ray cluster that is there already, by its address as `ray.init` has it."""

    def __init__(self, *, address: str) -> None:
        """It is joined when cells are there to run."""
        self._address = address

    def run(self, cells: Iterator[Cell], settle: Settle, *, samples: Sequence[Cell]) -> None:
        """See `Cluster.run`. Raises ValueError where no cluster answers, RayLost where it ends."""
        first = list(islice(cells, 1))
        if not first:
            return
        sent = {"working_dir": str(ROOT), "excludes": _NOT_SENT, "env_vars": _ENVIRONMENT}
        outside = _modules_outside(samples)
        if outside:
            sent["py_modules"] = outside
        # An engine whose groups ask the cluster for GPUs themselves has it for itself.
        one_by_one = any(cell.engine.slots.cpus == 0 for cell in samples)
        with joined_ray(self._address, sent):
            tasks = _Tasks(chain(first, cells), settle, outside)
            tasks.run(limit=1 if one_by_one else IN_FLIGHT)


class _Tasks:
    """Cells as tasks of the Ray that is joined."""

    def __init__(self, cells: Iterator[Cell], settle: Settle, sent: Sequence[str] = ()) -> None:
        self._cells, self._settle, self._sent = cells, settle, tuple(sent)
        self._running: dict[Any, Cell] = {}

    def run(self, *, limit: int) -> None:
        """All of them, at most so many asked for at a time. Raises RayLost."""
        import ray

        task = ray.remote(_attempt_here)
        while True:
            room = min(_AT_ONCE, limit - len(self._running))
            more = list(islice(self._cells, room))
            for cell in more:
                self._ask(ray, task, cell)
            if not self._running:
                return
            wait_s = 0.0 if more and len(self._running) < limit else None
            ended, _ = ray.wait(list(self._running), num_returns=1, timeout=wait_s)
            for one in ended:
                gave = _answer(ray, one)
                self._settle(self._running.pop(one), gave)

    def _ask(self, ray: Any, task: Any, cell: Cell) -> None:
        """Hand a cell over; one that no node can take, or that cannot travel, has failed."""
        try:
            slots = _slots(ray, cell)
            asked = task.options(max_retries=RETRIES, **slots).remote(cell, self._sent)
        except (TypeError, ValueError) as error:
            self._settle(cell, Failure.of(error))
        else:
            self._running[asked] = cell


def _answer(ray: Any, asked: Any) -> Run | Failure:
    """What a cell gave. Raises RayLost."""
    try:
        gave: Run | Failure = ray.get(asked)
    except ray.exceptions.LocalRayletDiedError as error:
        raise RayLost(f"Ray has ended: {error}") from None
    except ray.exceptions.RuntimeEnvSetupError as error:
        said = str(error).strip().splitlines()[-1]
        raise RayLost(f"a node of the cluster could not be given the program: {said}") from None
    except ray.exceptions.RayError as error:
        said = (str(error).splitlines() or [""])[0]
        sentence = f"its worker died {RETRIES + 1} times, killed or out of memory: {said}"
        return Failure(sentence, type(error).__name__, str(error))
    return gave


def _slots(ray: Any, cell: Cell) -> dict[str, float]:
    """What a cell takes of its node. Raises ValueError where no node has that much."""
    asked = cell.engine.slots
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    able = [node.get("CPU", 0.0) for node in nodes if node.get("GPU", 0.0) >= asked.gpus]
    most = max(able, default=0.0)
    cpus = most if asked.cpus is None else float(asked.cpus)
    if not able or cpus > most:
        lacks = f"{asked.gpus} GPUs" if not able else f"{cpus:g} CPUs"
        raise ValueError(f"no node of the cluster has {lacks}")
    return {"num_cpus": cpus, "num_gpus": float(asked.gpus)}


def _attempt_here(cell: Cell, sent: tuple[str, ...]) -> Run | Failure:
    """The task. Files below what was sent are elsewhere here, others must be at their place."""
    files = {name: digest for name, digest in cell.named.files.items() if not _is_below(name, sent)}
    if lost := [name for name in files if Path(name).is_absolute() and not Path(name).is_file()]:
        where = socket.gethostname()
        return Failure.of(ValueError(f"{lost[0]} is not on {where}; every node needs it there"))
    return attempt(replace(cell, named=replace(cell.named, files=files)))


def _is_below(name: str, places: Sequence[str]) -> bool:
    return any(Path(name).is_relative_to(place) for place in places)


def _modules_outside(cells: Sequence[Cell]) -> list[str]:
    """Packages and modules of cells' classes: those neither of the project nor installed."""
    names = {name.partition(".")[0] for cell in cells for name in targets(cell.config)}
    installed = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    outside = []
    for name in sorted(names - set(sys.stdlib_module_names)):
        module = import_module(name)
        places = list(getattr(module, "__path__", ())) or [str(module.__file__)]
        for place in map(Path, places):
            if not any(place.is_relative_to(folder) for folder in (ROOT, *installed)):
                outside.append(str(place))
    return outside
