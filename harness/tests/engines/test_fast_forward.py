"""Compiled runs of many iterations give what deciding every iteration in the open gives."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.engines.state import LOG_COLUMNS
from harness.interface.decisions import ContinuousBatching, Decision
from harness.interface.entities import Work
from harness.interface.events import Event, Iterated
from harness.interface.filling import is_decode
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.tests.support.loads import Load, assert_same_times, loads
from harness.tests.support.policies import PERIOD_S, RULES, Restless, SteadyFcfs
from harness.tests.support.serving import (
    SERVICE,
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
)
@settings(max_examples=6, deadline=None)
def test_same_times_when_groups_come_and_go(
    batch_rule: ContinuousBatching, load: Load, blocks: int, seed: int, waits_s: list[float]
) -> None:
    """Three services on four GPUs, redeployed at random times while requests keep arriving."""
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=3),
            Fcfs(rule=batch_rule),
            Restless(seed, waits_s, 4),
            costs=UnevenCosts(blocks=blocks, load=0.37),
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


class Watched:
    """FCFS that keeps what every batch decided in the open computed."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    def __init__(self, inner: SchedulingPolicy) -> None:
        self._inner = inner
        self._before: dict[int, tuple[int, bool]] = {}
        self.rows: list[tuple[float, float, int, int, int, int]] = []

    def observe(self, event: Event) -> None:
        """Sum up a batch from the state at its start."""
        assert isinstance(event, Iterated)
        decodes = [self._before[r][0] for r in event.batch.tokens if self._before[r][1]]
        prompts = [n for r, n in event.batch.tokens.items() if not self._before[r][1]]
        self.rows.append(
            (
                event.now_s - event.duration_s,
                event.duration_s,
                len(prompts),
                sum(prompts),
                len(decodes),
                sum(decodes),
            )
        )

    def schedule(self, view: GroupView) -> Decision:
        """Look, then decide."""
        self._before = {
            r.facts.id: (r.context_tokens, is_decode(r)) for r in view.requests.values()
        }
        return self._inner.schedule(view)


def _expanded(log: pd.DataFrame, costs: LinearCosts) -> NDArray[np.float64]:
    """One row per iteration of a log of runs: what `Watched` keeps."""
    rows = []
    for run in log[list(LOG_COLUMNS[:10])].to_numpy(float):
        start_s, duration_s, iterations, prompts, tokens, _, _, batch, context, longest = run
        for i in range(int(iterations)):
            if iterations > 1:
                work = Work(0, 0, 0, 0.0, int(batch), int(context + i * batch), int(longest) + i)
                duration_s = costs.iteration_s(SERVICE, 1, work)
            rows.append((start_s, duration_s, prompts, tokens, batch, context + i * batch))
            start_s += duration_s
    return np.array(rows)


@pytest.mark.parametrize("batch_rule", RULES)
@given(load=loads(), blocks=st.sampled_from([12, 17, 200]))
@settings(max_examples=7, deadline=None)
def test_the_log_is_the_sequence_of_batches(
    batch_rule: ContinuousBatching, load: Load, blocks: int
) -> None:
    """Iteration by iteration: start, duration, prompts, their tokens, decodes, their context."""
    costs = LinearCosts(blocks=blocks, load=0.0)
    recorder = Recorder(keep_iterations=True)
    serve(workload(*load), Fcfs(rule=batch_rule), costs=costs, recorder=recorder)
    watched = Watched(Fcfs(rule=batch_rule))
    serve(workload(*load), watched, costs=costs, fast_forward=False)
    log = recorder.iteration_frame()
    assert log is not None
    np.testing.assert_allclose(_expanded(log, costs), np.array(watched.rows), rtol=1e-9, atol=1e-9)
