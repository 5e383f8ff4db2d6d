"""What binds, from the numbers of a run, and how sure a value is."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from harness.capacity.binding import Pressure, binding, parts_kept, pressure_of
from harness.capacity.objectives import parse_objectives
from harness.capacity.sureness import error_of, intervals
from harness.engines.recorder import GpuUse
from harness.runs.cells import Run

OBJECTIVES = parse_objectives("ttft 1 p95, tpot 0.05 p95")
FREE = Pressure(
    preempted=0.0, kv_full=0.0, kv_most=0.4, requests_full=0.0, most_requests=256, busy=0.97
)


@pytest.mark.parametrize(
    ("found", "calm", "said"),
    [
        (FREE, 0.5, "compute: 50% of 20 parts of the requests, by arrival, keep the objectives"),
        (replace(FREE, preempted=0.02), 0.9, "KV: 2% of the requests are preempted"),
        (replace(FREE, kv_full=0.3, requests_full=0.9), 0.9, "KV: 0% of the requests are preempt"),
        (FREE, 0.9, "bursts: 90% of 20 parts of the requests, by arrival, keep the objectives"),
        (replace(FREE, requests_full=0.3), 0.9, "the limit of requests at once: 256 requests, as"),
    ],
)
def test_what_binds_is_what_is_full(found: Pressure, calm: float, said: str) -> None:
    assert binding(OBJECTIVES, (1.2, 0.02), (0.2, 0.01), found, calm).startswith(said)


def test_bursts_are_few_parts_that_fail() -> None:
    """Two of twenty parts have all the late requests; or each has some."""
    ttft = np.full(2000, 0.1)
    ttft[:200] = 3.0
    seconds = {"ttft": ttft, "tpot": np.full(2000, 0.02)}
    assert parts_kept(OBJECTIVES, seconds) == pytest.approx(0.9)
    seconds["ttft"] = np.tile(ttft[190:210], 100)
    assert parts_kept(OBJECTIVES, seconds) == 0.0


def test_a_request_that_is_late_alone_binds_by_itself() -> None:
    """Of objectives that fail; one that is kept does not count."""
    said = binding(OBJECTIVES, (1.2, 0.02), (0.9, 0.01), FREE, 0.5)
    assert said == "the tail of prompts: alone on idle GPUs ttft p95 is 0.9 s already"
    said = binding(OBJECTIVES, (0.95, 0.06), (0.9, 0.045), FREE, 0.5)
    assert said.startswith("the seconds of a request: alone on idle GPUs tpot p95 is 0.045 s")


def test_pressure_by_hand() -> None:
    """Two iterations of 1 s and 3 s on one of two GPUs, 5 s; the second is full in all."""
    requests = {
        "request": [0, 1],
        "arrival_s": [0.0, 0.0],
        "first_token_s": [1.0, 4.0],
        "started_s": [0.0, 1.0],
        "finished_s": [4.0, 5.0],
        "output_tokens": [2, 2],
        "preemptions": [0, 1],
    }
    log = {
        "group": "m@0",
        "duration_s": [1.0, 3.0],
        "free_tokens": [60, 5],
        "prefill_requests": [1, 0],
        "decode_requests": [0, 2],
        "waiting_requests": [0, 1],
        "paused_requests": [0, 0],
    }
    busy = {"gpu": [0, 0], "start_s": [0.0, 1.0], "end_s": [1.0, 4.0], "use": GpuUse.BUSY.value}
    tables = {
        "requests": pd.DataFrame(requests),
        "iterations": pd.DataFrame(log),
        "gpu": pd.DataFrame(busy),
    }
    config = {"engine": {"max_num_seqs": 4}, "policy": {"rule": {"max_num_seqs": 2}}}
    facts = {"cut_off_s": None, "gpus": 2, "kv_tokens": {"m@0": 100.0}}
    found = pressure_of(Run(config, facts, {}, tables))
    assert (found.preempted, found.kv_full, found.kv_most) == (0.5, 0.75, 0.95)
    assert (found.most_requests, found.requests_full) == (2, 0.75)
    assert found.busy == pytest.approx(0.4)


def test_intervals_over_blocks_have_the_value_in_them() -> None:
    rng = np.random.default_rng(0)
    seconds = {"ttft": rng.exponential(0.3, 400), "tpot": np.full(400, 0.02)}
    spans, share = intervals(OBJECTIVES, seconds)
    value_s = float(OBJECTIVES[0].value_s(seconds["ttft"]))
    assert spans[0].low_s < value_s < spans[0].high_s
    assert (spans[1].low_s, spans[1].high_s) == (0.02, 0.02)
    assert 0 < share < 1
    late = seconds | {"tpot": np.full(400, np.inf)}
    assert intervals(OBJECTIVES, late)[1] == 0.0
    assert intervals(OBJECTIVES, {name: it[:30] for name, it in seconds.items()})[0] == []


def test_the_error_is_the_larger_of_both_phases() -> None:
    assert error_of({"decode_median": 0.07, "prefill_median": 0.12, "decode_p90": 0.3}) == 0.12
    assert error_of({}) == 0.0
