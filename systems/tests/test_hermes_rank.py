"""Ranks of demand, by hand and against the best order of one preemptive server."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.tables import Floats
from systems.hermes.rank import BEHIND, Demand, Demands, gittins, program_rank, risk_key

Job = Mapping[int, int]
"""How many of equally likely samples are of each size."""
State = tuple[int | None, ...]
"""Service attained by each job, None of those that have ended."""
Order = Callable[[int, int], float]
"""Rank of a job, given its number and the service it has attained."""


def samples(job: Job) -> Floats:
    return np.repeat(np.array(sorted(job), float), [job[size] for size in sorted(job)])


def served(jobs: Sequence[Job], rank: Order | None, *, preempts: bool = True) -> float:
    """Expected sum of completion times on one server; None for the best of all orders."""

    @cache
    def left(state: State, running: int | None) -> Fraction:
        waiting = [job for job, attained in enumerate(state) if attained is not None]
        if not waiting:
            return Fraction(0)
        if rank is None:
            return min(run(state, job) for job in waiting)
        if running in waiting and not preempts:
            return run(state, running)
        return run(state, min(waiting, key=lambda job: (rank(job, state[job] or 0), job)))

    def run(state: State, job: int) -> Fraction:
        attained = state[job]
        assert attained is not None
        larger = sum(count for size, count in jobs[job].items() if size > attained)
        ends = Fraction(jobs[job].get(attained + 1, 0), larger)
        unfinished = sum(attained is not None for attained in state)
        rest = Fraction(0)
        for chance, then in ((ends, None), (1 - ends, attained + 1)):
            if chance:
                rest += chance * left((*state[:job], then, *state[job + 1 :]), job)
        return unfinished + rest

    return float(left((0,) * len(jobs), None))


def by_gittins(jobs: Sequence[Job]) -> Order:
    return lambda job, attained: gittins(samples(jobs[job]), attained)


def by_mean(jobs: Sequence[Job]) -> Order:
    demands = [Demand(samples(job), buckets=10) for job in jobs]
    return lambda job, attained: demands[job].mean_s - attained


@pytest.mark.parametrize(
    ("job", "attained", "rank"),
    [
        ({1: 1, 9: 1}, 0, 2.0),
        ({1: 1, 9: 1}, 1, 8.0),
        ({1: 1, 2: 1, 9: 1}, 0, 2.5),
        ({3: 1}, 3, np.inf),
    ],
)
def test_gittins_ranks_by_hand(job: Job, attained: float, rank: float) -> None:
    assert gittins(samples(job), attained) == rank


@pytest.mark.parametrize("attained", [0, 1, 3])
def test_geometric_demand_has_the_same_rank_whatever_is_attained(attained: int) -> None:
    """Half of what is left ends at every step, so the rank is 1 / (1/2)."""
    geometric = {size: 2 ** (14 - size) for size in range(1, 15)}
    assert gittins(samples(geometric), attained) == pytest.approx(2.0, rel=1e-2)


def test_the_program_leaves_out_what_is_spent_on_those_that_do_not_end() -> None:
    assert program_rank(samples({1: 1, 2: 1, 9: 1}), 0.0, 10) == 2.25
    assert program_rank(samples({1: 1, 2: 1, 9: 1}), 9.0, 10) == 0.0


def test_two_jobs_by_hand() -> None:
    jobs = [{1: 1, 9: 1}, {3: 1}]
    assert served(jobs, by_gittins(jobs)) == 10.5
    assert served(jobs, by_mean(jobs)) == 11.0
    assert served(jobs, by_gittins(jobs), preempts=False) == 13.0


def test_figure_7() -> None:
    """Fact checking has the smaller mean, code generation a chance of 16% to end within 9 s."""
    fact_checking, code_generation = {9: 3, 20: 997}, {2: 160, 26: 840}
    jobs = [fact_checking, code_generation]
    assert by_mean(jobs)(0, 0) < by_mean(jobs)(1, 0)
    assert by_gittins(jobs)(1, 0) < by_gittins(jobs)(0, 0)
    assert served(jobs, by_gittins(jobs)) < served(jobs, by_mean(jobs))


@given(
    jobs=st.lists(
        st.dictionaries(st.integers(1, 5), st.integers(1, 3), min_size=1, max_size=3),
        min_size=2,
        max_size=3,
    )
)
@settings(max_examples=25, deadline=None)
def test_gittins_is_the_best_order_of_one_server(jobs: list[Job]) -> None:
    assert served(jobs, by_gittins(jobs)) == pytest.approx(served(jobs, None))


def ranks(
    demand: Demand, *attained_s: float, buckets: int = 10, is_program: bool = False
) -> list[float]:
    """Gittins ranks of an application that has attained so much."""
    left = Demands(buckets=buckets, is_program=is_program)
    left.add(0, None)
    left.set(0, demand)
    found = left.gittins(np.zeros(len(attained_s), np.int64), np.array(attained_s))
    return [float(rank) for rank in found]


def test_a_rank_is_refreshed_when_a_bucket_is_used_up() -> None:
    """Ten buckets of 1 s up to the largest sample; beyond it the last rank stands."""
    seconds = (0.0, 0.9, 1.0, 1.9, 2.0, 9.5, 30.0)
    assert ranks(Demand(np.array([10.0, 1.0]), buckets=10), *seconds) == [2, 2, 9, 9, 8, 1, 1]
    program = Demand(np.array([10.0, 1.0]), buckets=10, is_program=True)
    assert ranks(program, 30.0, is_program=True) == [0.0]


def test_slack_by_hand() -> None:
    """At 40 s: deadline 100 s, worst case 50 s of which 10 s are attained, a mean of 30 s."""
    demand = Demand(np.array([10.0, 50.0]), buckets=10)
    left = Demands(buckets=10, is_program=False)
    for app, deadline_s in enumerate((60.0, 5.0, None)):
        left.add(app, deadline_s)
        left.set(app, demand)
    apps, attained_s = np.arange(3), np.array([10.0, 0.0, 0.0])
    worst_s = left.slack_s(apps, attained_s)
    assert worst_s[:2].tolist() == [20.0, -45.0]
    assert np.isnan(worst_s[2])


def test_demand_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="a distribution of demand has 0 samples"):
        Demand(np.zeros(0), buckets=10)


def test_the_rule_of_risk_by_hand() -> None:
    """At 40 s P needs 50 of 60 s (0.83), Q 20 of 50 s (0.4), and S is late.

    P comes first by 20 / 0.83 = 24, then S and Q by their ranks; by eq. 2 S (-55), P (10), Q (30).
    """
    ranks_s, worst_s = np.array([20.0, 10.0, 5.0]), np.array([50.0, 20.0, 50.0])
    deadline_s = np.array([100.0, 90.0, 35.0])
    keys = risk_key(ranks_s, worst_s, deadline_s - 40.0)
    assert keys - [0.0, BEHIND, BEHIND] == pytest.approx([24.0, 10.0, 5.0])
    assert np.argsort(deadline_s - worst_s).tolist() == [2, 0, 1]


def test_what_comes_later_is_added_to_every_rank_by_hand() -> None:
    """Samples 1 and 9 s with 100 s after them: 2 and 8 s more than 100."""
    demand = Demand(np.array([1.0, 9.0]), buckets=9, later_s=100.0)
    assert ranks(demand, 0.0, 1.0, buckets=9) == pytest.approx([102.0, 108.0])
    assert (demand.mean_s, demand.worst_s) == (105.0, 109.0)
