"""Compiled runs of many iterations give what deciding every iteration in the open gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.interface.decisions import ContinuousBatching
from harness.tests.support.loads import Load, assert_same_times, loads
from harness.tests.support.policies import PERIOD_S, RULES, Restless, SteadyFcfs
from harness.tests.support.serving import (
    LinearCosts,
    UnevenCosts,
    serve,
    workload,
)


@pytest.mark.parametrize("batch_rule", RULES)
@given(load=loads(), blocks=st.sampled_from([12, 17, 30, 200]))
@settings(max_examples=6, deadline=None)
def test_same_times_with_and_without(
    batch_rule: ContinuousBatching, load: Load, blocks: int
) -> None:
    assert_same_times(
        lambda fast: serve(
            workload(*load),
            Fcfs(rule=batch_rule),
            costs=LinearCosts(blocks=blocks, load=0.0),
            fast_forward=fast,
        )
    )


@pytest.mark.parametrize("batch_rule", [RULES[0], RULES[1], RULES[3]])
@given(
    load=loads(),
    blocks=st.sampled_from([12, 40]),
    seed=st.integers(0, 999),
    waits_s=st.lists(st.sampled_from([0.0113, 0.2719, 1.6449, 3.1137]), max_size=5),
    received_s=st.sampled_from([0.0, 0.0031]),
)
@settings(max_examples=8, deadline=None)
def test_same_times_when_groups_come_and_go(
    batch_rule: ContinuousBatching,
    load: Load,
    blocks: int,
    seed: int,
    waits_s: list[float],
    received_s: float,
) -> None:
    """Three services on four GPUs, redeployed at random times while requests keep arriving."""
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=3),
            Fcfs(rule=batch_rule),
            Restless(seed, waits_s, 4),
            costs=UnevenCosts(blocks=blocks, load=0.37, received_s_per_request=received_s),
            fast_forward=fast,
            gpus=4,
        )
    )


@pytest.mark.parametrize(("rotates", "blocks"), [(False, 14), (False, 200), (True, 400)])
@given(
    load=loads(most=16),
    seed=st.integers(0, 999),
    waits_s=st.lists(st.sampled_from([0.2719, 1.6449]), max_size=2),
)
@settings(max_examples=7, deadline=None)
def test_same_times_under_steady_decisions(
    rotates: bool, blocks: int, load: Load, seed: int, waits_s: list[float]
) -> None:
    """Four slots and 64 tokens a batch; arrivals, wake-ups and redeployments interrupt the runs."""
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=2),
            SteadyFcfs(rotates=rotates),
            Restless(seed, waits_s, 3),
            costs=UnevenCosts(blocks=blocks, load=0.1),
            fast_forward=fast,
            gpus=3,
            max_num_seqs=4,
            tokens=64,
        )
    )


def test_steady_decisions_are_asked_for_less_often() -> None:
    """One request of 1,000 tokens: with fast-forward one question per prompt chunk and wake-up."""
    asked = []
    for fast in (True, False):
        policy = SteadyFcfs(rotates=False)
        served = serve(workload([10], [1000]), policy, costs=LinearCosts(), fast_forward=fast)
        asked.append(policy.asked)
    run_s = float(served.requests["finished_s"].iloc[0]) - 1.0
    assert asked[1] == 1000
    assert asked[0] <= 3 + run_s / PERIOD_S < 100
