"""Throughput of a run in three readings, by hand."""

import pandas as pd
import pytest

from harness.runs.cells import Run
from harness.tests.support.run_folders import run_with
from systems.ssjf.measures import answered_per_s, quarter_per_s, whole_per_s

NEVER = float("nan")


def run_of(arrival_s: list[float], finished_s: list[float]) -> Run:
    return run_with(requests=pd.DataFrame({"arrival_s": arrival_s, "finished_s": finished_s}))


def test_answers_while_requests_come_in() -> None:
    """From 60 s to 70 s; one is answered right at the last arrival, two after it."""
    arrival_s = [60.0, 62.0, 64.0, 66.0, 70.0]
    run = run_of(arrival_s, [61.0, 75.0, 65.0, 70.0, 80.0])
    assert answered_per_s(run) == pytest.approx(3 / 10)


def test_the_whole_run_ends_with_the_last_answer() -> None:
    run = run_of([60.0, 62.0, 64.0], [61.0, 80.0, NEVER])
    assert whole_per_s(run) == pytest.approx(2 / 20)
    assert whole_per_s(run_of([0.0], [NEVER])) == 0.0


def test_a_quarter_of_five_is_the_second_answer() -> None:
    """Two in 8 s from the start."""
    run = run_of([0.0, 1.0, 2.0, 3.0, 4.0], [40.0, 30.0, 20.0, 8.0, 2.0])
    assert quarter_per_s(run) == pytest.approx(2 / 8)


def test_a_quarter_between_two_answers_is_in_proportion() -> None:
    """Of four, three quarters of the way from the first to the second: one in 5 s."""
    run = run_of([0.0] * 4, [2.0, 6.0, 50.0, 60.0])
    assert quarter_per_s(run) == pytest.approx(1 / 5)
