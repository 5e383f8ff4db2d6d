"""Intervals of figures of one trace: from blocks of it, since seeds draw nothing of a replay.

A trace is one sample, of requests that follow each other and wait for each other. A circular block
bootstrap draws blocks of consecutive requests, by arrival, until there are as many as in the trace;
the middle 95% of a figure over such draws is its interval (Kuensch, Annals of Statistics 17(3),
1989; Politis and Romano 1992). Rates (requests, tokens or met objectives a second) are drawn by
blocks of time, of what ended in each. Blocks are a twentieth of the trace: dependence that lasts
longer, such as an overload, makes the interval too narrow. A share of which blocks tell nothing,
since all or no requests have met their objectives, has the binomial interval of Wilson (1927).

Two runs of the same requests are contrasted on the same draws, by ratio and by difference: a figure
that may be 0 has a difference where it has no ratio.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from harness.runs.latencies import PERCENTILES, latencies
from harness.runs.stats import LEVEL, Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEY = "trace_interval"
"""Of a run's summary: intervals by figure, and `BLOCK`, which every run of a trace has."""
BLOCK = "block_requests"
BLOCKS = 20
LEAST_REQUESTS = 2 * BLOCKS
"""Of a trace with an interval."""
DRAWS, VALUES, LEAST_DRAWS = 1000, 1_000_000, 200
"""Most draws, and values of all of them; a long trace has fewer draws."""
LEAST_EFFECT = 0.005
"""Relative difference of a figure below which runs are alike."""
ATTAINMENT = "slo_attainment"
RATES = ("requests_per_s", "output_tokens_per_s", "goodput_per_s")


@dataclass(frozen=True)
class Served:
    """What figures of a run are made of: values of its counted requests.

    Requests are in order of their numbers: by arrival, or of sessions one after the other.
    `latencies` has seconds by name (NaN where a request has none), `met` is 1 or 0 by whether a
    request has met its objectives, None where there are none. Requests ended `ended_s` seconds
    after counting began (NaN: not), with `output_tokens`; the run took `span_s`.
    """

    latencies: Mapping[str, Floats]
    met: Floats | None
    ended_s: Floats
    output_tokens: Floats
    span_s: float

    @classmethod
    def of(cls, requests: pd.DataFrame, *, begin_s: float, horizon_s: float) -> "Served":
        """Of the counted rows of a run's requests that came before its end.

        `met` is None where they have no such column.
        """
        rows = requests[requests["arrival_s"] <= horizon_s].sort_values("request")
        each = latencies(rows, horizon_s=horizon_s)
        return cls(
            latencies={str(name): each[name].to_numpy(np.float64) for name in each},
            met=rows["met"].to_numpy(np.float64) if "met" in rows else None,
            ended_s=rows["finished_s"].to_numpy(np.float64) - begin_s,
            output_tokens=rows["output_tokens"].to_numpy(np.float64),
            span_s=horizon_s - begin_s,
        )

    @cached_property
    def _places(self) -> Ints:
        return draws_of(len(self.ended_s))

    @cached_property
    def _drawn(self) -> dict[str, tuple[float, Floats] | None]:
        """What `drawn` has found: a run is contrasted with many."""
        return {}

    @cached_property
    def _rows(self) -> dict[str, Floats]:
        """Of latencies, their values in every draw, ascending: all figures of one are of these."""
        return {}

    def drawn(self, figure: str) -> tuple[float, Floats] | None:
        """A figure, and its values over the draws; None where it is of another kind."""
        if figure not in self._drawn:
            self._drawn[figure] = self._draw(figure)
        return self._drawn[figure]

    def _draw(self, figure: str) -> tuple[float, Floats] | None:
        if not block_requests(len(self.ended_s)):
            return None
        if figure in RATES:
            return self._rate(figure)
        if figure == ATTAINMENT:
            met = self.met
            return None if met is None else (float(met.mean()), met[self._places].mean(axis=-1))
        name, _, what = figure.rpartition("_")
        values = self.latencies.get(name)
        if values is None or np.isnan(values).all() or what not in ("mean", *PERCENTILES):
            return None
        if name not in self._rows:
            self._rows[name] = np.sort(values[self._places], axis=-1)
        if what == "mean":
            return float(np.nanmean(values)), np.nanmean(self._rows[name], axis=-1)
        share = PERCENTILES[what]
        return float(np.nanquantile(values, share)), _quantiles(self._rows[name], share)

    def _rate(self, figure: str) -> tuple[float, Floats] | None:
        """What ended a second, by blocks of time."""
        weights = {
            "requests_per_s": np.ones_like(self.ended_s),
            "output_tokens_per_s": self.output_tokens,
            "goodput_per_s": self.met,
        }[figure]
        if weights is None or not self.span_s > 0:
            return None
        ended = ~np.isnan(self.ended_s)
        sums, _ = np.histogram(
            self.ended_s[ended], BLOCKS, range=(0.0, self.span_s), weights=weights[ended]
        )
        slots = np.random.default_rng(BLOCKS).integers(BLOCKS, size=(DRAWS, BLOCKS))
        rates: Floats = sums[slots].sum(axis=-1) / self.span_s
        return float(sums.sum() / self.span_s), rates


