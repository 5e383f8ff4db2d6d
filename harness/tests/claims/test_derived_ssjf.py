"""Throughput of a run, by hand, and latencies beside the printed ones."""

from pathlib import Path

import pandas as pd
import pytest

from harness.claims.derived.ssjf import (
    MODELS,
    answered_per_s,
    latencies,
    quarter_per_s,
    whole_per_s,
)
from harness.claims.reading import read_claims
from harness.paths import ROOT

NEVER = float("nan")


def run_of(folder: Path, arrival_s: list[float], finished_s: list[float]) -> Path:
    """A run's folder with nothing in it but its requests."""
    folder.mkdir(exist_ok=True)
    table = pd.DataFrame({"arrival_s": arrival_s, "finished_s": finished_s})
    table.to_parquet(folder / "requests.parquet")
    return folder


def test_what_is_answered_while_requests_come_in(tmp_path: Path) -> None:
    """From 60 s to 70 s; one is answered right at the last arrival, two after it."""
    arrival_s = [60.0, 62.0, 64.0, 66.0, 70.0]
    run = run_of(tmp_path, arrival_s, [61.0, 75.0, 65.0, 70.0, 80.0])
    assert answered_per_s(run) == pytest.approx(3 / 10)


def test_what_is_never_answered_is_not_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path, [0.0, 4.0, 10.0], [5.0, NEVER, NEVER])
    assert answered_per_s(run) == pytest.approx(1 / 10)


def test_the_whole_run_ends_with_the_last_answer(tmp_path: Path) -> None:
    run = run_of(tmp_path, [60.0, 62.0, 64.0], [61.0, 80.0, NEVER])
    assert whole_per_s(run) == pytest.approx(2 / 20)
    assert whole_per_s(run_of(tmp_path / "none", [0.0], [NEVER])) == 0.0


def test_when_a_quarter_is_answered(tmp_path: Path) -> None:
    """Of five, the second to be answered is a quarter on the way: two in 8 s from the start."""
    run = run_of(tmp_path, [0.0, 1.0, 2.0, 3.0, 4.0], [40.0, 30.0, 20.0, 8.0, 2.0])
    assert quarter_per_s(run) == pytest.approx(2 / 8)


def test_a_quarter_between_two_answers_is_in_proportion(tmp_path: Path) -> None:
    """Of four, three quarters of the way from the first to the second: one in 5 s."""
    run = run_of(tmp_path, [0.0] * 4, [2.0, 6.0, 50.0, 60.0])
    assert quarter_per_s(run) == pytest.approx(1 / 5)


def test_a_quarter_of_all_requests_answered_or_not(tmp_path: Path) -> None:
    run = run_of(tmp_path, [0.0] * 5, [2.0, 8.0, 20.0, NEVER, NEVER])
    assert quarter_per_s(run) == pytest.approx(2 / 8)


@pytest.mark.parametrize("mode", ["none", "dynamic", "continuous"])
@pytest.mark.parametrize("kind", ["throughput", "oracle-throughput"])
def test_the_stated_loads_of_figure_7_leave_room_for_what_is_printed(kind: str, mode: str) -> None:
    """Nobody answers more than comes in, and first come first served what it can: load 1.

    At a load below 1 alone no policy could gain anything, whatever the paper prints.
    """
    claims = {claim.id: claim for claim in read_claims(ROOT / "results" / "claims" / "ssjf.yaml")}
    claim = claims[f"ssjf.fig7.{kind}-{mode}"]
    loads = next(one.values for one in claim.open if one.key == "workload.arrivals.load")[0]
    most = sum(loads) / sum(min(load, 1.0) for load in loads)
    assert most >= 1.0 + (1.0 - claim.checks[0].tolerance) * (claim.paper - 1.0)


def table() -> pd.DataFrame:
    """The latencies beside those that the claims have as printed."""
    claims = read_claims(ROOT / "results" / "claims" / "ssjf.yaml")
    return latencies({claim.id: claim.facts for claim in claims})


def test_ratios_are_ours_over_the_papers() -> None:
    rows = table().set_index("paper")
    assert list(rows.index) == list(MODELS)
    for reading in ("prompt", "generate"):
        again = rows[f"{reading}_ms"] / rows["paper_ms"]
        assert rows[f"{reading}_ratio"].tolist() == pytest.approx(again.tolist())


def test_the_papers_figures_lie_between_both_readings() -> None:
    """So neither reading reproduces them, for any of the ten models."""
    rows = table()
    assert (rows["prompt_ms"] < rows["paper_ms"]).all()
    assert (rows["generate_ms"] > rows["paper_ms"]).all()
