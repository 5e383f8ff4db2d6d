"""Cells that failed: what went wrong is kept beside the runs, where reading never takes it for one.

`results/<scenario>/.failed/<run>/` holds config.yaml, error.json (the sentence, the kind of error,
the cell's place in the scenario) and log.txt (the traceback). When the cell succeeds it goes.
"""

import gc
import json
import os
import shutil
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from harness.runs.cells import Cell, Computed, compute
from harness.runs.leftovers import TRIES, being_written
from harness.runs.matrix import Place
from harness.runs.plain import as_plain
from harness.runs.record import RecordError, as_yaml
from harness.runs.run_key import run_id
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
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        kind = type(error).__name__
        # A sentence from elsewhere may be as short as a key's name.
        said = lines[0] if lines else kind
        sentence = said if isinstance(error, ValueError) else f"{kind}: {said}" if lines else kind
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


def attempt(cell: Cell) -> Computed | Failure:
    """What the cell gives, or why it gives nothing.

    A policy that leaves Python counts as failed too. Interrupts are let through.
    """
    try:
        return compute(cell)
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
        "ended": datetime.fromtimestamp(time.time(), UTC).isoformat(),
    }
    try:
        with being_written(place) as temporary:
            written = temporary / "new"
            written.mkdir()
            (written / "config.yaml").write_text(as_yaml(failed.config))
            (written / "error.json").write_text(json.dumps(said, indent=2) + "\n")
            (written / "log.txt").write_text(failed.failure.log)
            _put(written, place, temporary)
    except OSError as error:
        raise RecordError(f"could not write {place}: {error.strerror or error}") from error


def _put(written: Path, place: Path, temporary: Path) -> None:
    """Give a folder its place, what was there going with `temporary`. Raises OSError.

    Another command may record the same cell at the same time: the last record stays.
    """
    for number in range(TRIES):
        with suppress(FileNotFoundError):
            place.rename(temporary / f"before-{number}")
        with suppress(OSError):
            written.rename(place)
            return
    written.rename(place)


def forget(folder: Path, run: str) -> None:
    """The cell has succeeded: nothing is kept of its failures."""
    shutil.rmtree(folder / FOLDER / run, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(folder / FOLDER)


def as_rows(failed: Sequence[FailedCell]) -> pd.DataFrame:
    """A row for each, as `read_summaries` has them of runs, `failed` and without figures."""
    names = {cell.run: cell.config.get("system") for cell in failed}
    rows: dict[str, dict[str, object]] = {
        run: {FAILED: True, SYSTEM: name.get("name") if isinstance(name, Mapping) else name}
        for run, name in names.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def sentences(failed: Sequence[FailedCell]) -> list[str]:
    """Why cells failed: a line for each reason, with how many cells had it."""
    reasons = [cell.failure.sentence for cell in failed]
    counts = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
    return [
        f"error: {reason}" + (f" ({count} cells)" if count > 1 else "")
        for reason, count in counts.items()
    ]


def last_line(failed: Sequence[FailedCell], *, cells: int, folder: Path) -> str:
    """Which cells failed, and where more is said of them."""
    named = "; ".join(map(str, failed[:_NAMED]))
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"failed: {len(failed)} of {cells} cells ({folder / FOLDER}): {named}{more}"
