"""Made-up runs, and a check and a claim about them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from harness.claims.checks import Check
from harness.claims.quantities import Measured
from harness.claims.reading import Claim, claims_of

REQUESTS, LIMIT = "config.workload.requests", "config.workload.max_output_tokens"


Seconds = Callable[[str, int, int, int], float]


NAMES = ("new", "old", "older")


SETTINGS = {REQUESTS: {"between": [100, 300]}, LIMIT: {"each": [8, 16]}}


def runs(seconds: Seconds, *, seeds: int = 5, counts: tuple[int, ...] = (100, 200, 300)) -> Any:
    """One run per system, request count, limit and seed, taking `seconds` of them."""
    rows = [
        {
            "config.system.name": name,
            REQUESTS: count,
            LIMIT: limit,
            "config.seed": seed,
            "end_to_end_s": seconds(name, count, limit, seed),
            "load_s": 1.0,
            "least_s": 10.6,
            "most_s": 47.4,
            "unfinished": 0,
            "code": "c1",
            "started": "2026-01-01",
            "costs.profile": "gpu",
            "costs.fit_error": 0.05,
        }
        for name in NAMES
        for count in counts
        for limit in (8, 16)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


def even(speedup: Callable[[int, int], float]) -> Seconds:
    """Seconds that give each setting the speedup of `old` over `new`, whatever the seed."""
    return lambda name, count, limit, seed: (
        (10.0 + seed) * (speedup(count, limit) if name == "old" else 1.0)
    )


def check(**changes: Any) -> Check:
    """A range check of `old` over `new`, with changes."""
    return Check(**toy_check(**({"paper": [1.1, 2.4]} | changes)))


def falling(count: int, limit: int) -> float:
    """1.1 to 2.4, falling with the count and higher at the lower limit."""
    at_limit = {100: 2.3, 200: 1.6, 300: 1.1}[count]
    return at_limit + (0.1 if (count, limit) == (100, 8) else 0.0)


def words(**parts: Any) -> dict[str, Any]:
    """What a file says of a claim; a part of None is left out."""
    usual: dict[str, Any] = {
        "id": "p.fig.x",
        "where": "Fig. 1",
        "quantity": "seconds of old over new",
        "kind": "speedup",
        "paper": [1.1, 2.4],
        "quote": "up to 2.4 times as fast",
        "open": [],
        "check": {"rule": "range", "scenario": "toy", "columns": ["jct_s_mean"]},
    }
    return {name: part for name, part in (usual | parts).items() if part is not None}


def claim(**parts: Any) -> Claim:
    """A claim as it is read."""
    (found,) = claims_of({"claims": [words(**parts)]})
    return found


def toy_check(**changes: Any) -> dict[str, Any]:
    """The words of a range check of `old` over `new`, with changes."""
    usual: dict[str, Any] = {
        "rule": "range",
        "scenario": "toy",
        "columns": ["end_to_end_s"],
        "quantity": "speedup",
        "system": {"config.system.name": "new"},
        "baselines": [{"config.system.name": "old"}],
        "settings": SETTINGS,
        "step": 0.1,
    }
    return usual | changes


def measured(baseline: list[list[float]], *, quantity: str = "speedup") -> Measured:
    """A system that takes 1 s everywhere; `baseline` [seeds][settings] in s."""
    seconds = np.array(baseline)
    return Measured(
        label="",
        quantity=quantity,
        settings=[{"rate": place} for place in range(seconds.shape[1])],
        system=np.ones_like(seconds),
        baseline=seconds,
    )
