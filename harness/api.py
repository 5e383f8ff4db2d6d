"""Runs from Python: the words of a command line in, tables out.

    rows = run(["+scenario=compare", word("workload.file", path), ...]).rows

Words are those of `harness/run.py`; `harness.config.hydra_words.word` makes one of any value. Not
for several threads: Hydra keeps one configuration for a process.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness import run as command
from harness.config.paths import ROOT
from harness.config.yaml_files import read_yaml
from harness.runs.cells import Cell
from harness.runs.failures import FailedCell
from harness.runs.record import read_summaries


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of the cells of a configuration.

    `rows` are those of `read_summaries`, of its finished cells alone, in the order of the matrix.
    """

    rows: pd.DataFrame
    failed: Sequence[FailedCell]


def policies_of(scenario: str) -> list[str]:
    """Policies on the axis of a scenario's matrix."""
    matrix = read_yaml(ROOT / "scenarios" / "scenario" / f"{scenario}.yaml")["matrix"]
    return [str(policy) for policy in matrix["policy"]]


def first_cell(words: Sequence[str]) -> Cell:
    """The first cell of a configuration, built and not run. ValueError for bad input."""
    try:
        with command.composed(*words) as config:
            matrix = command.matrix_of(config)
            return next(cell for place in matrix.places if (cell := matrix.cell_at(place)))
    except command.BAD_INPUT as error:
        raise ValueError(command.sentence(error)) from error


def run(words: Sequence[str]) -> Ran:
    """Run the cells of a configuration that are missing. ValueError for bad input."""
    try:
        with command.composed(*words) as config:
            sweep = command.swept(config)
    except command.BAD_INPUT as error:
        raise ValueError(command.sentence(error)) from error
    rows = read_summaries(sweep.folder, only=sweep.places.keys())
    order = [name for name in sweep.places if name in rows.index]
    return Ran(rows.loc[order], tuple(sweep.failed))
