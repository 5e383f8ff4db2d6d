"""What a calibration has measured so far, in a file: an interrupted one goes on from there."""

import json
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One iteration: what it computed, and its seconds by part."""

    prompts: int
    prompt_tokens: int
    attended: float
    decodes: int
    context_tokens: int
    longest_tokens: int
    seconds: tuple[float, ...]


def _sample(row: list[Any]) -> Sample:
    *counts, seconds = row
    return Sample(*(*counts, tuple(seconds)))


class Checkpoint:
    """Measured runs of a sweep by repetition and place, a line each below one that says of what.

    A file about anything else (another model, engine, machine or design) is begun anew; a line that
    was not written to its end is measured again.
    """

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        self._path = path
        self._runs: dict[tuple[int, int], list[Sample]] = {}
        head = json.dumps(about, sort_keys=True)
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
        if lines[:1] == [head]:
            self._read(lines[1:-1])  # behind the last line's end is nothing, or half a line
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}\n", encoding="utf-8")
        for (repetition, place), samples in self._runs.items():
            self._write(repetition, place, samples)

    def __len__(self) -> int:
        """How many runs are there."""
        return len(self._runs)

    def get(self, repetition: int, place: int) -> list[Sample] | None:
        """The iterations of a run; None where it has not been measured."""
        return self._runs.get((repetition, place))

    def add(self, repetition: int, place: int, samples: list[Sample]) -> None:
        """Keep a run, on the disk when this returns."""
        self._runs[repetition, place] = samples
        self._write(repetition, place, samples)

    def discard(self) -> None:
        """Remove the file: what it held is stored elsewhere now."""
        self._path.unlink(missing_ok=True)

    def _read(self, lines: list[str]) -> None:
        for line in lines:
            repetition, place, rows = json.loads(line)
            self._runs[repetition, place] = [_sample(row) for row in rows]

    def _write(self, repetition: int, place: int, samples: list[Sample]) -> None:
        line = json.dumps([repetition, place, [astuple(sample) for sample in samples]])
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
