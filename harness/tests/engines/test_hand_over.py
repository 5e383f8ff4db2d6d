"""Answers that take a while to reach the calls that waited for them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tests.support.applications import applications, arrives_s, linked
from harness.tests.support.serving import serve, workload
from harness.workloads.workload import Workload


def test_a_chain_is_longer_by_every_hand_over() -> None:
    chain = linked(workload([5, 5, 5], [4, 4, 4], [0.0] * 3), [(0, 1), (1, 2)])
    at_once, later = serve(chain).requests, serve(chain, hand_over_s=0.25).requests
    waited_s = later["finished_s"] - at_once["finished_s"]
    assert waited_s.tolist() == pytest.approx([0.0, 0.25, 0.5])
    assert later["arrival_s"][1] == later["finished_s"][0] + 0.25


@given(load=applications(), after_s=st.sampled_from([0.0, 0.003, 0.4]))
@settings(deadline=None, max_examples=60)
def test_calls_come_so_long_after_their_last_answer(load: Workload, after_s: float) -> None:
    frame = serve(load, gpus=3, hand_over_s=after_s).requests
    assert frame["arrival_s"].to_numpy() == pytest.approx(arrives_s(load, frame, after_s))
    assert (frame["first_token_s"] > frame["arrival_s"]).all()
    stepped = serve(load, gpus=3, hand_over_s=after_s, fast_forward=False).requests
    pd.testing.assert_frame_equal(frame, stepped, rtol=1e-9)


@pytest.mark.parametrize("after_s", [-1.0, np.inf, np.nan])
def test_answers_are_neither_early_nor_lost(after_s: float) -> None:
    with pytest.raises(ValueError, match=f"engine.hand_over_s is {after_s}, it must be 0 or more"):
        serve(workload([5], [4], [0.0]), hand_over_s=after_s)
