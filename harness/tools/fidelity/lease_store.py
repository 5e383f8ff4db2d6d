"""What a lease of a GPU leaves: one tar of tables and one summary per model, safe after every run.

A run is added to FOLDER/MODEL.tar before the next one begins, the figures of a step to
FOLDER/MODEL.json before the next step does. Later processes add to the files of earlier ones.
"""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from harness.config.scratch import write_whole


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure of one setting: every repetition or seed of it, measured and simulated."""

    setting: str
    figure: str
    measured: Sequence[float]
    simulated: Sequence[float]

    @property
    def is_known(self) -> bool:
        """Whether no value is NaN, as a percentile of few requests is."""
        return not any(map(isnan, (*self.measured, *self.simulated)))

    @property
    def error(self) -> float:
        """Simulated over measured means, less 1."""
        return fmean(self.simulated) / fmean(self.measured) - 1.0


class LeaseStore:
    """Files of one model below a folder."""

    def __init__(self, folder: Path, model: str, about: Mapping[str, Any]) -> None:
        """`about` says what measured, `engines` how those of each step were configured.

        Raises OSError where the folder cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.tar, self.summary = folder / f"{model}.tar", folder / f"{model}.json"
        self.engines: dict[str, Mapping[str, Any]] = {}
        self._content: dict[str, Any] = {**about, "steps": {}}
        if self.summary.is_file():
            self._content["steps"] = json.loads(self.summary.read_text(encoding="utf-8"))["steps"]

    def add(self, step: str, run: str, **tables: pd.DataFrame) -> None:
        """Add tables of a run, as STEP/RUN.TABLE.parquet."""
        for name, table in tables.items():
            data = io.BytesIO()
            table.to_parquet(data, index=False)
            self.add_file(f"{step}/{run}.{name}.parquet", data.getvalue())

    def add_file(self, name: str, data: bytes) -> None:
        """Add a file to the tar."""
        member = tarfile.TarInfo(name.replace(" ", "_"))
        member.size = len(data)
        with tarfile.open(self.tar, "a") as archive:
            archive.addfile(member, io.BytesIO(data))

    def end(self, step: str, seconds: float, rows: Sequence[FigureRow], failed: str = "") -> None:
        """A step has ended: its rows, or the sentence that says why it `failed`."""
        told: dict[str, Any] = {"seconds": round(seconds, 1), "rows": [asdict(row) for row in rows]}
        told |= {"engines": self.engines.get(step, {})}
        self._content["steps"][step] = told | ({"failed": failed} if failed else {})
        write_whole(self.summary, json.dumps(self._content, indent=1) + "\n")
