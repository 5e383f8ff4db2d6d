"""How much longer an iteration takes on a share of the SMs, as it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COUNTED = {"prefill": "tokens", "decode": "requests"}
"""What the slowdown of each phase goes by."""


@dataclass(frozen=True, slots=True)
class SmShares:
    """Seconds over those on all SMs, by phase: a row per share, a column per count.

    `counts` are prompt tokens of a prefill and requests of a decode. They and the `shares` (0..1)
    ascend; the last share is 1, whose row is of ones. `model` is the one that was measured.
    """

    model: str
    shares: Floats
    counts: Mapping[str, Floats]
    slowdown: Mapping[str, Floats]

    def at(self, phase: str, count: int, share: float) -> float:
        """Of prefill or decode, linear between what was measured, in the log of the count.

        Below the least share measured, so much longer as there are fewer SMs: our choice.
        """
        measured = np.log(self.counts[phase])
        of_share = [np.interp(np.log(count), measured, row) for row in self.slowdown[phase]]
        least = float(self.shares[0])
        return float(np.interp(share, self.shares, of_share)) * max(1.0, least / share)


def sm_shares_from(model: str, raw: Mapping[str, Any]) -> SmShares | None:
    """What a profile stores under `sm_share`, by percent of the SMs; None where it has nothing."""
    if not raw:
        return None
    percents = sorted(raw, key=int)
    counts, slowdown = {}, {}
    for phase, counted in COUNTED.items():
        # Not every count was measured on every share.
        common = sorted(set.intersection(*(set(raw[percent][counted]) for percent in percents)))
        rows = [_at(raw[percent][counted], raw[percent][phase], common) for percent in percents]
        counts[phase] = np.array(common, np.float64)
        slowdown[phase] = np.array([*rows, [1.0] * len(common)])
    shares = np.array([*(int(percent) / 100 for percent in percents), 1.0])
    return SmShares(model, shares, counts, slowdown)


def _at(counts: list[int], row: list[float], wanted: list[int]) -> list[float]:
    """The entries of a row at some of its counts."""
    by_count = dict(zip(counts, row, strict=True))
    return [by_count[count] for count in wanted]
