"""The search on servers with a formula: the answer of brute force, monotone in load."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, inf
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capacity.grid import Candidate, Trial, TrialValues
from harness.capacity.objectives import parse_objectives
from harness.capacity.search import (
    NEAR,
    Problem,
    cheapest,
    fewest_replicas,
    largest_load,
    least_values,
)
from harness.capacity.texts import left_out, unmet

CANDIDATES = [
    Candidate(gpu, degree, False, tokens, 256, policy, "fixed")
    for policy in ("one", "two")
    for tokens in (2048, 8192)
    for gpu in ("small", "large")
    for degree in (1, 2, 4)
]
OBJECTIVES = parse_objectives("ttft 1, tpot 0.05")


def _problem(most_gpus: int = 12, price: float = 2.0, replicas: int | None = None) -> Problem:
    return Problem(OBJECTIVES, most_gpus, {"small": 1.0, "large": price}, replicas)


def _formula(seed: int, work: float) -> Callable[[Sequence[Trial]], list[TrialValues]]:
    """Values fall with replicas and rise with load; each candidate has a speed of its own."""

    def of(trial: Trial) -> TrialValues:
        one = trial.candidate
        key = (seed, one.policy, one.max_num_batched_tokens, one.tensor_parallel)
        draw = crc32(repr(key).encode()) % 97 / 97
        speed = one.tensor_parallel**0.9 * (2.2 if one.gpu == "large" else 1) * (0.7 + 0.6 * draw)
        busy = work * trial.load * trial.slower / (speed * trial.replicas)
        ttft_s = trial.slower * (0.1 + 0.6 * draw) + max(0.0, busy - 1)
        tpot_s = trial.slower * (0.02 + 0.02 * min(busy, 3.0)) / one.tensor_parallel**0.3
        return TrialValues((ttft_s, tpot_s))

    return lambda trials: [of(trial) for trial in trials]


def _brute(
    problem: Problem, serve: Callable[[Sequence[Trial]], list[TrialValues]], load: float
) -> Trial:
    """The best of all candidates at all replicas, each at the fewest that keep the objectives."""
    kept = []
    for place, one in enumerate(CANDIDATES):
        for replicas in range(1, problem.most_gpus // one.tensor_parallel + 1):
            trial = Trial(one, replicas, load=load)
            (served,) = serve([trial])
            if problem.is_kept(served):
                worst = round(problem.worst(served), 2)
                kept.append(((problem.cost(trial), worst, place), trial))
    return min(kept, key=lambda it: it[0])[1] if kept else Trial(CANDIDATES[0], 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 9.0), st.floats(0.5, 4.0))
def test_the_answer_is_that_of_brute_force(seed: int, work: float, price: float) -> None:
    problem, serve = _problem(price=price), _formula(seed, work)
    asked: Counter[Trial] = Counter()

    def counted(trials: Sequence[Trial]) -> list[TrialValues]:
        asked.update(trials)
        return serve(trials)

    found = cheapest(problem, CANDIDATES, counted)
    best = _brute(problem, serve, 1.0)
    if best.replicas:
        assert found[0].is_kept
        assert found[0].is_least
        assert found[0].trial == best
    else:
        assert not any(one.is_kept for one in found)
        assert len(found) == len(CANDIDATES)
    assert max(asked.values(), default=1) == 1, "a trial is served once"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 4.0), st.floats(1.0, 3.0))
def test_a_higher_load_never_costs_less(seed: int, work: float, more: float) -> None:
    problem, serve = _problem(most_gpus=24), _formula(seed, work)
    low, high = (cheapest(problem, CANDIDATES, serve, at={"load": it})[0] for it in (1.0, more))
    assert (low.cost if low.is_kept else inf) <= (high.cost if high.is_kept else inf)


def test_most_candidates_are_served_once() -> None:
    """Where a good one is found first, each other is left out by one trial or none."""
    asked: list[Trial] = []
    serve = _formula(1, 3.0)

    def counted(trials: Sequence[Trial]) -> list[TrialValues]:
        asked.extend(trials)
        return serve(trials)

    many = [replace(it, max_num_seqs=seqs) for seqs in range(20) for it in CANDIDATES]
    cheapest(_problem(most_gpus=64), many, counted)
    assert len(asked) < 1.2 * len(many)


def test_a_number_of_replicas_may_be_given() -> None:
    found = cheapest(_problem(replicas=3), CANDIDATES, _formula(1, 3.0))
    assert {it.trial.replicas for it in found} == {3}


def test_the_margin_is_where_a_higher_load_fails() -> None:
    """Busy up to 1 is kept: a load of 2.5 times 0.4."""
    problem = replace(_problem(), objectives=parse_objectives("ttft 1"))

    def serve(trials: Sequence[Trial]) -> list[TrialValues]:
        return [TrialValues((0.4 * it.load,)) for it in trials]

    margin = largest_load(problem, Trial(CANDIDATES[0], 1), serve)
    assert margin.fails_at is not None
    assert margin.kept_at <= 2.5 < margin.fails_at <= NEAR * margin.kept_at
    assert margin.failing_s[0] > 1
    easy = largest_load(
        problem, Trial(CANDIDATES[0], 1), lambda it: [TrialValues((0.1,))] * len(it)
    )
    assert (easy.kept_at, easy.fails_at) == (8.0, None)


@pytest.mark.parametrize(("work", "needed"), [(3.0, None), (1.0, 0)])
def test_slower_iterations_need_more_replicas(work: float, needed: int | None) -> None:
    def serve(trials: Sequence[Trial]) -> list[TrialValues]:
        return [TrialValues((work * it.slower * it.load / it.replicas, 0.01)) for it in trials]

    trial = Trial(CANDIDATES[0], ceil(work))
    slower = fewest_replicas(_problem(most_gpus=4), replace(trial, slower=2.0), serve)
    assert slower == (None if needed is None else 2 * trial.replicas)
    assert fewest_replicas(_problem(), trial, serve) == trial.replicas


def test_the_least_values_and_what_cannot_be_served() -> None:
    def serve(trials: Sequence[Trial]) -> list[TrialValues]:
        return [
            TrialValues((), "no KV")
            if it.candidate.policy == "two"
            else TrialValues(
                (3.0 / it.candidate.tensor_parallel, 0.02 * it.candidate.tensor_parallel)
            )
            for it in trials
        ]

    found = cheapest(_problem(), CANDIDATES, serve)
    assert [one.trial.candidate.tensor_parallel for one in least_values(found)] == [4, 1]
    assert [one.why for one in found].count("no KV") == len(CANDIDATES) // 2
    assert not found[0].is_kept
    assert found[0].values_s
    said = unmet(_problem(), found)
    assert said.startswith(
        "no setting of up to 12 GPUs keeps all objectives: nearest is ttft p95 1.5 s (limit 1), "
        "tpot p95 0.04 s (limit 0.05), with "
    )
    only = [one for one in found if one.why]
    assert unmet(_problem(), only) == "no setting can serve this load: no KV"
    (said,) = left_out(found)
    assert said.startswith(f"left out: {len(only)} settings that cannot serve the load, as tensor")
    assert said.endswith(": no KV")
