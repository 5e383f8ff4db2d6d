"""Cells of configurations composed as the command does, inside the test's own process."""

from harness.runs.cells import Cell
from harness.runs.composed_cells import Matrix
from harness.runs.composing import composed

__all__ = ["cells_of", "composed", "first_cell_of"]


def cells_of(*overrides: str) -> list[Cell]:
    """Every cell of a command line, built."""
    with composed(*overrides) as composer:
        matrix = Matrix(composer)
        return [cell for place in matrix.places if (cell := matrix.cell_at(place))]


def first_cell_of(*overrides: str) -> Cell:
    """The first cell of a command line, built."""
    with composed(*overrides) as composer:
        matrix = Matrix(composer)
        return next(cell for place in matrix.places if (cell := matrix.cell_at(place)))
