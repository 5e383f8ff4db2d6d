"""How fast this machine is at the moment: a fixed piece of work, timed before and after a run.

Machines that others share drift by tens of per cent within minutes. The seconds of a run are
divided by how much longer than usual its probes took, which leaves what the engine does. Below
capacity waiting grows by more than that, so what is divided out there is the least of it.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

SIZE = 384
PRODUCTS, ADDITIONS = 24, 400_000
"""About as long in products of matrices, as a model's layers, as in Python, as its scheduler."""

Seconds = Mapping[str, float]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Probed:
    """What a run took, by figure, and the mean of the probes before and after it."""

    seconds: Seconds
    probe_s: float


def probe_s() -> float:
    """Seconds of the piece of work, on one thread."""
    rng = np.random.default_rng(0)
    left, right = (rng.random((SIZE, SIZE), np.float32) for _ in range(2))
    started_s, total = time.perf_counter(), 0
    for _ in range(PRODUCTS):
        left = left @ right
        left /= left.max()
    for number in range(ADDITIONS):
        total += number
    return time.perf_counter() - started_s


def probed(run: Callable[[], Seconds]) -> Probed:
    """The run between two probes."""
    before_s = probe_s()
    seconds = run()
    return Probed(seconds, (before_s + probe_s()) / 2)


def steady(runs: Mapping[K, Sequence[Probed]]) -> dict[K, list[dict[str, float]]]:
    """The seconds of all runs as if the machine had always been as fast as usual.

    Usual is the median of all their probes.
    """
    usual_s = statistics.median(run.probe_s for those in runs.values() for run in those)
    return {
        key: [
            {name: value * usual_s / run.probe_s for name, value in run.seconds.items()}
            for run in those
        ]
        for key, those in runs.items()
    }
