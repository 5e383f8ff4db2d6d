"""Whether simulated figures agree with measured ones, in three words, and which way they lean.

agrees        off by no more than the aim, and the noise is no more than that either
differs       off by more than the aim and by more than the noise
inconclusive  the noise is above the aim, and the figure is not off by more than the noise

A criterion that noise satisfies is none, so what is inconclusive counts for nothing; the headline
is the bias pooled over settings, with its sign, whose interval says how much is known.

Machines that others share drift by tens of per cent within minutes. So a fixed piece of work is
timed before and after a run, whose seconds are divided by how much longer than usual these probes
took, which leaves what the engine does. Below capacity waiting grows by more than that, so what is
divided out there is the least of it.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from harness.runs.stats import Estimate, geometric_mean_of

AIMS = {
    "makespan_s": 0.03,
    "jct_s_mean": 0.03,
    "jct_s_p99": 0.10,
    "ttft_s_mean": 0.05,
    "tpot_s_mean": 0.05,
}
"""Figures of a run, and the relative errors to stay below."""

SIZE = 384
PRODUCTS, ADDITIONS = 24, 400_000
"""About as long in products of matrices, as a model's layers, as in Python, as its scheduler."""

Row = Mapping[str, Any]
Probed = tuple[Mapping[str, float], float]
"""What a run took, by figure, and the mean of the probes before and after it."""
K = TypeVar("K", bound=Hashable)


class Word(StrEnum):
    """What is said of one figure."""

    AGREES = "agrees"
    DIFFERS = "differs"
    INCONCLUSIVE = "inconclusive"


def word_for(row: Row) -> Word:
    """Of a row of `compare`."""
    off = abs(row["error"])
    if off > max(row["aim"], row["noise"]):
        return Word.DIFFERS
    return Word.INCONCLUSIVE if row["noise"] > row["aim"] else Word.AGREES


def compare(
    place: Mapping[str, str], runs: Sequence[Mapping[str, float]], guess: Mapping[str, float]
) -> list[dict[str, Any]]:
    """One row per figure of repeated runs at a `place`: measured mean, simulated, error, noise.

    The noise is how far one repetition is from the mean of the others, on average: nothing can be
    predicted better. A percentile that so few requests do not have (NaN) gives no row.
    """
    rows = []
    for name, aim in AIMS.items():
        values = np.array([run[name] for run in runs])
        if np.isnan([*values, guess[name]]).any():
            continue
        others = (values.sum() - values) / (len(values) - 1)
        rows.append(
            {
                **place,
                "figure": name,
                "measured": float(values.mean()),
                "simulated": guess[name],
                "error": guess[name] / float(values.mean()) - 1.0,
                "noise": float(np.abs(values / others - 1.0).mean()),
                "aim": aim,
                "repetitions": len(values),
            }
        )
    return rows


def pooled_bias(rows: Sequence[Row], figure: str) -> Estimate:
    """Simulated over measured, less 1, over all settings of these rows; one value each.

    Settings of one model share its profile, so that they are not independent of each other: the
    interval is of these settings, not of other models.
    """
    ratios = [row["simulated"] / row["measured"] for row in rows if row["figure"] == figure]
    found = geometric_mean_of(ratios)
    low, high = (None if end is None else end - 1.0 for end in (found.low, found.high))
    return Estimate(found.value - 1.0, low, high, found.count)


def bias_text(bias: Estimate) -> str:
    """As printed: `-3.1% [-4.0, -2.2]`."""
    if bias.low is None or bias.high is None:
        return f"{bias.value:+.1%}"
    return f"{bias.value:+.1%} [{bias.low * 100:+.1f}, {bias.high * 100:+.1f}]"


def counts_text(rows: Sequence[Row]) -> str:
    """How many figures agree, differ, and are inconclusive."""
    words = [word_for(row) for row in rows]
    counts = ", ".join(f"{words.count(word)} {word}" for word in Word)
    return f"of {len(rows)} figures: {counts}"


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


def probed(run: Callable[[], Mapping[str, float]]) -> Probed:
    """The run between two probes."""
    before_s = probe_s()
    seconds = run()
    return seconds, (before_s + probe_s()) / 2


def steady(runs: Mapping[K, Sequence[Probed]]) -> dict[K, list[dict[str, float]]]:
    """The seconds of all runs as if the machine had always been as fast as usual.

    Usual is the median of all their probes.
    """
    usual_s = statistics.median(each_s for those in runs.values() for _, each_s in those)
    return {
        key: [
            {name: value * usual_s / each_s for name, value in seconds.items()}
            for seconds, each_s in those
        ]
        for key, those in runs.items()
    }
