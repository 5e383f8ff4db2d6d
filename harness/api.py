"""Runs from Python: configurations in, tables and figures out.

    config = configuration("workload.requests=200", "predictor=oracle")
    done = run(config)
    done.requests.head()
    figures(done, ["jct_s_mean", "gpu_idle_s"])
    sweep("routing", where={"seed": [0, 1], "workload.answers": "own"})

Words are those of `harness/run.py`; `harness.config.hydra_words.word` makes one of any value. Not
for several threads: Hydra keeps one configuration for a process.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pandas as pd

from harness.config.build import build
from harness.config.paths import ROOT
from harness.config.yaml_files import read_yaml
from harness.runs.building import cell_of
from harness.runs.cell_lists import as_it_stands, write_cells
from harness.runs.cells import Cell, Run, compute
from harness.runs.composed_cells import Matrix
from harness.runs.composing import BAD_INPUT, Composer, composed, sentence
from harness.runs.config import RunConfig
from harness.runs.failures import as_rows
from harness.runs.figures import FIGURES, figures_of, over_draws
from harness.runs.progress import CellProgress
from harness.runs.record import is_finished, read_run, read_summaries
from harness.runs.sweep import CellExecutor, Sweep, keep


def configuration(*words: str) -> RunConfig:
    """The configuration of the first cell of a command line. ValueError for bad input."""
    with refusing(*words) as composer:
        matrix = Matrix(composer)
        return next(found for place in matrix.places if (found := matrix.config_at(place)))


def run(config: RunConfig) -> Run:
    """The run of a configuration: read where it was served before, else served and kept.

    Raises ValueError for what does not fit together, and whatever a policy raises.
    """
    cell = cell_of(config)
    if not is_finished(cell.folder):
        keep(cell, compute(cell))
    return read_run(cell.folder)


def figures(run: Run, names: Sequence[str] | None = None) -> dict[str, float]:
    """Figures of a run by name, all that it has or those named. ValueError for an unknown name."""
    return figures_of(run, names)


def sweep(
    scenario: str | None = None,
    overrides: Sequence[str] = (),
    *,
    where: Mapping[str, object] | None = None,
) -> pd.DataFrame:
    """Figures of the cells of a scenario, or of a command line; those missing are run.

    `where` has values of axes, one or several of each: other cells are left out. Rows are those of
    `read_summaries`, by run, in the order of the cells, with a column for each axis under its key
    that is no column already; `failed` is why a cell has no figures, empty where it has. ValueError
    for bad input.
    """
    words = [*([f"+scenario={scenario}"] if scenario else []), *overrides]
    with refusing(*words) as composer:
        matrix = Matrix(composer, where=where)
        return frame_of(matrix, swept(matrix))


def swept(matrix: Matrix) -> Sweep:
    """All cells of a matrix, run where they are missing. Raises ValueError before anything runs.

    Where a scenario is run as its file has it, and all of it, the list of its cells is written, for
    claims and plots.
    """
    config = matrix.config
    offered = {"workers": config.workers}
    cluster = build(config.cluster, path="cluster", offered=offered, kind=CellExecutor)
    done = Sweep(config.folder)
    with CellProgress(len(matrix.places)) as progress:
        done.run(matrix, cluster, progress)
    if as_it_stands(matrix.composer.given) and matrix.is_whole:
        write_cells(done.folder, config.variant, done.places, varied=config.variations)
    return done


def frame_of(matrix: Matrix, done: Sweep) -> pd.DataFrame:
    """The rows of `sweep`."""
    rows = read_summaries(done.folder, only=done.places.keys() - {it.run for it in done.failed})
    rows = pd.concat([rows, as_rows(done.failed)])
    rows = rows.loc[[name for name in done.places if name in rows.index]]
    settings = {name: done.places[name].setting for name in rows.index}
    axes = pd.DataFrame.from_dict(settings, orient="index").reindex(rows.index)
    rows["failed"] = rows["failed"].fillna("") if done.failed else ""
    axes = axes.drop(columns=[name for name in axes if name in rows])
    lacking = [name for name in FIGURES if name not in rows] if done.failed else []
    rows = pd.concat([rows, axes], axis=1).reindex(columns=[*rows, *axes, *lacking])
    return over_draws(rows) if matrix.config.uncertainty_draws else rows


def first_cell(words: Sequence[str]) -> Cell:
    """The first cell of a command line, built and not run. ValueError for bad input."""
    with refusing(*words) as composer:
        matrix = Matrix(composer)
        return next(cell for place in matrix.places if (cell := matrix.cell_at(place)))


def policies_of(scenario: str) -> list[str]:
    """Policies on the axis of a scenario's matrix."""
    matrix = read_yaml(ROOT / "scenarios" / "scenario" / f"{scenario}.yaml")["matrix"]
    return [str(policy) for policy in matrix["policy"]]


@contextmanager
def refusing(*words: str) -> Iterator[Composer]:
    """The configurations of a command line; bad input as ValueError, whoever has found it."""
    try:
        with composed(*words) as composer:
            yield composer
    except BAD_INPUT as error:
        raise ValueError(sentence(error, words)) from error
