"""Seconds from when a request is sent until its scheduler has it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.interface.decisions import Deployment
from harness.interface.views import ClusterView
from harness.tests.support.applications import applications, arrives_s, linked
from harness.tests.support.loads import assert_same_times
from harness.tests.support.policies import Restless
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    serve,
    workload,
)
from harness.workloads.workload import Workload


@pytest.mark.parametrize("fast", [True, False])
def test_the_first_token_is_later_by_the_intake(fast: bool) -> None:
    """An eighth of a second, and a quarter for eight tokens; the GPU computes as long."""
    load = workload([8], [3], [5.0])
    at_once = serve(load, costs=FlatCosts(), fast_forward=fast).requests
    costs = FlatCosts(intake_s_per_request=0.125, intake_s_per_prompt_token=1 / 32)
    served = serve(load, costs=costs, fast_forward=fast).requests
    later = ["started_s", "first_token_s", "finished_s", "waiting_s"]
    assert (served[later] - at_once[later] == 0.375).all(axis=None)
    same = ["arrival_s", "gpu_s", "prefill_s", "paused_s", "preempted_s"]
    assert (served[same] == at_once[same]).all(axis=None)


def test_a_short_prompt_overtakes_a_long_one() -> None:
    load = workload([80, 8], [3, 3], [5.0, 5.1])
    costs = FlatCosts(intake_s_per_prompt_token=1 / 32)
    assert serve(load, costs=costs).requests["started_s"].tolist() == [7.5, 5.35]


@pytest.mark.parametrize("fast", [True, False])
def test_a_call_that_waited_for_an_answer_is_taken_in_too(fast: bool) -> None:
    chain = linked(workload([8, 8], [3, 3]), [(0, 1)])
    costs = FlatCosts(intake_s_per_request=0.25)
    served = serve(chain, costs=costs, hand_over_s=0.5, fast_forward=fast).requests
    assert served["arrival_s"][1] == served["finished_s"][0] + 0.5
    assert served["started_s"][1] == served["arrival_s"][1] + 0.25


@given(
    load=applications(),
    after_s=st.sampled_from([0.0, 0.0213]),
    seed=st.integers(0, 999),
    waits_s=st.lists(st.sampled_from([0.0113, 0.0719, 0.2719]), max_size=4),
)
@settings(max_examples=15, deadline=None)
def test_calls_are_sent_when_answers_are_handed_over(
    load: Workload, after_s: float, seed: int, waits_s: list[float]
) -> None:
    """Groups come and go meanwhile; intake delays when calls run, not when they are sent."""
    costs = UnevenCosts(
        blocks=12, load=0.05, intake_s_per_request=0.0031, intake_s_per_prompt_token=0.0007
    )

    def served(fast: bool) -> Recorder:
        placement = Restless(seed, waits_s, 3)
        return serve(
            load, placement=placement, costs=costs, gpus=3, hand_over_s=after_s, fast_forward=fast
        )

    requests = assert_same_times(served).requests
    assert requests["arrival_s"].to_numpy() == pytest.approx(arrives_s(load, requests, after_s))
    intake_s = 0.0031 + 0.0007 * requests["prompt_tokens"]
    assert (requests["started_s"] >= requests["arrival_s"] + intake_s - 1e-9).all()


class Watch(Everywhere):
    """Keeps what a placement sees of requests and calls, every tenth of a second."""

    def __init__(self) -> None:
        super().__init__(("m", (0,)))
        self.seen: dict[float, tuple[int, int, int]] = {}

    def place(self, view: ClusterView) -> Deployment:
        """The same group; look again."""
        (service,) = view.services
        counts = view.backlog[service], len(view.to_come(service).id)
        self.seen[round(view.now_s, 3)] = *counts, len(view.arrived_after(-1.0)[0].id)
        return Deployment(super().place(view).groups, wake_s=view.now_s + 0.1)


def test_nothing_is_seen_of_a_request_before_it_is_taken_in() -> None:
    """An application of two calls comes at 0.15 s, a request at 0.45 s; each is taken in 0.2 s."""
    load = linked(workload([8, 8, 8], [150, 3, 3], [0.15, 0.15, 0.45]), [(0, 1)])
    load = replace(load, app=np.array([0, 0, 1]))
    placement = Watch()
    serve(load, placement=placement, costs=LinearCosts(load=0.0, intake_s_per_request=0.2))
    seen = placement.seen
    assert [seen[at_s] for at_s in (0.0, 0.2, 0.3)] == [(0, 0, 0)] * 3
    assert [seen[at_s] for at_s in (0.4, 0.5, 0.6)] == [(1, 1, 1)] * 3
    assert seen[0.7][1:] == (1, 2)
