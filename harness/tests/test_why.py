"""A request's time adds up from its parts, which are worked out by hand."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness import why
from harness.__main__ import main
from harness.tests.support.serving import LinearCosts, rule, serve, workload


def test_parts_by_hand() -> None:
    """Arrives at 1, runs from 3; preempted for 2 s; 1 s of prefill, 2.5 s of decode; done at 10."""
    requests = pd.DataFrame(
        {
            "request": [7],
            "waiting_s": [2.0],
            "finished_s": [10.0],
            "gpu_s": [3.5],
            "prefill_s": [1.0],
            "preempted_s": [2.0],
            "paused_s": [1.5],
        }
    )
    assert why.parts(requests).loc[7].to_dict() == {
        "waiting_s": 2.0,
        "preempted_s": 2.0,
        "prefill_s": 1.0,
        "decode_s": 2.5,
        "paused_s": 1.5,
    }


@pytest.mark.parametrize("fast_forward", [True, False])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=20),
    chunked_prefill=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_parts_are_never_negative_and_add_up(
    sizes: list[tuple[int, int]], chunked_prefill: bool, fast_forward: bool
) -> None:
    prompts, outputs = ([size[i] for size in sizes] for i in (0, 1))
    recorder = serve(
        workload(prompts, outputs),
        Fcfs(rule=rule(chunked_prefill=chunked_prefill, max_num_seqs=5, tokens=128)),
        costs=LinearCosts(blocks=14),
        fast_forward=fast_forward,
    )
    frame = why.parts(recorder.requests)
    assert (frame.to_numpy() >= -1e-9).all()
    total = (recorder.requests["finished_s"] - recorder.requests["arrival_s"]).to_numpy()
    assert frame.sum(axis=1).to_numpy() == pytest.approx(total)
    preempted = (recorder.requests["preemptions"] > 0).to_numpy()
    assert ((frame["preempted_s"] > 0).to_numpy() == preempted).all()


def test_explain_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no requests\.parquet"):
        why.explain(tmp_path, 0)
    serve(workload([9], [3])).requests.to_parquet(tmp_path / "requests.parquet")
    with pytest.raises(ValueError, match="requests 0 to 0, not 4"):
        why.explain(tmp_path, 4)
    assert main(["why", str(tmp_path), "4"]) == 2
    assert main(["why", str(tmp_path), "0"]) == 0
