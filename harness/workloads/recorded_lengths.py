"""Lengths of the requests of a recorded file, for arrivals that are not the file's."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from harness.config import inputs
from harness.workloads.lengths import Drawn, Generator
from harness.workloads.trace_columns import OUTPUT_TOKENS, PROMPT_TOKENS
from harness.workloads.trace_file import read_trace


class RecordedLengths:
    """Prompt and answer of requests drawn from a file with replacement, each pair as it is there.

    Times, sessions and prefixes of the file are not used; rows without an answer are left out.
    """

    def __init__(self, *, file: str, columns: Mapping[str, str | int] | None) -> None:
        """A file as `workload=trace` reads it. Raises ValueError for any other."""
        path = Path(file).expanduser().resolve()
        if not path.is_file():
            raise ValueError(f"workload.lengths.file={file} is no file")
        rows = read_trace(path, columns, "drop")
        self._prompts = rows[PROMPT_TOKENS].to_numpy(np.int64)
        self._answers = rows[OUTPUT_TOKENS].to_numpy(np.int64)
        self.files: Mapping[str, str] = inputs.digests([path])

    def draw(self, count: int, prompts: Generator, outputs: Generator) -> Drawn:
        """As `Lengths`."""
        chosen = prompts.integers(len(self._prompts), size=count)
        return Drawn(self._prompts[chosen], self._answers[chosen])
