"""Figures of SeaLLM's claims by hand: normalized latency, attainment, load over capacity."""

import pandas as pd
import pytest

from harness.claims.effects import EffectKind
from harness.runs.cells import Run
from harness.tests.support.run_folders import run_with
from systems.seallm.claims import LOADS
from systems.seallm.measures import (
    attainment,
    attainment_at,
    busiest_backlog_s,
    explained_by_service,
    mean_backlog_s,
    normalized_latency,
)


@pytest.fixture
def run() -> Run:
    """`a` answers after 2 and 8 s what takes 1 and 3 s alone; `b` after 600 s what takes 10 s."""
    rows = pd.DataFrame(
        {
            "service": ["a", "a", "b"],
            "arrival_s": [0.0, 1.0, 0.0],
            "finished_s": [2.0, 9.0, 600.0],
            "solo_s": [1.0, 3.0, 10.0],
        }
    )
    return run_with(requests=rows)


def test_latencies_are_over_the_mean_of_the_service(run: Run) -> None:
    """2 / 2, 8 / 2 and 600 / 10, over three requests."""
    assert normalized_latency(run) == pytest.approx((1 + 4 + 60) / 3)


def test_limits_are_of_the_request_or_of_its_service(run: Run) -> None:
    """Five times 1, 3 and 10 s keep two of three; three times the mean, 2 s, one."""
    assert attainment(run) == pytest.approx(2 / 3)
    assert attainment_at(3.0)(run) == pytest.approx(1 / 3)


def test_services_explain_variance_by_hand(run: Run) -> None:
    """Of 1, 3 and 10 s the variance is 67 / 3; off the means of services, 2 and 10 s, it is 1."""
    assert explained_by_service(run) == pytest.approx(1 - 3 / 67)


def test_load_over_capacity_by_hand(run: Run) -> None:
    """What arrives in 300 s at 50/s takes b's engines 600 s: a load of 2, at 10/s of 0.4.

    a's take 9 s, so that all GPUs would take 304.5 s, a load of 1.015.
    """
    assert busiest_backlog_s(run) == 600.0
    assert mean_backlog_s(run) == 304.5
    cells = pd.DataFrame({"seed": [0], "system": ["dedicated_tp1"], "folder": [run]})
    found = {fact.says: fact.measure(cells) for fact in LOADS}
    assert {one.kind for one in found.values()} == {EffectKind.ABSOLUTE}
    loads = {says: float(one.samples.to_numpy(float)[0, 0]) for says, one in found.items()}
    assert loads["50/s, busiest service, vLLM"] == 2.0
    assert loads["10/s, busiest service, vLLM"] == pytest.approx(0.4)
    assert loads["50/s, all GPUs"] == pytest.approx(1.015)