@dataclass(frozen=True, slots=True)
class Contrast:
    """A figure of one run against that of another of the same requests.

    `ratio` is None where it would be of nothing, `difference` where blocks tell nothing: such runs
    are not alike, it is not told whether they are.
    """

    ratio: Estimate | None
    difference: Estimate | None

    @property
    def sign(self) -> int | None:
        """1 where the one is larger beyond noise, -1 where it is smaller, 0 else; None: not told.

        Within `LEAST_EFFECT` runs are alike, however sure the effect is.
        """
        if self.difference is None:
            return None
        if self.ratio is not None and abs(self.ratio.value - 1) < LEAST_EFFECT:
            return 0
        low, high = self.difference.ends
        return int(low > 0) - int(high < 0)


def contrast(one: Served, other: Served, figure: str) -> Contrast:
    """A figure of two runs of the same requests, from the same draws of both."""
    above, below = one.drawn(figure), other.drawn(figure)
    if above is None or below is None or len(above[1]) != len(below[1]):
        return Contrast(None, None)
    value, least = above[0] - below[0], _ends(above[1] - below[1])
    difference = Estimate(value, *least, 1)
    if not (above[0] > 0 and below[0] > 0):
        return Contrast(None, difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = _ends(above[1] / below[1])
    return Contrast(Estimate(above[0] / below[0], *ends, 1), difference)


def block_requests(requests: int) -> int:
    """Requests of a block; 0 where there are too few for an interval."""
    return requests // BLOCKS if requests >= LEAST_REQUESTS else 0


def draws_of(requests: int) -> Ints:
    """Places of requests, a row per draw: blocks of consecutive ones, from the end to the start."""
    size = block_requests(requests)
    count = int(np.clip(VALUES // requests, LEAST_DRAWS, DRAWS))
    blocks = -(-requests // size)
    first = np.random.default_rng(requests).integers(requests, size=(count, blocks, 1))
    found: Ints = ((first + np.arange(size)) % requests).reshape(count, -1)[:, :requests]
    return found


def trace_intervals(
    served: Served, figures: Mapping[str, float]
) -> dict[str, float | dict[str, float]]:
    """What a summary has under `KEY`: `low` and `high` of every figure that blocks tell of.

    Figures that are NaN have none.
    """
    found: dict[str, float | dict[str, float]] = {BLOCK: float(block_requests(len(served.ended_s)))}
    if not found[BLOCK]:
        return found
    for figure, value in figures.items():
        if np.isnan(value) or (drawn := served.drawn(figure)) is None:
            continue
        low, high = _ends(drawn[1])
        if figure == ATTAINMENT:
            least, most = _wilson(drawn[0], len(served.ended_s))
            low, high = min(low, least), max(high, most)
        found[figure] = {"low": low, "high": high}
    return found


def _wilson(share: float, count: int) -> tuple[float, float]:
    """The binomial interval of a share of so many independent requests."""
    z = float(ndtri((1 + LEVEL) / 2))
    middle = share + z * z / (2 * count)
    half = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


def _quantiles(rows: Floats, share: float) -> Floats:
    """The quantile of each ascending row, in which NaN come last; NaN of a row without values."""
    last = np.maximum(rows.shape[-1] - np.isnan(rows).sum(axis=-1) - 1, 0)
    place = last * share
    below = np.floor(place).astype(np.int64)
    ends = [
        np.take_along_axis(rows, it[:, None], -1)[:, 0] for it in (below, below + (place > below))
    ]
    found: Floats = ends[0] + (place - below) * (ends[1] - ends[0])
    return found


def _ends(values: Floats) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    return float(np.nanquantile(values, tail)), float(np.nanquantile(values, 1 - tail))
