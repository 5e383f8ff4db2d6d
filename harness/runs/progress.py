"""A progress bar with the time left, over the cells of a scenario."""

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


class Progress:
    """Context manager over so many cells."""

    def __init__(self, cells: int) -> None:
        """Nothing is done yet."""
        self._cells = cells
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=cells)

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

    def says(self, what: str) -> None:
        """From here on it counts anew, under this name."""
        self._bar.reset(self._task, total=self._cells, description=what)

    def done(self) -> None:
        """One cell more."""
        self._bar.advance(self._task)

    def one_less(self) -> None:
        """What looked like a cell is none."""
        self._cells -= 1
        self._bar.update(self._task, total=self._cells)
