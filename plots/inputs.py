"""What a plot is handed: runs, and the claims of the figure with what the paper prints.

A plot is a function of these that returns a figure; `python -m harness reproduce` calls it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from harness.claims.paper import Claim

Claims = Mapping[str, Claim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Of one figure."""

    name: str
    """The figure's, such as fig8."""
    runs: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Reference rows by scenario: `config.*`, a column per axis, the summary and `folder`; those of
    the authors' program where they have run."""
    varied: Mapping[str, Mapping[str, pd.DataFrame]] = field(default_factory=dict)
    """By scenario and the words of a variation: the same rows; none where none has run."""
    printed: Claims = field(default_factory=dict)
    """The claims that the figure feeds, by id; `paper` is what is printed."""


def span_of(claim: Claim) -> tuple[float, float]:
    """The smallest and the largest value that are printed."""
    return claim.paper if isinstance(claim.paper, tuple) else (claim.paper, claim.paper)
