"""Cells that failed: what went wrong is kept beside the runs, where reading never takes it for one.

`results/<scenario>/.failed/<run>/` holds config.yaml, error.json (the sentence, the kind of error,
the cell's place in the scenario) and log.txt (the traceback). When the cell succeeds it goes.
"""

import gc
import json
import os
import shutil
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from harness.runs.cells import Cell, Run, compute
from harness.runs.figures import FigureError, summary_of
from harness.runs.matrix import Place
from harness.runs.record import RecordError, as_yaml
from harness.runs.run_key import as_plain, run_id
from harness.runs.table import FAILED, SYSTEM

FOLDER = ".failed"
_NAMED = 10  # cells that the last line names; of more it says how many


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cell gave nothing: one sentence, the kind of error, and the log."""

    sentence: str
    kind: str
    log: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """What an error says; the name of its kind where it says nothing."""
        kind = type(error).__name__
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), kind)
        # A sentence from elsewhere may be as short as a key's name.
        is_ours = isinstance(error, ValueError) or said == kind
        sentence = said if is_ours else f"{kind}: {said}"
        return cls(sentence, kind, "".join(traceback.format_exception(error)))


@dataclass(frozen=True, slots=True)
class FailedCell:
    """A cell that failed: its run's name, its place in the scenario, its configuration, and why.

    Of one that could not be built the configuration is its setting.
    """

    run: str
    place: Place
    config: Mapping[str, Any]
    failure: Failure

    def __str__(self) -> str:
        """Its place, or its run where a scenario has one cell only."""
        axes = ", ".join(f"{axis}={value}" for axis, value in self.place.setting.items())
        return axes or self.run


def attempt(cell: Cell) -> Run | Failure:
    """What the cell gives, with its figures, or why it gives nothing.

    A policy that leaves Python counts as failed too. Interrupts are let through.
    """
    try:
        run = compute(cell)
        try:
            return replace(run, figures=summary_of(run))
        except FigureError:  # said where figures are read; the run is kept
            return run
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    finally:
        # The objects of a run refer to each other and hold arrays of tens of megabytes; the
        # collector would run late, since it counts objects. Objects that survive are not scanned
        # again, or a collection would take longer than a short run.
        gc.collect()
        gc.freeze()


def unnamed(place: Place) -> str:
    """The name of a cell that cannot be built, so that its run has none."""
    return run_id({"setting": as_plain(place.setting), "varied": place.varied}, "unbuilt")


def record(folder: Path, failed: FailedCell) -> None:
    """Keep why a cell of a scenario's folder failed, instead of what was kept of it before.

    Raises `RecordError` where the disk refuses.
    """
    place = folder / FOLDER / failed.run
    said = {
        "error": failed.failure.sentence,
        "kind": failed.failure.kind,
        "setting": {axis: str(value) for axis, value in failed.place.setting.items()},
        "varied": failed.place.varied,
        "ended": datetime.now(UTC).isoformat(),
    }
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.yaml").write_text(as_yaml(failed.config))
        (place / "error.json").write_text(json.dumps(said, indent=2) + "\n")
        (place / "log.txt").write_text(failed.failure.log)
    except OSError as error:
        raise RecordError(f"could not write {place}: {error.strerror or error}") from error


def forget(folder: Path, run: str) -> None:
    """The cell has succeeded: nothing is kept of its failures."""
    shutil.rmtree(folder / FOLDER / run, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(folder / FOLDER)


def as_rows(failed: Sequence[FailedCell]) -> pd.DataFrame:
    """A row for each, as `read_summaries` has them of runs: why it `failed`, and no figures."""
    rows: dict[str, dict[str, object]] = {}
    for cell in failed:
        system = cell.config.get("system")
        name = system.get("name") if isinstance(system, Mapping) else system
        rows[cell.run] = {FAILED: cell.failure.sentence, SYSTEM: name}
    return pd.DataFrame.from_dict(rows, orient="index")


def sentences(failed: Sequence[FailedCell]) -> list[str]:
    """Why cells failed: a line for each reason, with how many cells had it."""
    counts = Counter(cell.failure.sentence for cell in failed)
    return [
        f"error: {reason}" + (f" ({count} cells)" if count > 1 else "")
        for reason, count in counts.items()
    ]


def last_line(failed: Sequence[FailedCell], *, cells: int, folder: Path) -> str:
    """Which cells failed, and where more is said of them."""
    named = "; ".join(map(str, failed[:_NAMED]))
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"failed: {len(failed)} of {cells} cells ({folder / FOLDER}): {named}{more}"
