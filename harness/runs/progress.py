"""Progress over the cells of a scenario: a bar on a terminal, else a line every ten seconds."""

import sys
import time
from threading import Event, Thread
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

EVERY_S = 10.0
"""Between two lines where the output is no terminal."""


class CellProgress:
    """Context manager over so many cells."""

    def __init__(self, cells: int) -> None:
        """Nothing is done yet."""
        self._cells, self._done, self._name = cells, 0, ""
        self._started_s = time.monotonic()
        self._over = Event()
        console = Console(stderr=True)
        self._is_plain = not console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=self._is_plain,
        )
        self._task = self._bar.add_task("", total=cells)

    def __enter__(self) -> "CellProgress":
        """Start drawing."""
        self._bar.start()
        if self._is_plain:
            Thread(target=self._print_on, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing; after an error nothing is left of the bar, its sentence stands alone."""
        self._over.set()
        if kind is None:
            self._bar.stop()
        else:
            self._bar.live.transient = True
            self._bar.live.stop()

    def says(self, what: str) -> None:
        """From here on it counts from 0, under this name."""
        self._name, self._done, self._started_s = what, 0, time.monotonic()
        self._bar.reset(self._task, total=self._cells, description=what)

    def done(self) -> None:
        """Count one cell more."""
        self._done += 1
        self._bar.advance(self._task)

    def _print_on(self) -> None:
        """Lines until it is over, also while no cell ends."""
        while not self._over.wait(EVERY_S):
            elapsed_s, left = time.monotonic() - self._started_s, ""
            if self._done:
                left_s = elapsed_s / self._done * (self._cells - self._done)
                left = f", about {left_s:.0f} s left"
            print(
                f"{self._name}: {self._done} of {self._cells} cells, {elapsed_s:.0f} s{left}",
                file=sys.stderr,
                flush=True,
            )

    def one_less(self) -> None:
        """Leave out what looked like a cell and is none."""
        self._cells -= 1
        self._bar.update(self._task, total=self._cells)
