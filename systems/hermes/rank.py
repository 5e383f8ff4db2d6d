"""Ranks of an application by samples of its demand and the service it has attained, in seconds.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       The lowest rank is served first: that of Gittins weighs what serving on costs against the
           chance to end by then, slack is the time to the deadline less the work that is left.
Map        3.3 eq. 1                   -> `gittins`; per bucket `Demand.gittins`
           3.3 SRPT by the mean        -> `Demand.mean_left_s`
           3.3 eq. 2                   -> `Demand.slack_s`
           its program                 -> `program_rank`
Constants  buckets: 10 (section 5.1), from a scenario
Differs    beyond the largest sample, where eq. 1 is not defined, the last rank stands
Checked    systems/tests/test_hermes_rank.py
"""

import numpy as np

from harness.interface.tables import Floats


def gittins(samples_s: Floats, attained_s: float) -> float:
    """Eq. 1: inf over D > 0 of E[min(X - a, D) | X > a] / P(X - a <= D | X > a).

    `samples_s` ascend. Infinite where no sample exceeds the service attained.
    """
    left_s = samples_s[np.searchsorted(samples_s, attained_s, side="right") :] - attained_s
    if not len(left_s):
        return np.inf
    # Between two samples the numerator grows and the denominator stands: D is a sample.
    done = np.arange(1.0, len(left_s) + 1)
    spent_s = np.cumsum(left_s) + (len(left_s) - done) * left_s
    return float((spent_s / done).min())


def program_rank(samples_s: Floats, attained_s: float, buckets: int) -> float:
    """The authors' program: E[X - a | X - a <= D] / P(X - a <= D), over bucket edges D.

    `samples_s` ascend. 0 where no sample exceeds the service attained.
    """
    left_s = samples_s[np.searchsorted(samples_s, attained_s, side="right") :] - attained_s
    if not len(left_s):
        return 0.0
    edges_s = np.linspace(0.0, left_s[-1], buckets + 1)[1:]
    done = np.searchsorted(left_s, edges_s, side="right")
    done = done[done > 0]
    sums_s = np.cumsum(left_s)[done - 1]
    return float((sums_s / done * len(left_s) / done).min())


class Demand:
    """The demand of an application as samples, with its ranks by service attained.

    Gittins ranks are those at the edges of buckets of equal width up to the largest sample: one is
    refreshed when the service attained passes an edge.
    """

    def __init__(self, samples_s: Floats, *, buckets: int, is_program: bool = False) -> None:
        """`is_program` takes the authors' program's rank. ValueError for no samples."""
        if not len(samples_s):
            raise ValueError("a distribution of demand has 0 samples")
        self._samples_s, self._buckets = np.sort(samples_s), buckets
        self._is_program = is_program
        self.mean_s, self.worst_s = float(samples_s.mean()), float(self._samples_s[-1])
        self._bucket_s = max(self.worst_s / buckets, 1e-9)
        self._ranks: dict[int, float] = {}

    def gittins(self, attained_s: float) -> float:
        """Gittins rank."""
        place = int(attained_s / self._bucket_s)
        if place >= self._buckets:
            if self._is_program:
                return 0.0
            place = self._buckets - 1
        if place not in self._ranks:
            edge_s = place * self._bucket_s
            self._ranks[place] = (
                program_rank(self._samples_s, edge_s, self._buckets)
                if self._is_program
                else gittins(self._samples_s, edge_s)
            )
        return self._ranks[place]

    def mean_left_s(self, attained_s: float) -> float:
        """Mean demand less what is attained; below 0 once that is more."""
        return self.mean_s - attained_s

    def slack_s(self, deadline_s: float, attained_s: float, *, is_worst: bool) -> float:
        """Eq. 2, with the largest sample or else the mean; `deadline_s` counts from any moment."""
        demand_s = self.worst_s if is_worst else self.mean_s
        return deadline_s - (demand_s - attained_s)
