"""A progress bar with the time left, over the cells of a scenario."""

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from harness.runs.cells import Cell
from harness.runs.record import is_finished


class Progress:
    """Context manager; `to_do` are the cells without a finished folder."""

    def __init__(self, name: str, cells: Sequence[Cell]) -> None:
        """Count what is already there."""
        self.to_do = [cell for cell in cells if not is_finished(cell.folder)]
        self._bar = RichProgress(
            TextColumn(name),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(
            name, total=len(cells), completed=len(cells) - len(self.to_do)
        )

    def __enter__(self) -> "Progress":
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing; after an error nothing is left of the bar, its sentence stands alone."""
        if kind is None:
            self._bar.stop()
        else:
            self._bar.live.transient = True
            self._bar.live.stop()

    def done(self, cell: Cell) -> None:
        """One cell more."""
        self._bar.advance(self._task)
