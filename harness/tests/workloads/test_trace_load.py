"""Which requests of a trace are taken, and the load that they make."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.tests.support.cases import CASES
from harness.tests.support.recorded_requests import trace
from harness.workloads.arrivals import ClosedLoop, Gamma
from harness.workloads.trace_load import busiest_window
from harness.workloads.trace_sessions import whole_sessions

MANY = CASES / "traces" / "sessions_many.jsonl"
Write = Callable[[str, str], Path]
Own = Callable[..., Path]


def test_the_load_of_sessions_is_that_of_their_first_turns() -> None:
    """50 sessions of 4 turns, one a second; 60 tokens an answer."""
    load = trace(MANY).load()
    assert (load.requests, load.sessions, load.arrivals, load.left_out) == (200, 50, 50, 0)
    assert load.span_s == 49.0
    assert (load.arrivals_per_s, load.requests_per_s) == (1.0, 4.0)
    assert load.output_tokens == 12_000


def test_a_scale_makes_sessions_denser_and_leaves_their_delays() -> None:
    plain, dense = (trace(MANY, rate_scale=scale).build(0) for scale in (1.0, 2.0))
    assert dense.arrival_s == pytest.approx(plain.arrival_s / 2)
    for load in (plain, dense):
        assert load.apps is not None
        assert np.nanmax(load.apps.external_s) == np.nanmin(load.apps.external_s) == 1.5


def test_times_of_sessions_may_be_drawn() -> None:
    recipe = trace(MANY, arrivals=Gamma(rate_per_s=2.0, burstiness=1.0, sorted_gaps=False))
    assert len(np.unique(recipe.build(0).arrival_s)) == 50
    assert recipe.load().span_s == np.ptp(recipe.build(0).arrival_s)
    with pytest.raises(ValueError, match="has sessions, whose turns wait for certain answers"):
        trace(MANY, arrivals=ClosedLoop(clients=2, ramp_up_s=0.0, think_s=0.0))


SESSIONS = [
    {"session": "a", "arrival_s": 0, "prompt_tokens": 100, "output_tokens": 10, "priority": 1},
    {"session": "b", "arrival_s": 2, "prompt_tokens": 80, "output_tokens": 10, "priority": 0},
    {"session": "a", "delay_s": 1.5, "prompt_tokens": 50, "output_tokens": 10, "priority": 1},
]


def test_sessions_of_ones_own_columns(written: Write) -> None:
    """100, its answer of 10 and 50 new tokens; or of these 70 are kept."""
    rows = [dict(row) for row in SESSIONS]
    recipe = trace(written("a.jsonl", "\n".join(map(json.dumps, rows))))
    assert (recipe.load().prompt_tokens, recipe.load().shared_tokens) == (340, 110)
    for row, kept in zip(rows, (0, 0, 70), strict=True):
        row["kept_tokens"] = kept
    recipe = trace(written("a.jsonl", "\n".join(map(json.dumps, rows))))
    assert (recipe.load().prompt_tokens, recipe.load().shared_tokens) == (300, 70)
    del rows[2]["delay_s"]
    with pytest.raises(ValueError, match="row 3: a later turn of a session has no delay_s"):
        trace(written("a.jsonl", "\n".join(map(json.dumps, rows))))


ROUNDS = (
    "id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len\n"
    "a,40,5,0,0,700,10\na,20,5,0,2,0,30\na,20,5,0,1,250,55\n"
)


def test_rounds_of_tracelab_are_in_order_and_keep_what_they_say(written: Write) -> None:
    """Round 0 begins with 10 tokens of nothing there; round 2 keeps 30 of 80 of round 1."""
    recipe = trace(written("a.csv", ROUNDS))
    load = recipe.build(0)
    assert (recipe.load().prompt_tokens, recipe.load().shared_tokens) == (50 + 75 + 50, 55 + 30)
    assert load.apps is not None
    assert sorted(load.apps.external_s[load.apps.outside]) == [0.25, 0.7]
    assert any("1 turns keep more than there was" in note for note in load.notes)
    with pytest.raises(ValueError, match="row 4: its session has this round_idx before"):
        trace(written("a.csv", f"{ROUNDS}a,1,1,0,1,0,0\n"))


def test_requests_are_counted_after_what_is_left_out(own: Own) -> None:
    """40 rows, of which 30 fit: asking for 30 gives 30."""
    rows = [{"arrival_s": n, "prompt_tokens": 5000 if n % 4 == 1 else 10} for n in range(40)]
    file = own(*rows)
    recipe = trace(file, too_long="drop", requests=30)
    assert (recipe.load().requests, recipe.load().left_out) == (30, 10)
    said = "10 of 40 requests are too long and left out, rows 2, 6, 10, 14, 18, ...: 10 exceed the"
    assert any(f"{said} context of 4096" in note for note in recipe.build(0).notes)
    assert trace(file, too_long="drop", requests=5).load().requests == 5
    with pytest.raises(ValueError, match=r"has 30 requests after 10 too long .*requests=31 were"):
        trace(file, too_long="drop", requests=31)


def test_sessions_are_taken_and_dropped_whole(written: Write) -> None:
    recipe = trace(MANY, requests=30)
    assert (recipe.load().requests, recipe.load().sessions) == (28, 7)
    assert any(
        "28 requests are whole sessions, of 30 asked for" in it for it in recipe.build(0).notes
    )
    with pytest.raises(ValueError, match=r"no whole session is among workload.requests=3 requests"):
        trace(MANY, requests=3)
    rows = [*map(dict, SESSIONS)]
    rows[2]["prompt_tokens"] = 5000
    recipe = trace(written("a.jsonl", "\n".join(map(json.dumps, rows))), too_long="drop")
    assert (recipe.load().requests, recipe.load().left_out, recipe.load().sessions) == (1, 2, 1)


ONE_A_MINUTE = 100.0 * np.arange(50)
BURST = np.sort(np.concatenate([ONE_A_MINUTE, 2_010 + np.arange(10.0)]))


@pytest.mark.parametrize(
    ("arrival_s", "count", "window"),
    [
        (BURST, 20, (16, 36)),  # rows 21 to 30 are the burst
        (BURST, 5, (21, 26)),
        (BURST, 60, (0, 60)),
        (np.array([0.0, 9.0, 10.0, 11.0, 30.0]), 3, (1, 4)),  # shorter than a minute
        (np.array([5.0]), 1, (0, 1)),
    ],
)
def test_the_busiest_minute_is_in_the_window(
    arrival_s: "np.ndarray[tuple[int], np.dtype[np.float64]]", count: int, window: tuple[int, int]
) -> None:
    assert busiest_window(arrival_s, count) == window
    with pytest.raises(ValueError, match="arrivals were asked for"):
        busiest_window(arrival_s, len(arrival_s) + 1)


def test_a_run_takes_the_busiest_window(own: Own) -> None:
    file = own(*({"arrival_s": float(at)} for at in BURST))
    load = trace(file, requests=5, requests_from="busiest").build(0)
    assert load.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    said = "own.jsonl: requests 22 to 26 of 60, which contain the busiest minute"
    assert said in load.notes
    with pytest.raises(ValueError, match=r"requests_from=busiest needs workload\.requests"):
        trace(file, requests_from="busiest")


def test_whole_sessions_of_a_window() -> None:
    sessions = pd.Series([*"aabbbc"])
    assert whole_sessions(sessions, 0, 6) == (0, 6)
    assert whole_sessions(sessions, 1, 5) == (2, 5)
    assert whole_sessions(sessions, 1, 4) == (2, 2)
