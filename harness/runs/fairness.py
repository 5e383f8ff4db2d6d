"""How evenly tenants were served while they waited: from arrivals, starts, ends and tokens.

Service is prompt tokens and twice the answer's (arXiv 2401.00588 sec. 3.2, whose measures these
are). A record has no token's own time: a request's service counts as received evenly from its
start to its end. A tenant is backlogged while a request of it waits for its start.
"""

from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

OUTPUT_WEIGHT = 2.0
MOST_TENANTS = 50  # with the most requests; all pairs are compared
MOST_TIMES = 20_000  # at which they are compared, evenly among all events where there are more

Floats = NDArray[np.float64]


def fairness_figures(requests: pd.DataFrame, *, horizon_s: float) -> dict[str, float]:
    """Two figures over tenants; NaN where fewer than two were ever backlogged.

    `service_difference_max` is the most by which the service of one exceeded that of another over
    a time in which both were backlogged all along, in weighted tokens. `fairness_jain` is Jain's
    index (1/tenants..1) of the service that each received a second of its backlog.
    """
    several = np.isfinite(horizon_s) and requests["tenant"].nunique() > 1
    tenants = _tenants(requests, horizon_s) if several else []
    times = np.unique(np.concatenate([np.zeros(1), *(it for rows in tenants for it in rows[:3])]))
    if len(times) > MOST_TIMES:
        times = times[np.linspace(0, len(times) - 1, MOST_TIMES).round().astype(int)]
    received = [_received(rows, times) for rows in tenants]
    waits = [_is_backlogged(rows, times) for rows in tenants]
    rates = [
        float(np.diff(service)[waiting].sum() / np.diff(times)[waiting].sum())
        for service, waiting in zip(received, waits, strict=True)
        if waiting.any()
    ]
    spread = [
        _widest(received[one] - received[other], waits[one] & waits[other])
        for one, other in combinations(range(len(tenants)), 2)
    ]
    few = len(rates) < 2
    return {
        "service_difference_max": np.nan if few else max(spread),
        "fairness_jain": np.nan if few else jain(np.array(rates)),
    }


def tenant_service(requests: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Service that each tenant received, where there are several: `service_tokens`, weighted."""
    if not 2 <= requests["tenant"].nunique() <= MOST_TENANTS:
        return {}
    begun = requests[requests["started_s"].notna()]
    tokens = begun["prompt_tokens"] + OUTPUT_WEIGHT * begun["output_tokens"]
    sums = tokens.groupby(begun["tenant"], observed=True).sum()
    return {str(name): {"service_tokens": float(total)} for name, total in sums.items()}


def jain(values: Floats) -> float:
    """Jain's index: 1 where all are equal, 1/n where one has everything. NaN of nothing."""
    total = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * total)) if total > 0 else np.nan


def _tenants(
    requests: pd.DataFrame, horizon_s: float
) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """Of each: when its requests arrive, start and end, and their service."""
    start_s = requests["started_s"].fillna(horizon_s)
    columns = pd.DataFrame(
        {
            "arrival": requests["arrival_s"],
            "start": start_s,
            "end": np.maximum(requests["finished_s"].fillna(horizon_s), start_s),
            "service": (
                requests["prompt_tokens"] + OUTPUT_WEIGHT * requests["output_tokens"]
            ).where(requests["started_s"].notna(), 0.0),
        }
    ).astype(float)
    names = requests["tenant"].astype(str)
    most = names.value_counts().index[:MOST_TENANTS]
    parts = (columns[names == name] for name in sorted(most))
    return [tuple(part[it].to_numpy() for it in columns) for part in parts]


def _received(rows: tuple[Floats, Floats, Floats, Floats], times: Floats) -> Floats:
    """Service received up to each time."""
    _, start_s, end_s, service = rows
    at_once = end_s <= start_s
    rate = np.divide(service, end_s - start_s, out=np.zeros(len(service)), where=~at_once)
    events = np.concatenate([start_s, end_s])
    order = np.argsort(events, kind="stable")
    events = events[order]
    slope = np.cumsum(np.concatenate([rate, -rate])[order])
    so_far = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(events))])
    ends, received = start_s[at_once], service[at_once]
    in_turn = np.argsort(ends, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(received[in_turn])])
    ended = np.searchsorted(ends[in_turn], times, "right")
    found: Floats = np.interp(times, events, so_far) + sums[ended]
    return found


def _is_backlogged(rows: tuple[Floats, Floats, Floats, Floats], times: Floats) -> NDArray[np.bool_]:
    """Whether a request waits from each time to the next."""
    arrived, started = (np.searchsorted(np.sort(rows[it]), times[:-1], "right") for it in (0, 1))
    waiting: NDArray[np.bool_] = arrived > started
    return waiting


def _widest(difference: Floats, both: NDArray[np.bool_]) -> float:
    """The most by which a difference moves within a time that is theirs throughout."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], both, [False]]).astype(int)))
    spans = zip(edges[::2], edges[1::2], strict=True)
    return max((float(np.ptp(difference[begin : end + 1])) for begin, end in spans), default=0.0)
