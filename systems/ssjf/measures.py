"""Throughput of one run in the three readings that figures 6 to 9 allow.

The paper does not define throughput. Its program reads it when a quarter of the jobs has finished.
"""

import numpy as np

from harness.runs.cells import Run
from harness.runs.stats import Floats

QUARTER = 0.25
"""Of the requests: when the authors' program reads throughput."""


def quarter_per_s(run: Run) -> float:
    """Requests answered per second when a quarter of them has been, as the program reads it.

    Seconds count from the first arrival.
    """
    arrival_s, finished_s = _arrived_and_finished_s(run)
    ends_s = np.sort(np.where(np.isnan(finished_s), np.inf, finished_s)) - arrival_s.min()
    at_s = float(np.quantile(ends_s, QUARTER))
    return float(np.searchsorted(ends_s, at_s, side="right") / at_s)


def answered_per_s(run: Run) -> float:
    """Requests answered per second while requests come in, from the first arrival to the last."""
    arrival_s, finished_s = _arrived_and_finished_s(run)
    first_s, last_s = arrival_s.min(), arrival_s.max()
    return float((finished_s <= last_s).sum() / (last_s - first_s))


def whole_per_s(run: Run) -> float:
    """Requests answered per second from the first arrival to the last answer."""
    arrival_s, finished_s = _arrived_and_finished_s(run)
    answered = finished_s[~np.isnan(finished_s)]
    return float(len(answered) / (answered.max() - arrival_s.min())) if len(answered) else 0.0


def _arrived_and_finished_s(run: Run) -> tuple[Floats, Floats]:
    """When each request arrived and when it was answered, NaN if never."""
    arrival_s, finished_s = run.columns("requests", "arrival_s", "finished_s").to_numpy(float).T
    return arrival_s, finished_s
