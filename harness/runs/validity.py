"""How much of a run lies outside what its cost profiles measured, or came late to an engine."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.interface.entities import Group, ServiceId

Floats = NDArray[np.float64]
Ranges = Mapping[str, tuple[int, int]]

LOGGED_REQUESTS = 100_000
"""Of larger workloads iterations are logged only where they are asked for: they fill memory."""

LEAST_LOGGED = 0.99
"""Share of the busy GPU seconds whose iterations must be known for anything to be said."""


LATE = 0.01
"""Share of the mean TTFT above which a run says that its requests were taken in late."""


def late_notes(requests: pd.DataFrame) -> list[str]:
    """A sentence where a real engine took requests in later than `LATE` of their mean TTFT."""
    if "lag_s" not in requests:
        return []
    lag_s = float(requests["lag_s"].mean())
    ttft_s = float((requests["first_token_s"] - requests["arrival_s"]).mean())
    if not lag_s > LATE * ttft_s:
        return []
    return [
        f"requests were taken in {1e3 * lag_s:.2f} ms late on average, {lag_s / ttft_s:.1%} of the "
        "mean TTFT, which includes it"
    ]


def outside_share(
    iterations: pd.DataFrame | None,
    groups: Iterable[Group],
    ranges: Callable[[ServiceId, int], Ranges],
    *,
    busy_gpu_s: float,
) -> float:
    """Share of the busy GPU seconds in iterations outside the measured ranges, 0 to 1.

    `iterations` has a row for every run of equal ones, whose contexts grow by a token each;
    `ranges` has the smallest and largest measured value by quantity, of a service at a degree. NaN
    where the iterations, or what they cost, are not known: where they were not logged, of groups
    of several services, and of measured seconds.
    """
    if iterations is None:
        return np.nan
    outside_s = logged_s = 0.0
    codes, names = pd.factorize(iterations["group"])
    by_name = {str(group.id): group for group in groups}
    # Groups of one service and degree have the same ranges.
    alike: dict[tuple[ServiceId, int], list[int]] = {}
    for code, name in enumerate(names):
        group = by_name[str(name)]
        if len(group.services) > 1:
            return np.nan
        (service,) = group.services
        alike.setdefault((service, group.tensor_parallel), []).append(code)
    for (service, tensor_parallel), some in alike.items():
        rows = iterations if len(alike) == 1 else iterations[np.isin(codes, some)]
        seconds = rows["duration_s"].to_numpy() * tensor_parallel
        logged_s += float(seconds.sum())
        outside_s += float((seconds * outside(rows, ranges(service, tensor_parallel))).sum())
    if logged_s < LEAST_LOGGED * busy_gpu_s or logged_s == 0.0:
        return np.nan
    return outside_s / logged_s


def outside(rows: pd.DataFrame, ranges: Ranges) -> Floats:
    """Of each run of equal iterations the share that any range does not hold, 0 to 1.

    A quantity of 0 is none: no prompts, no decodes. With decodes every iteration adds a token to
    each context.
    """
    runs = rows["iterations"].to_numpy(np.float64)
    decodes = rows["decode_requests"].to_numpy(np.float64)
    prefills = rows["prefill_requests"].to_numpy(np.float64)
    some = np.minimum(decodes, 1.0)
    asked = {
        "requests": (np.maximum(prefills, decodes), 0.0 * some),
        "prefill_tokens": (rows["prefill_tokens"].to_numpy(np.float64), 0.0 * some),
        "context_tokens": (rows["context_tokens"].to_numpy(np.float64) * some, decodes),
        "longest": (rows["longest_tokens"].to_numpy(np.float64) * some, some),
    }
    first, last = np.zeros(len(rows)), runs.copy()  # those from first up to last are inside
    for name, (value, growth) in asked.items():
        low, high = ranges.get(name, (0, np.inf))
        there = value > 0
        first = np.where(there, np.maximum(first, _until(value, growth, low - 1.0, runs)), first)
        last = np.where(there, np.minimum(last, _until(value, growth, float(high), runs)), last)
    inside: Floats = np.maximum(0.0, last - first) / np.maximum(runs, 1.0)
    return 1.0 - inside


def _until(value: Floats, growth: Floats, limit: float, runs: Floats) -> Floats:
    """How many of the iterations have a value of at most the limit."""
    steps = np.divide(limit - value, growth, out=np.full(len(value), np.inf), where=growth > 0)
    counted = np.where(value > limit, 0.0, np.floor(steps) + 1.0)
    within: Floats = np.minimum(counted, runs)
    return within
