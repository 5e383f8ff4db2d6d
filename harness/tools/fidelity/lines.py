"""One line of the fidelity table: what was predicted, by what, and how far off."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

HELD_OUT = "measured profile, row held out"
SAME_ROWS = "fitted on the same rows"
ONE_ENGINE = "roofline of one engine"
ACROSS = "roofline, its authors left out"
CORRECTED = "corrected roofline"
UNSEEN_ARCHITECTURE = "roofline, architecture left out"
SIMULATED = "simulated, profile fitted elsewhere"
INNER_SIZES = "held out: the smallest and the largest number of requests never are"
SELECTED = (
    "left out of the slowdown only: which operators to adopt was chosen among about 20 settings by "
    "these errors, so they flatter somewhat"
)
AUTHORS = "its authors' own planner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Errors are relative to the measured seconds, without sign but for `bias`, their median.

    `seen` says whether the predictor was fitted on these very rows. `low_s` and `high_s` are the
    range of what was measured. None where a number is not known.
    """

    source: str
    gpu: str
    engine: str
    model: str
    tensor_parallel: int | None = None
    what: str
    basis: str
    seen: bool = False
    rows: int
    median_error: float | None
    p95_error: float | None = None
    bias: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    note: str = ""


def line(measured_s: ArrayLike, predicted_s: ArrayLike, **about: Any) -> Line:
    """The line of some rows; `about` are the fields that say what they are."""
    measured = np.asarray(measured_s, np.float64)
    errors = np.asarray(predicted_s, np.float64) / measured - 1.0
    return Line(
        rows=len(measured),
        median_error=float(np.median(np.abs(errors))),
        p95_error=float(np.quantile(np.abs(errors), 0.95)),
        bias=float(np.median(errors)),
        low_s=float(measured.min()),
        high_s=float(measured.max()),
        **about,
    )


@cache
def sources() -> Mapping[str, Any]:
    """Which data folders are read, and as what."""
    path = Path(__file__).with_name("sources.json")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
