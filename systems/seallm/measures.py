"""Figures of SeaLLM's claims that no run's summary holds."""

import json
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
import pandas as pd

from harness.config.paths import PROFILES
from harness.runs.cells import Run

SLO_SCALE = 5.0
"""Section 6.1: the SLO is five times the execution time of each request."""
POPULAR = 0.186
"""Of all: what Shahrad et al. (USENIX ATC 2020), section 3.3, call the most popular."""


@lru_cache(maxsize=4096)
def _requests(run: Run) -> pd.DataFrame:
    """Requests with `latency_s`; what has not been answered enters at its age at the last answer.

    `solo_s` is what a request takes alone on the fewest GPUs, `mean_solo_s` the mean of its
    service.
    """
    rows = run.columns("requests", "service", "arrival_s", "finished_s", "solo_s")
    ends_s = rows["finished_s"].fillna(rows["finished_s"].max())
    by_service = rows.groupby("service", observed=True)["solo_s"]
    return pd.DataFrame(
        {
            "latency_s": ends_s - rows["arrival_s"],
            "is_answered": rows["finished_s"].notna(),
            "solo_s": rows["solo_s"],
            "mean_solo_s": by_service.transform("mean"),
        }
    )


def normalized_latency(run: Run) -> float:
    """Mean of latency over the mean execution time of the request's service (eq. 1)."""
    rows = _requests(run)
    return float((rows["latency_s"] / rows["mean_solo_s"]).mean())


def attainment(run: Run, scale: float = SLO_SCALE) -> float:
    """Share of requests answered within `scale` times their own execution time.

    A run that meets no SLO counts half a request, so that ratios exist.
    """
    rows = _requests(run)
    return _share(rows, scale * rows["solo_s"])


@cache
def attainment_at(scale: float) -> Callable[[Run], float]:
    """The share within `scale` times the mean execution time of the service (section 6.3)."""

    def share(run: Run) -> float:
        rows = _requests(run)
        return _share(rows, scale * rows["mean_solo_s"])

    return share


def _share(rows: pd.DataFrame, limit_s: "pd.Series[float]") -> float:
    met = int((rows["is_answered"] & (rows["latency_s"] <= limit_s)).sum())
    return max(met, 0.5) / len(rows)


def placement_s(run: Run) -> float:
    """Wall-clock seconds of all placement searches of a run, on one core."""
    return float(run.facts["decisions"]["place"]["s_sum"])


def _backlogs_s(run: Run) -> "pd.Series[float]":
    """Seconds until each service has all its answers, of requests that come at once."""
    return (
        run.columns("requests", "service", "finished_s")
        .groupby("service", observed=True)["finished_s"]
        .max()
    )


def busiest_backlog_s(run: Run) -> float:
    """Seconds in which dedicated engines answer the requests of the service that takes longest."""
    return float(_backlogs_s(run).max())


def mean_backlog_s(run: Run) -> float:
    """Seconds in which all GPUs would answer a backlog that is spread evenly over them."""
    return float(_backlogs_s(run).mean())


def calls_of_most_popular(run: Run) -> float:
    """The share of calls that the most popular functions of a run's arrivals have.

    `POPULAR` of all; the trace's paper has it for applications.
    """
    name = run.config["workload"]["arrivals"]["popularity"]
    table = json.loads((PROFILES / "arrivals" / f"{name}.json").read_text())
    ranks, shares = np.array(table["shares_of_first"]).T
    return float(np.interp(np.log(POPULAR * ranks[-1]), np.log(ranks), shares))


def explained_by_service(run: Run) -> float:
    """Share of the variance of seconds alone that the means of services explain."""
    rows = _requests(run)
    within = (rows["solo_s"] - rows["mean_solo_s"]).var()
    return float(1.0 - within / rows["solo_s"].var())
