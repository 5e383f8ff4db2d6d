"""Gaps between successive tokens of an answer, counted by length.

Every gap of every request is counted in one of `BINS` classes of lengths, each `RATIO` times the
one before: a percentile is exact to 1%. The longest gap of each request is kept beside it, exact.
"""

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled

Ints = NDArray[np.int64]
Records = NDArray[np.void]

LEAST_S = 1e-6
RATIO = 1.02
BINS = 1400
"""Up to 1.1 million seconds."""

_STEP = float(np.log(RATIO))
_RAMP = 16
"""Classes of equal counts that a run of iterations with linearly growing seconds is divided into"""


@compiled
def _place(seconds: float) -> int:
    """The class of a length."""
    return min(int(np.log(max(seconds, LEAST_S) / LEAST_S) / _STEP), BINS - 1)


@compiled
def add_gaps(gaps: Ints, seconds: float, count: int) -> None:
    """Count so many gaps of a length."""
    gaps[_place(seconds)] += count


@compiled
def add_run(gaps: Ints, first_s: float, total_s: float, iterations: int, requests: int) -> float:
    """Count the gaps within a run of decode iterations of so many requests; the longest of them.

    Those after its first, whose seconds are `first_s`. The seconds of the others grow by equal
    steps, since contexts do. 0 where the run has one iteration.
    """
    if iterations < 2:
        return 0.0
    others = iterations - 1
    mean_s = (total_s - first_s) / others
    slope_s = 2.0 * (mean_s - first_s) / iterations
    last_s = first_s + slope_s * others
    place = _place(first_s + slope_s)
    if place == _place(last_s):
        gaps[place] += others * requests
        return max(mean_s, last_s)
    done, parts = 0, min(others, _RAMP)
    for part in range(parts):
        behind = others * (part + 1) // parts
        middle = (done + 1 + behind) / 2.0
        add_gaps(gaps, first_s + slope_s * middle, (behind - done) * requests)
        done = behind
    return max(mean_s, last_s)


@compiled
def note_tokens(
    rows: Records, gaps: Ints, request: int, first_s: float, end_s: float, longest_s: float
) -> None:
    """A request has produced tokens: the first at one time, the last at another.

    `longest_s` is the longest gap between these tokens, which are counted elsewhere.
    """
    before_s = rows[request].token_s
    if not np.isnan(before_s):
        add_gaps(gaps, first_s - before_s, 1)
        longest_s = max(longest_s, first_s - before_s)
    rows[request].longest_gap_s = max(rows[request].longest_gap_s, longest_s)
    rows[request].token_s = end_s


@compiled
def note_batch(
    rows: Records,
    gaps: Ints,
    requests: Ints,
    first_s: float,
    second_s: float,
    end_s: float,
    iterations: int,
) -> None:
    """Requests have produced a token in each of so many iterations.

    The first ends at `first_s`, the last at `end_s`; the second, if there is one, takes `second_s`.
    """
    longest_s = 0.0
    if iterations > 1:
        add_gaps(gaps, second_s, len(requests))
        of_run_s = add_run(gaps, second_s, end_s - first_s, iterations - 1, len(requests))
        longest_s = max(second_s, of_run_s)
    for request in requests:
        note_tokens(rows, gaps, request, first_s, end_s, longest_s)


def gap_quantile(gaps: Ints, share: float) -> float:
    """The gap in seconds that so large a share of all gaps does not exceed; NaN of no gaps."""
    count = int(gaps.sum())
    if not count:
        return float("nan")
    place = int(np.searchsorted(np.cumsum(gaps), share * (count - 1), side="right"))
    return float(LEAST_S * RATIO ** (place + 0.5))
