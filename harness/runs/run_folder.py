"""The folder of a cell's run: what was computed, written by the process that a person started."""

from harness.runs.cells import Cell, Computed, compute
from harness.runs.perfetto import write_trace
from harness.runs.provenance import git_state
from harness.runs.record import Row, is_finished, write_run


def run_cell(cell: Cell) -> None:
    """Serve the cell's workload and write its folder; a finished one is kept."""
    if not is_finished(cell.folder):
        keep(cell, compute(cell))


def keep(cell: Cell, computed: Computed) -> Row:
    """Write the cell's folder; its row. Raises `RecordError` where the disk refuses.

    A node of a cluster has the program's files alone: what the run follows from and the commit are
    known here.
    """
    here = {"inputs": cell.named.inputs(), "git": git_state()}
    return write_run(
        cell.folder,
        config=cell.config,
        provenance={**here, **computed.provenance},
        requests=computed.requests,
        gpu=computed.gpu,
        iterations=computed.iterations,
        apps=computed.apps,
        units=computed.units,
        backends=computed.backends,
        summary=computed.summary,
        beside=write_trace if cell.keep_trace else None,
    )
