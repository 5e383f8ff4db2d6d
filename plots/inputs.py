"""What a plotter is handed: runs, what is derived from them, and what the paper prints.

A plotter takes these and returns a figure, or a table to print. `python -m harness.reproduce` calls
it; which runs and claims it gets is said in results/claims/<paper>/figures.yaml.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

Claims = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Of one figure."""

    name: str
    """The figure's, such as fig8."""
    runs: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Rows by scenario: the newest program's, with what is derived from their folders."""
    printed: Claims = field(default_factory=dict)
    """The claims that the figure feeds, by id; `paper` is what is printed."""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """What is worked out from no run but from stored profiles and printed figures."""


def span_of(claim: Mapping[str, Any]) -> tuple[float, float]:
    """The smallest and the largest figure that are printed."""
    low, high = claim["paper"]
    return low, high
