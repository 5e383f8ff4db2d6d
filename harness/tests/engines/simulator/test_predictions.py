"""Predictions in the simulator: when they are known, and how they order the queue."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.engines.recorder import Recorder
from harness.interface.entities import LengthPrediction, Request
from harness.interface.events import Predicted
from harness.interface.tables import RequestTable
from harness.tests.support.policies import ShortestFirst, some_load
from harness.tests.support.serving import FlatCosts, LinearCosts, serve, workload
from harness.workloads.workload import Workload


class Oracle:
    """The true length, after some seconds."""

    foresees: ClassVar[bool] = False

    def __init__(self, load: Workload, seconds: float) -> None:
        self._output, self._seconds = load.output_tokens, seconds

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """One sample: the truth."""
        return LengthPrediction((int(self._output[request.id]),)), self._seconds


def _sjf(seconds: float, fast: bool) -> tuple[list[float], Recorder]:
    load = workload([9] * 4, [7, 5, 3, 1], [0.0, 1.0, 1.0, 1.0])
    recorder = Recorder(keep_events=True)
    served = serve(
        load,
        ShortestFirst(),
        costs=FlatCosts(load=0.0),
        fast_forward=fast,
        recorder=recorder,
        predictor=Oracle(load, seconds),
    )
    return served.requests["finished_s"].tolist(), recorder


@pytest.mark.parametrize("fast", [True, False])
def test_predictions_come_when_they_are_ready_and_order_the_queue(fast: bool) -> None:
    """One at a time. r0 (7 tokens) runs from 0 to 2.0 s, when r1 to r3 (5, 3, 1) wait.

    Known at 1.5 s, they go shortest first: r3 to 2.5, r2 to 3.5, r1 to 5.0 s. With a latency of
    1.25 s they are known at 2.25 s: r1 has been taken by its id, to 3.5 s, then r3, then r2.
    """
    ends, recorder = _sjf(0.5, fast)
    assert ends == [2.0, 5.0, 3.5, 2.5]
    told = [(e.now_s, e.request) for e in recorder.events if isinstance(e, Predicted)]
    assert told == [(0.5, 0), (1.5, 1), (1.5, 2), (1.5, 3)]
    ends, recorder = _sjf(1.25, fast)
    assert ends == [2.0, 3.5, 5.0, 4.0]
    told = [(e.now_s, e.request) for e in recorder.events if isinstance(e, Predicted)]
    assert told == [(1.25, 0), (2.25, 1), (2.25, 2), (2.25, 3)]


@pytest.mark.parametrize("fast", [True, False])
def test_a_prediction_without_latency_is_there_at_arrival(fast: bool) -> None:
    """Three arrive at an idle group at 3.0 s: the shortest goes first, not the first by id."""
    load = workload([9] * 3, [5, 3, 1], [3.0, 3.0, 3.0])
    frame = serve(
        load,
        ShortestFirst(),
        costs=FlatCosts(),
        fast_forward=fast,
        predictor=Oracle(load, 0.0),
    ).requests
    assert frame["finished_s"].tolist() == [6.0, 4.5, 3.5]


def _on_and_off(
    seed: int, seconds: float, policy: ShortestFirst, *, blocks: int
) -> list[pd.DataFrame]:
    """What becomes of 30 requests with fast-forward and without; the policy keeps no state."""
    load = some_load(seed, count=30, services=1)
    return [
        serve(
            load,
            policy,
            costs=LinearCosts(blocks=blocks),
            fast_forward=fast,
            predictor=Oracle(load, seconds),
        ).requests
        for fast in (True, False)
    ]


class ByPrediction(ShortestFirst):
    """The predicted length itself is the key: none until it is predicted."""

    @staticmethod
    def _key(table: RequestTable) -> NDArray[np.float64]:
        return table.predicted_mean_tokens


@pytest.mark.parametrize("chunked_prefill", [True, False])
@given(seed=st.integers(0, 999), seconds=st.sampled_from([0.0713, 0.9137, 1e9]))
@settings(max_examples=7, deadline=None)
def test_a_key_that_is_not_known_yet(chunked_prefill: bool, seed: int, seconds: float) -> None:
    """Compiled and in the open: who is not predicted comes last, by id."""
    policy = ByPrediction(chunked_prefill=chunked_prefill, max_num_seqs=3)
    on, off = _on_and_off(seed, seconds, policy, blocks=30)
    np.testing.assert_array_equal(on["preemptions"], off["preemptions"])
    times = ["started_s", "finished_s", "preempted_s"]
    np.testing.assert_allclose(on[times], off[times], rtol=1e-9)
