"""Whether simulated figures agree with measured ones, in three words, and which way they lean.

agrees        off by no more than the aim, and the noise is no more than that either
differs       off by more than the aim and by more than the noise
inconclusive  the noise is above the aim, and the figure is not off by more than the noise

A criterion that noise satisfies is none, so what is inconclusive counts for nothing; the headline
is the bias pooled over settings, with its sign, whose interval says how much is known.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from harness.runs.stats import Estimate, geometric_mean_of
from harness.runs.validity import LATE

AIMS = {
    "makespan_s": 0.03,
    "jct_s_mean": 0.03,
    "jct_s_p99": 0.10,
    "ttft_s_mean": 0.05,
    "tpot_s_mean": 0.05,
}
"""Figures of a run, and the relative errors to stay below."""

AgreementRow = Mapping[str, Any]


class AgreementWord(StrEnum):
    """What is said of one figure."""

    AGREES = "agrees"
    DIFFERS = "differs"
    INCONCLUSIVE = "inconclusive"


def word_for(row: AgreementRow) -> AgreementWord:
    """Of a row of `compare`."""
    off = abs(row["error"])
    if off > max(row["aim"], row["noise"]):
        return AgreementWord.DIFFERS
    return AgreementWord.INCONCLUSIVE if row["noise"] > row["aim"] else AgreementWord.AGREES


def compare(
    place: Mapping[str, str],
    runs: Sequence[Mapping[str, float]],
    guesses: Sequence[Mapping[str, float]],
) -> list[dict[str, Any]]:
    """One row per figure of repeated runs at a `place`: measured mean, simulated, error, noise.

    `guesses` are what was simulated of each run. The noise is how far measured over simulated of
    one run is from the mean of the others, on average: nothing can be predicted better. A
    percentile that so few requests do not have (NaN) gives no row.
    """
    rows = []
    for name, aim in AIMS.items():
        values = np.array([run[name] for run in runs])
        simulated = np.array([guess[name] for guess in guesses])
        if np.isnan([*values, *simulated]).any():
            continue
        ratios = values / simulated
        others = (ratios.sum() - ratios) / (len(ratios) - 1)
        noise = float(np.abs(ratios / others - 1.0).mean())
        found = row_of(place, name, float(values.mean()), float(simulated.mean()), noise)
        rows.append(found | {"aim": aim, "repetitions": len(values)})
    return rows


def row_of(
    place: Mapping[str, str], figure: str, measured: float, simulated: float, noise: float
) -> dict[str, Any]:
    """One figure at a place, and how far it is off."""
    about = {"figure": figure, "measured": measured, "simulated": simulated}
    return {**place, **about, "error": simulated / measured - 1.0, "noise": noise}


def pooled_bias(rows: Sequence[AgreementRow], figure: str) -> Estimate:
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


def counts_text(rows: Sequence[AgreementRow]) -> str:
    """How many figures agree, differ, and are inconclusive."""
    words = [word_for(row) for row in rows]
    counts = ", ".join(f"{words.count(word)} {word}" for word in AgreementWord)
    return f"of {len(rows)} figures: {counts}"


def late_text(runs: Sequence[tuple[float, float]]) -> str:
    """How late requests were taken in, and in how many runs later than `LATE` of the mean TTFT.

    `runs` are the means of both, in seconds.
    """
    shares = [lag_s / ttft_s for lag_s, ttft_s in runs]
    late, mean_ms = sum(share > LATE for share in shares), 1e3 * np.mean([it for it, _ in runs])
    return (
        f"requests were taken in {mean_ms:.2f} ms late on average, in {late} of {len(runs)} runs "
        f"later than {LATE:.0%} of the mean TTFT (at most {max(shares):.1%})"
    )
