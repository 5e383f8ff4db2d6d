"""Objectives on latencies: `METRIC SECONDS pNN`, as "ttft 1.0 p95, tpot 0.05 p95, jct 30 mean".

The value of an objective is a percentile, or the mean, over the counted requests of a run. A
request that was not answered is infinitely late. A request without a value (an answer of one token
has no time per further token and no gap) is left out of that objective.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.config.names import unknown_name
from harness.runs.figures import View
from harness.runs.latencies import GAP, latencies
from harness.runs.trace_intervals import Floats

METRICS = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "itl": GAP,
    "jct": "jct_s",
}
"""Name in an objective -> column: `itl` is the longest gap between two tokens of a request."""
MEAN, USUAL = "mean", "p95"
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Objective:
    """At most `limit_s` seconds of a metric: of a share of the requests, or in the mean (None)."""

    metric: str
    limit_s: float
    share: float | None

    @property
    def name(self) -> str:
        """The metric and the statistic, as "ttft p95"."""
        return f"{self.metric} {MEAN if self.share is None else f'p{self.share * 100:g}'}"

    @property
    def text(self) -> str:
        """As it is given."""
        metric, what = self.name.split()
        return f"{metric} {self.limit_s:g} {what}"

    @property
    def least_requests(self) -> int:
        """Requests that a percentile needs for one sample beyond it."""
        return 1 if self.share is None else int(np.ceil(round(1 / (1 - self.share), 6)))

    def value_s(self, seconds: Floats) -> Floats:
        """The percentile or the mean along the last axis, in seconds; inf counts, NaN does not.

        NaN where there is no number. Between two samples the percentile is interpolated.
        """
        rows = np.sort(seconds, axis=-1)  # NaN last
        count = (~np.isnan(rows)).sum(axis=-1)
        if self.share is None:
            sums = np.where(np.isnan(rows), 0.0, rows).sum(axis=-1)
            return np.where(count > 0, sums / np.maximum(count, 1), np.nan)
        place = np.maximum(count - 1, 0) * self.share
        below = np.floor(place).astype(np.int64)
        above = np.ceil(place).astype(np.int64)
        low, high = (np.take_along_axis(rows, it[..., None], -1)[..., 0] for it in (below, above))
        with np.errstate(invalid="ignore"):
            between = low + (place - below) * (high - low)
        return np.where(high == low, low, between)

    def is_kept(self, value_s: float) -> bool:
        """Whether a value is within the limit; one that is not known is not."""
        return value_s <= self.limit_s


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """The objectives of a comma-separated text. Raises ValueError for what is none."""
    found = [_objective(part.split(), part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError('no objective: --slo takes METRIC SECONDS pNN, as "ttft 1.0 p95"')
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--slo has two limits for {name}")
    return tuple(found)


def _objective(words: Sequence[str], said: str) -> Objective:
    if not 2 <= len(words) <= 3:
        raise ValueError(f"objective {said!r} is not METRIC SECONDS pNN, as ttft 1.0 p95")
    metric, seconds, what = words[0].lower(), words[1], (words[2] if words[2:] else USUAL).lower()
    if metric not in METRICS:
        raise ValueError(f"objective {said!r}: {unknown_name('metric', metric, METRICS)}")
    try:
        limit_s = float(seconds.lower().removesuffix("s"))
    except ValueError:
        raise ValueError(f"objective {said!r}: {seconds} is no number of seconds") from None
    if not 0 < limit_s < np.inf:
        raise ValueError(f"objective {said!r}: {seconds} seconds are not above 0")
    if what == MEAN:
        return Objective(metric, limit_s, None)
    matched = _PERCENTILE.fullmatch(what)
    share = float(matched[1]) / 100 if matched else 0.0
    if not 0 < share < 1:
        raise ValueError(f"objective {said!r}: {what} is neither a percentile, as p95, nor mean")
    return Objective(metric, limit_s, share)


def seconds_of(view: View) -> dict[str, Floats]:
    """Seconds of each counted request by metric: inf where it is unfinished, NaN where it has none.

    Requests are in order of their numbers.
    """
    rows = view.rows.sort_values("request")
    each = latencies(rows, horizon_s=view.horizon_s).assign(**{GAP: rows[GAP]})
    lost = ~each["finished"].to_numpy(bool)
    return {
        metric: np.where(lost, np.inf, each[column].to_numpy(np.float64))
        for metric, column in METRICS.items()
    }


def values_of(view: View, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The value of each objective, in seconds."""
    seconds = seconds_of(view)
    return tuple(float(one.value_s(seconds[one.metric])) for one in objectives)
