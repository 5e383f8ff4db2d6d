"""Arrivals of services whose popularity differs and may drift, with gaps of any burstiness."""

import math
from collections.abc import Sequence

import numpy as np

from harness.config.ranges_of_units import MOST_SECONDS
from harness.workloads.arrivals import RATE_PER_S, arrival_table, relative_gaps, table_file
from harness.workloads.settings import BURSTINESS, SIGMA, require_between, require_positive
from harness.workloads.workload import Floats, Ints

EVEN, ZIPF = "even", "zipf"
"""Popularities that are no table: all services alike, and the n-th 1 / n as popular."""

MINUTE_S = 60.0
"""Seconds in which a rate that drifts stays as it is."""


class ServiceArrivals:
    """Arrivals of services at rates that are steady, or drift from minute to minute.

    `popularity` is `even`, `zipf`, or a table with the shares of calls that the most popular of its
    functions have: each function has the rate of its rank, and a seed deals all of them out to the
    services in turn. Not kept of such a trace: how the rate of a function changes over time.

    With `drift` above 0 a service's rate is multiplied, minute by minute, by a lognormal factor of
    mean 1 and this sigma, whose logarithm decorrelates by 1 / e in `drift_minutes`; the wanted rate
    is the mean of the run, that of the history is what drift makes of it. `gap_cv` is the
    coefficient of variation of the gaps of a service at a steady rate, which are gamma distributed:
    1 is a Poisson process.
    """

    def __init__(
        self,
        *,
        popularity: str,
        rate_per_s: float,
        duration_s: float,
        history_s: float,
        gap_cv: float,
        drift: float,
        drift_minutes: float,
    ) -> None:
        """`rate_per_s` is of all services, the mean over `duration_s`; `history_s` come before."""
        where = "workload.arrivals"
        require_between(where, *RATE_PER_S, rate_per_s=rate_per_s)
        require_between(where, 1e-3, MOST_SECONDS, duration_s=duration_s, history_s=history_s)
        require_between(where, *BURSTINESS, gap_cv=gap_cv)
        require_between(where, *SIGMA, drift=drift)
        require_positive(where, drift_minutes=drift_minutes)
        is_table = popularity not in (EVEN, ZIPF)
        self._popularity = popularity
        self._rank_shares = rank_shares(popularity) if is_table else None
        self.files = table_file(popularity) if is_table else {}
        self._rate_per_s, self._gap_cv = rate_per_s, gap_cv
        self._duration_s, self._history_s = duration_s, history_s
        self._drift, self._drift_minutes = drift, drift_minutes

    def draw(self, services: int, seed: int, *, is_past: bool) -> tuple[Floats, Ints]:
        """Seconds and services of arrivals, in order, from 0: of the run or of its history."""
        rates, edges_s = self._rates(services, seed)
        drawn = []
        for service, rate in enumerate(rates):
            rng = np.random.default_rng([seed, 23, service])
            passed = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges_s))])
            drawn.append(np.interp(self._passed(passed[-1], rng), passed, edges_s))
        arrival_s = np.concatenate(drawn)
        of = np.repeat(np.arange(services), [len(one) for one in drawn])
        kept = (arrival_s < self._history_s) == is_past
        arrival_s = arrival_s[kept] - (0.0 if is_past else self._history_s)
        if not len(arrival_s):
            raise ValueError(
                f"workload.arrivals.rate_per_s={self._rate_per_s:g} gives no request in "
                f"{self._history_s if is_past else self._duration_s:g} s of "
                f"{'history' if is_past else 'the run'}, seed {seed}"
            )
        order = np.argsort(arrival_s, kind="stable")
        return arrival_s[order], of[kept][order]

    def shares(self, services: int, seed: int) -> Floats:
        """How much of all requests each service has, apart from its drift."""
        rng = np.random.default_rng([seed, 22])
        if self._rank_shares is not None:
            if services > len(self._rank_shares):
                raise ValueError(
                    f"workload.models has {services} services, table {self._popularity} "
                    f"{len(self._rank_shares)} functions"
                )
            dealt = self._rank_shares[rng.permutation(len(self._rank_shares))]
            return np.array([dealt[index::services].sum() for index in range(services)])
        ranks = 1.0 + rng.permutation(services)
        weights = ranks ** -(1.0 if self._popularity == ZIPF else 0.0)
        return np.asarray(weights / weights.sum(), np.float64)

    def _rates(self, services: int, seed: int) -> tuple[Floats, Floats]:
        """Requests a second of shape (services, minutes), and the ends of minutes in s.

        Minutes are counted from the end of the history, where one of them begins.
        """
        past, own = (math.ceil(s / MINUTE_S) for s in (self._history_s, self._duration_s))
        edges_s = np.asarray(np.arange(-past, own + 1) * MINUTE_S, np.float64)
        edges_s = np.unique(np.clip(edges_s, -self._history_s, self._duration_s))
        factors = self._factors(services, past + own, np.random.default_rng([seed, 27]))
        rates = self.shares(services, seed)[:, None] * factors
        lasts_s = np.diff(edges_s)
        mean = (rates[:, past:] * lasts_s[past:]).sum() / self._duration_s
        return rates * float(self._rate_per_s / mean), edges_s + self._history_s

    def _factors(self, services: int, minutes: int, rng: np.random.Generator) -> Floats:
        """What rates are multiplied by: an autoregressive process of the logarithm."""
        kept = math.exp(-1.0 / self._drift_minutes)
        log = rng.standard_normal((services, minutes))
        for minute in range(1, minutes):
            log[:, minute] *= math.sqrt(1.0 - kept**2)
            log[:, minute] += kept * log[:, minute - 1]
        return np.asarray(np.exp(self._drift * log - self._drift**2 / 2), np.float64)

    def _passed(self, until: float, rng: np.random.Generator) -> Floats:
        """Arrivals of a stationary process of rate 1, up to `until`."""
        shape = 1.0 / self._gap_cv**2
        first = relative_gaps("gamma", shape, 1, rng, met=True) * rng.random()
        found = first
        while found[-1] <= until:
            gaps = relative_gaps("gamma", shape, max(16, len(found)), rng, met=False)
            found = np.concatenate([found, found[-1] + gaps.cumsum()])
        return found[found <= until]


def rank_shares(table: str) -> Floats:
    """The share of all calls that each function of a table has, the most popular first.

    Between the ranks of the table the share of the first n functions grows with the logarithm of n.
    """
    try:
        content = arrival_table(table, "shares_of_first")
    except ValueError:
        raise ValueError(
            f"workload.arrivals.popularity={table} is not {EVEN}, {ZIPF} or a table of arrivals "
            "that has shares_of_first, such as azure_functions_2019_popularity"
        ) from None
    known: Sequence[Sequence[float]] = content["shares_of_first"]
    ranks, shares = np.array(known, np.float64).T
    every = np.arange(1, int(ranks[-1]) + 1)
    return np.diff(np.interp(np.log(every), np.log(ranks), shares), prepend=0.0)
