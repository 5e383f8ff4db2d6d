"""Workloads of cells that fail, on whatever worker they run."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.runs.cells import WorkloadFactory
from harness.workloads.workload import Workload


@dataclass(frozen=True)
class Failing:
    """A recipe that cannot be followed."""

    error: BaseException
    files: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    def build(self, seed: int) -> Workload:
        """Raise."""
        raise self.error


@dataclass(frozen=True)
class Deadly:
    """A recipe whose worker is killed, as by a kernel out of memory, so many times.

    Every time leaves a file in `folder`.
    """

    inner: WorkloadFactory
    folder: Path
    times: int
    files: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    def build(self, seed: int) -> Workload:
        """Die, or follow the recipe inside."""
        for time_before in range(self.times):
            mark = self.folder / f"{seed}-{time_before}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.build(seed)
