"""Compiled runs of many iterations give what deciding every iteration in the open gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.decisions import BatchRule
from harness.recorder import Recorder
from harness.tests.serving import LinearCosts, rule, serve, workload

RULES = (
    rule(mixed=False, pads=True, seats=4, tokens=300, padding=40),
    rule(mixed=False, pads=False, seats=6, tokens=220),
    rule(mixed=False, pads=True, seats=8, tokens=300, spare=0.05),
    rule(mixed=True, seats=6, tokens=16),
    rule(mixed=True, seats=8, tokens=40, spare=0.02),
)


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    """Prompts, outputs and arrivals of up to 30 requests, in bursts and gaps."""
    count = draw(st.integers(1, 30))
    prompts = draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(1, 70), min_size=count, max_size=count))
    gaps = draw(
        st.lists(st.sampled_from([0.0, 0.0, 0.003, 0.05, 0.7]), min_size=count, max_size=count)
    )
    return prompts, outputs, np.cumsum(gaps).tolist()


def _columns(recorder: Recorder) -> tuple[np.ndarray, np.ndarray]:
    frame = recorder.requests
    exact = frame[["output_tokens", "preemptions"]].to_numpy()
    times = frame[["first_token_s", "finished_s", "gpu_s"]].to_numpy()
    return exact, times


@pytest.mark.parametrize("batch_rule", RULES)
@given(load=loads(), blocks=st.sampled_from([12, 17, 30, 200]))
@settings(max_examples=60, deadline=None)
def test_same_times_with_and_without(
    batch_rule: BatchRule, load: tuple[list[int], list[int], list[float]], blocks: int
) -> None:
    served = [
        _columns(
            serve(
                workload(*load),
                Fcfs(rule=batch_rule),
                costs=LinearCosts(blocks=blocks, load=0.0),
                fast_forward=fast,
            )
        )
        for fast in (True, False)
    ]
    np.testing.assert_array_equal(served[0][0], served[1][0])
    np.testing.assert_allclose(served[0][1], served[1][1], rtol=1e-9)
