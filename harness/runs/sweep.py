"""All cells of a scenario: missing cells are run, and each result is recorded.

A cell that fails is a result too: it is recorded, and the others go on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from harness.config.scratch import TEMPORARY
from harness.runs import failures
from harness.runs.cells import Cell, Run
from harness.runs.composed_cells import Matrix
from harness.runs.failures import FailedCell, Failure
from harness.runs.matrix import Place
from harness.runs.progress import CellProgress
from harness.runs.provenance import git_state
from harness.runs.record import RecordError, is_finished, write_run

Settle = Callable[[Cell, Run | Failure], None]
"""Called by a cluster with each cell and what it gave, in the order in which cells end."""


class CellExecutor(Protocol):
    """Where cells run."""

    def run(self, cells: Iterator[Cell], settle: Settle, *, samples: Sequence[Cell]) -> None:
        """Run every cell; they are taken as they can be started.

        `samples` are cells of which some may have run already: in them every value of every axis
        is found, and so every engine and policy.
        """


@dataclass(slots=True)
class Sweep:
    """What became of a scenario's cells: where each run has its place, and which failed."""

    folder: Path
    places: dict[str, Place] = field(default_factory=dict)
    failed: list[FailedCell] = field(default_factory=list)

    def said_of_failures(self) -> list[str]:
        """Sentences on the cells that failed, the last names them; empty where none has."""
        if not self.failed:
            return []
        self.failed.sort(key=lambda cell: [*self.places].index(cell.run))
        last = failures.last_line(self.failed, cells=len(self.places), folder=self.folder)
        return [*failures.sentences(self.failed), last]

    def run(self, matrix: Matrix, cluster: CellExecutor, progress: CellProgress) -> None:
        """Run what is missing.

        Raises, before anything runs, the error of a cell that cannot be built, or ValueError where
        there is none or nothing can be written; and RecordError where a disk refuses later.
        """
        progress.says("checking")
        built = matrix.checked(progress.done)
        cells = [cell for cell in built.values() if cell is not None]
        check_writable(self.folder)
        progress.says(self.folder.name)
        cluster.run(
            self._missing(matrix.cells(built), progress),
            lambda cell, gave: self._settle(cell, gave, progress),
            samples=cells,
        )

    def _missing(
        self, cells: Iterator[tuple[Place, Cell | Failure | None]], progress: CellProgress
    ) -> Iterator[Cell]:
        """Cells whose run is not there, each run once."""
        for place, cell in cells:
            if isinstance(cell, Failure):
                name = failures.unnamed(place)
                self.places[name] = place
                self._fail(FailedCell(name, place, place.setting, cell))
                progress.done()
            elif cell is None or cell.folder.name in self.places:
                progress.one_less()
            else:
                self.places[cell.folder.name] = place
                if is_finished(cell.folder):
                    progress.done()
                else:
                    yield cell

    def _settle(self, cell: Cell, gave: Run | Failure, progress: CellProgress) -> None:
        """Keep what a cell gave. Raises RecordError."""
        run = cell.folder.name
        if isinstance(gave, Run):
            try:
                keep(cell, gave)
            except RecordError:
                raise
            except Exception as error:  # what cannot be recorded
                gave = Failure.of(error)
        if isinstance(gave, Failure):
            self._fail(FailedCell(run, self.places[run], cell.config, gave))
        else:
            failures.forget(self.folder, run)
        progress.done()

    def _fail(self, failed: FailedCell) -> None:
        failures.record(self.folder, failed)
        self.failed.append(failed)


def keep(cell: Cell, run: Run) -> None:
    """Write the cell's folder. Raises `RecordError` where the disk refuses.

    A node of a cluster has the program's files alone: what the run follows from and the commit are
    known here.
    """
    here = {"inputs": cell.named.inputs(), "git": git_state()}
    whole = replace(run, provenance={**here, **run.provenance})
    write_run(cell.folder, whole, trace=cell.keep_trace)


def check_writable(folder: Path) -> None:
    """Raise ValueError where no run could be written below a folder; makes the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(prefix=TEMPORARY, dir=folder).cleanup()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"runs cannot be written to {folder}: {reason}") from None
