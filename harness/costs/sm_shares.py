"""How much longer an iteration takes on a share of the SMs, as it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SmShares:
    """Seconds over those on all SMs, by phase: a row per share, a column per number of requests.

    `shares` (0..1) and `requests` ascend; the last share is 1, whose row is of ones.
    """

    shares: Floats
    requests: Floats
    slowdown: Mapping[str, Floats]

    def at(self, phase: str, requests: int, share: float) -> float:
        """Of prefill or decode, linear between what was measured, in the log of the requests.

        Below the least share measured, so much longer as there are fewer SMs: our choice.
        """
        of_share = [
            np.interp(np.log(requests), np.log(self.requests), row) for row in self.slowdown[phase]
        ]
        least = float(self.shares[0])
        return float(np.interp(share, self.shares, of_share)) * max(1.0, least / share)


def sm_shares_from(raw: Mapping[str, Any]) -> SmShares | None:
    """What a profile stores under `sm_share`, by percent of the SMs; None where it has nothing."""
    if not raw:
        return None
    percents = sorted(raw, key=int)
    # Not every number of requests was measured on every share.
    requests = sorted(set.intersection(*(set(raw[percent]["requests"]) for percent in percents)))
    rows: dict[str, list[list[float]]] = {"prefill": [], "decode": []}
    for percent in percents:
        entry = raw[percent]
        columns = [entry["requests"].index(count) for count in requests]
        for phase, found in rows.items():
            found.append([entry[phase][column] for column in columns])
    all_sms = [[1.0] * len(requests)]
    return SmShares(
        np.array([*(int(percent) / 100 for percent in percents), 1.0]),
        np.array(requests, np.float64),
        {phase: np.array(found + all_sms) for phase, found in rows.items()},
    )
