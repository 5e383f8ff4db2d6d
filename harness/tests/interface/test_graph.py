"""Calls that wait for the answers of others: by hand, and as properties of random applications."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.interface.decisions import ContinuousBatching, PriorityOrder
from harness.interface.events import Arrived
from harness.interface.graph import Edges, Graph
from harness.interface.policies import SchedulingPolicy
from harness.tests.support.applications import applications, arrives_s, linked, linked_pairs
from harness.tests.support.loads import waits_s
from harness.tests.support.policies import RULES, Restless, SteadyFcfs
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import Ordered
from harness.workloads.workload import Workload


def test_a_chain_by_hand() -> None:
    """1 s to load, half a second a prefill, a quarter a decode: 2 tokens, then 3."""
    load = linked(workload([10, 20], [2, 3]), [(0, 1)])
    frame = serve(load, costs=FlatCosts()).requests
    assert frame["arrival_s"].tolist() == [0.0, 1.75]
    assert frame["finished_s"].tolist() == [1.75, 2.75]
    assert frame["prompt_tokens"].tolist() == [10, 22]


def test_a_call_waits_for_the_last_of_its_inputs() -> None:
    """Two services answer at 1.75 s and 2.0 s; a third needs both."""
    load = linked(workload([10, 10, 5], [2, 3, 1], services=3), [(0, 2), (1, 2)])
    frame = serve(load, costs=FlatCosts(), gpus=3).requests
    assert frame["arrival_s"].tolist() == [0.0, 0.0, 2.0]
    assert frame["finished_s"].tolist() == [1.75, 2.0, 2.5]
    assert frame["prompt_tokens"].tolist() == [10, 10, 10]


def test_the_next_call_of_a_chain_stays_in_its_group() -> None:
    """Two groups, four chains of three calls: round robin deals the first ones only."""
    pairs = [(i, i + 4) for i in range(8)]
    load = linked(workload([10] * 12, [3, 9, 4, 7] * 3), pairs)
    recorder = Recorder(keep_events=True)
    serve(load, None, Everywhere(("m", (0,)), ("m", (1,))), recorder=recorder)
    groups = {int(e.request.id): e.group for e in recorder.events if isinstance(e, Arrived)}
    assert len(groups) == 12
    assert all(groups[child] == groups[parent] for parent, child in linked_pairs(load))
    assert len({groups[call] for call in range(4)}) == 2


@pytest.mark.parametrize(
    ("pair", "own", "prompt", "said"),
    [
        ((1, 0), 10, 10, "request 0 waits for one that is not ahead of it"),
        ((0, 1), 12, 10, "request 1 has 10 prompt tokens, which are not its own and those"),
        ((0, 1), 4090, 4092, "request 1 with 4097 prompt tokens and its output limit exceeds"),
    ],
)
def test_impossible_edges_are_named(
    pair: tuple[int, int], own: int, prompt: int, said: str
) -> None:
    parent, child = (np.array([call]) for call in pair)
    edges = Edges(parent, child, np.ones(1, np.bool_))
    with pytest.raises(ValueError, match="request") as raised:
        replace(
            workload([10, 10], [2, 2]),
            edges=edges,
            own_tokens=np.array([10, own]),
            prompt_tokens=np.array([10, prompt]),
        )
    assert said in str(raised.value)


def test_calls_of_an_application_come_in_together() -> None:
    load = workload([10, 10], [2, 2], [0.0, 1.0])
    with pytest.raises(ValueError, match="request 1 waits for one that came in at another time"):
        linked(load, [(0, 1)])


def _check(frame: pd.DataFrame, load: Workload) -> None:
    """Everybody is answered in full, and arrives when the last of its inputs is there."""
    assert frame["finished_s"].notna().all()
    np.testing.assert_array_equal(frame["output_tokens"], load.output_tokens)
    due_s, waits = arrives_s(load, frame), Graph(load.edges, load.service).waits > 0
    np.testing.assert_array_equal(frame["arrival_s"], due_s)
    assert (frame["started_s"][waits] >= due_s[waits]).all()


@pytest.mark.parametrize("who", ["arrival", "prompt", "draft", "predicted", "heard"])
@given(
    batch_rule=st.sampled_from([RULES[0], RULES[1], RULES[3]]),
    load=applications(),
    blocks=st.sampled_from([12, 40]),
    seed=st.integers(0, 99),
    waits_s=waits_s(3),
)
@settings(max_examples=6, deadline=None)
def test_same_times_with_and_without(
    who: str,
    batch_rule: ContinuousBatching,
    load: Workload,
    blocks: int,
    seed: int,
    waits_s: list[float],
) -> None:
    """Fast-forward on and off, while groups come and go."""
    frames = []
    for fast in (True, False):
        recorder = Recorder(keep_events=who == "heard")
        policies: dict[str, SchedulingPolicy] = {
            "prompt": Ordered(PriorityOrder(lambda table: -table.arrival_s, batch_rule)),
            "draft": SteadyFcfs(rotates=False),
        }
        serve(
            load,
            policies.get(who, Fcfs(rule=batch_rule)),
            Restless(seed, waits_s, 4),
            costs=UnevenCosts(blocks=blocks, load=0.37),
            fast_forward=fast,
            gpus=4,
            recorder=recorder,
            predictor=Guess(0.1) if who == "predicted" else None,
        )
        _check(recorder.requests, load)
        frames.append(recorder.requests)
    on, off = frames
    exact = ["output_tokens", "preemptions"]
    np.testing.assert_array_equal(on[exact], off[exact])
    times = ["arrival_s", "started_s", "first_token_s", "finished_s", "gpu_s", "prefill_s"]
    np.testing.assert_allclose(on[times], off[times], rtol=1e-9, atol=1e-9)


def test_nobody_sees_a_call_before_its_inputs_are_there() -> None:
    """What is known of it is its own part of the prompt, and who it waits for."""
    seen = []

    class Looking(Everywhere):
        def place(self, view):  # type: ignore[no-untyped-def]
            (service,) = view.services
            seen.append((view.unfinished(service), view.to_come(service), view.edges))
            return super().place(view)

    load = linked(workload([10, 20, 30], [7, 8, 9]), [(0, 1), (1, 2)])
    serve(load, None, Looking(("m", (0,))), costs=LinearCosts())
    arrived, to_come, edges = seen[0]
    assert arrived.id.tolist() == [0]
    assert to_come.id.tolist() == [1, 2]
    assert to_come.own_tokens.tolist() == [20, 30]
    assert (edges.parent.tolist(), edges.child.tolist()) == ([0, 1], [1, 2])
    assert not hasattr(to_come, "output_tokens")
