"""Cells of configurations composed as the command does, inside the test's own process."""

from harness import run
from harness.run import composed
from harness.runs.cells import Cell

__all__ = ["cells_of", "composed", "first_cell_of"]


def cells_of(*overrides: str) -> list[Cell]:
    """Every cell of a command line, built."""
    with composed(*overrides) as config:
        matrix = run.matrix_of(config)
        return [cell for place in matrix.places if (cell := matrix.cell_at(place))]


def first_cell_of(*overrides: str) -> Cell:
    """The first cell of a command line, built."""
    with composed(*overrides) as config:
        matrix = run.matrix_of(config)
        return next(cell for place in matrix.places if (cell := matrix.cell_at(place)))
