"""All cells of a scenario: missing cells are run, and each result is recorded.

A cell that fails is a result too: it is recorded, and the others go on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.runs import failures
from harness.runs.cells import Cell, Computed
from harness.runs.composed_cells import Matrix
from harness.runs.failures import FailedCell, Failure
from harness.runs.leftovers import being_written, remove_leftovers
from harness.runs.matrix import Place
from harness.runs.progress import Progress
from harness.runs.record import RecordError, Row, is_finished
from harness.runs.run_folder import keep

Settle = Callable[[Cell, Computed | Failure], None]
"""Called by a cluster with each cell and what it gave, in the order in which cells end."""


class Cluster(Protocol):
    """Where cells run."""

    def run(self, cells: Iterator[Cell], settle: Settle, *, samples: Sequence[Cell]) -> None:
        """Run every cell; they are taken as they can be started.

        `samples` are cells of which some may have run already: in them every value of every axis
        is found, and so every engine and policy.
        """


@dataclass(slots=True)
class Sweep:
    """What became of a scenario's cells: where each run has its place, and which failed.

    `rows` has those that were run, as `read_summaries` would read them.
    """

    folder: Path
    places: dict[str, Place] = field(default_factory=dict)
    failed: list[FailedCell] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)

    def run(self, matrix: Matrix, cluster: Cluster, progress: Progress) -> None:
        """Run what is missing.

        Raises, before anything runs, the error of a cell that cannot be built, or ValueError where
        there is none or nothing can be written; and RecordError where a disk refuses later.
        """
        progress.says("checking")
        built = matrix.checked(progress.done)
        cells = [cell for cell in built.values() if cell is not None]
        if not cells:
            raise ValueError("skip leaves no cell of the matrix")
        was_there = self.folder.is_dir()
        check_writable(self.folder)
        self._remove_leftovers()
        progress.says(self.folder.name)
        try:
            cluster.run(
                self._missing(matrix.cells(built), progress),
                lambda cell, gave: self._settle(cell, gave, progress),
                samples=cells,
            )
        finally:
            self._remove_leftovers()
            if not was_there:
                with suppress(OSError):
                    self.folder.rmdir()

    def _remove_leftovers(self) -> None:
        for folder in (self.folder, self.folder / failures.FOLDER):
            remove_leftovers(folder)

    def _missing(
        self, cells: Iterator[tuple[Place, Cell | Failure | None]], progress: Progress
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

    def _settle(self, cell: Cell, gave: Computed | Failure, progress: Progress) -> None:
        """Keep what a cell gave."""
        run = cell.folder.name
        kept = _kept(cell, gave) if isinstance(gave, Computed) else gave
        if isinstance(kept, Failure):
            self._fail(FailedCell(run, self.places[run], cell.config, kept))
        else:
            self.rows[run] = kept
            failures.forget(self.folder, run)
        progress.done()

    def _fail(self, failed: FailedCell) -> None:
        failures.record(self.folder, failed)
        self.failed.append(failed)


def _kept(cell: Cell, computed: Computed) -> Row | Failure:
    """The row of what has been written; a Failure for what cannot be. Raises RecordError."""
    try:
        return keep(cell, computed)
    except RecordError:
        raise
    except Exception as error:  # what cannot be recorded
        return Failure.of(error)


def check_writable(folder: Path) -> None:
    """Raise ValueError where no run could be written below a folder; makes the folder."""
    try:
        with being_written(folder / "probe"):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"runs cannot be written to {folder}: {reason}") from None
