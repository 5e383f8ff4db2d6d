"""How sure the values of objectives are: blocks of the trace, and the error of the costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.capacity.objectives import Objective
from harness.runs.stats import LEVEL
from harness.runs.trace_intervals import Floats, block_requests, draws_of


@dataclass(frozen=True, slots=True)
class Interval:
    """The middle 95% of an objective's value over draws of blocks of the trace, in seconds."""

    low_s: float
    high_s: float


def intervals(
    objectives: Sequence[Objective], seconds: Mapping[str, Floats]
) -> tuple[list[Interval], float]:
    """An interval for each objective, and the share of the draws that keep all objectives.

    `seconds` are those of `seconds_of`. No interval, and NaN, of too few requests for blocks.
    """
    count = len(next(iter(seconds.values())))
    if not block_requests(count):
        return [], np.nan
    places = draws_of(count)
    found, is_kept = [], np.ones(len(places), np.bool_)
    tail = (1 - LEVEL) / 2
    for one in objectives:
        drawn = np.sort(one.value_s(seconds[one.metric][places]))
        low_s, high_s = np.quantile(drawn, [tail, 1 - tail], method="inverted_cdf")
        found.append(Interval(float(low_s), float(high_s)))
        is_kept &= one.value_s(seconds[one.metric][places]) <= one.limit_s
    return found, float(is_kept.mean())


def error_of(errors: Mapping[str, float]) -> float:
    """The larger of the median errors of prompts and decodes, as a share; 0 where none is told."""
    return max(errors.get(f"{phase}_median", 0.0) for phase in ("prefill", "decode"))
