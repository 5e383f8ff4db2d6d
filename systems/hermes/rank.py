"""Ranks of an application by samples of its demand and the service it has attained, in seconds.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       The lowest rank is served first: that of Gittins weighs what serving on costs against the
           chance to end by then, slack is the time to the deadline less the work that is left.
Map        3.3 eq. 1                   -> `gittins`; per bucket `Demand.gittins`
           3.3 SRPT by the mean        -> `Demands.mean_left_s`
           3.3 eq. 2                   -> `Demands.slack_s`
           its program, branch SC25    -> `program_rank`
           its program, branch ATC25   -> `risk_key`; `Demand` with `later_s`
Constants  buckets: 10 (section 5.1), from a scenario
Differs    beyond the largest sample, where eq. 1 is not defined, the last rank stands
Checked    systems/tests/test_hermes_rank.py
"""

import numpy as np

from harness.interface.tables import Floats, Ints

BEHIND = 1e9
"""Added to keys that come behind others: more seconds than any run or rank has."""
RISKY = 0.5
"""Share of the time to a deadline from which an application is at risk, of the program."""


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


def risk_key(ranks_s: Floats, worst_left_s: Floats, until_s: Floats) -> Floats:
    """The authors' program with deadlines: least first; `until_s` is the time to each deadline.

    Where the worst case takes more than half of that time the rank over that share; behind these
    the rank of all others, of those that are late too.
    """
    risk = np.where(until_s > 0, worst_left_s / np.where(until_s > 0, until_s, 1.0), 0.0)
    at_risk = risk > RISKY
    return np.where(at_risk, ranks_s / np.where(at_risk, risk, 1.0), BEHIND + ranks_s)


class Demand:
    """The demand of an application as samples, with its ranks by service attained.

    Gittins ranks are those at the edges of buckets of equal width up to the largest sample: one is
    refreshed when the service attained passes an edge. `later_s` is added to every rank: the mean
    of what comes after what the samples are of.
    """

    def __init__(
        self,
        samples_s: Floats,
        *,
        buckets: int,
        is_program: bool = False,
        later_s: float = 0.0,
    ) -> None:
        """`is_program` takes the rank of branch SC25. ValueError for no samples."""
        if not len(samples_s):
            raise ValueError("a distribution of demand has 0 samples")
        self._samples_s, self._buckets = np.sort(samples_s), buckets
        self._is_program, self._later_s = is_program, later_s
        longest_s = float(self._samples_s[-1])
        self.mean_s, self.worst_s = float(samples_s.mean()) + later_s, longest_s + later_s
        self.bucket_s = max(longest_s / buckets, 1e-9)
        self._ranks: dict[int, float] = {}

    def in_bucket(self, place: int) -> float:
        """Gittins rank at the lower edge of a bucket, from 0 on."""
        if place not in self._ranks:
            edge_s = place * self.bucket_s
            self._ranks[place] = self._later_s + (
                program_rank(self._samples_s, edge_s, self._buckets)
                if self._is_program
                else gittins(self._samples_s, edge_s)
            )
        return self._ranks[place]


class Demands:
    """The demand that applications have left, as columns by their number.

    Methods take numbers of applications, which may repeat, and give NaN for unknown ones.
    """

    def __init__(self, *, buckets: int, is_program: bool) -> None:
        """Gittins ranks are those of `Demand`, in so many buckets."""
        self._buckets, self._is_program = buckets, is_program
        self._of: dict[int, Demand] = {}
        self._bucket_s, self._mean_s, self._worst_s, self._deadline_s = np.full((4, 0), np.nan)
        self._ranks = np.full((0, buckets), np.nan)

    def add(self, app: int, deadline_s: float | None) -> None:
        """An application comes, with its deadline."""
        self.cover(app)
        self._deadline_s[app] = np.nan if deadline_s is None else deadline_s

    def cover(self, app: int) -> None:
        """Have a row for this number, and for all below it."""
        more = 2 * app + 1 - len(self._deadline_s)
        if app >= len(self._deadline_s):
            columns = (self._bucket_s, self._mean_s, self._worst_s, self._deadline_s)
            self._bucket_s, self._mean_s, self._worst_s, self._deadline_s = (
                np.concatenate([column, np.full(more, np.nan)]) for column in columns
            )
            self._ranks = np.vstack([self._ranks, np.full((more, self._buckets), np.nan)])

    def set(self, app: int, demand: Demand) -> None:
        """What an application has left is this from now on."""
        self._of[app], self._ranks[app] = demand, np.nan
        self._bucket_s[app] = demand.bucket_s
        self._mean_s[app], self._worst_s[app] = demand.mean_s, demand.worst_s

    def remove(self, app: int) -> None:
        """An application has ended."""
        del self._of[app]
        self._bucket_s[app] = self._mean_s[app] = self._worst_s[app] = np.nan

    def gittins(self, apps: Ints, attained_s: Floats) -> Floats:
        """Gittins ranks."""
        bucket_s = self._bucket_s[apps]
        places = np.nan_to_num(attained_s / bucket_s).astype(np.int64)
        inside = np.minimum(places, self._buckets - 1)
        ranks: Floats = self._ranks[apps, inside]
        missing = np.flatnonzero(np.isnan(ranks) & ~np.isnan(bucket_s))
        for row in missing.tolist():
            app, place = apps.item(row), inside.item(row)
            if np.isnan(self._ranks[app, place]):
                self._ranks[app, place] = self._of[app].in_bucket(place)
        ranks[missing] = self._ranks[apps[missing], inside[missing]]
        if self._is_program:
            ranks[places >= self._buckets] = 0.0
        return ranks

    def mean_left_s(self, apps: Ints, attained_s: Floats) -> Floats:
        """Mean demand less what is attained; below 0 once that is more."""
        return np.asarray(self._mean_s[apps] - attained_s)

    def slack_s(self, apps: Ints, attained_s: Floats) -> Floats:
        """Eq. 2; NaN where there is no deadline.

        The same time now is left out of all: keys stand while it passes.
        """
        return self._deadline_s[apps] - (self._worst_s[apps] - attained_s)

    def deadline_s(self, apps: Ints) -> Floats:
        """Deadlines, NaN where there is none."""
        return self._deadline_s[apps]
