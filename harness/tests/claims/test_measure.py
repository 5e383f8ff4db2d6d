"""Which runs a check is about, what is made of them, and what is said where some are missing."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness.claims.findings import Agreement
from harness.claims.judge import judge
from harness.claims.settling import Specification
from harness.tests.support.claims import LIMIT, REQUESTS, check, even, falling, runs


def test_minus_takes_a_column_off_both() -> None:
    """(21 - 1) / (11 - 1) = 2, where 21 / 11 = 1.9."""

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return 21.0 if name == "old" else 11.0

    assert judge(check(minus="load_s", paper=2.0), runs(seconds)).ours.startswith("2.00")
    assert judge(check(paper=2.0), runs(seconds)).ours.startswith("1.91")


def test_a_missing_cell_is_not_run() -> None:
    rows = runs(even(falling))
    name = rows["config.system.name"] == "old"
    gone = rows[name & (rows[REQUESTS] == 200) & (rows[LIMIT] == 16) & (rows["config.seed"] == 1)]
    found = judge(check(), rows.drop(gone.index))
    assert (found.agreement, found.ours) == (Agreement.NOT_RUN, "")
    assert found.note == "no run for name old, requests 200, max_output_tokens 16, seed 1"


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (pd.DataFrame(), "no runs of toy"),
        (runs(even(falling), counts=(100, 200)), "no run for name new, requests 300"),
        (runs(even(falling)).drop(columns="end_to_end_s"), "have no end_to_end_s"),
        (runs(even(falling)).drop(columns=LIMIT), f"have no {LIMIT}"),
        (runs(even(falling)).assign(end_to_end_s=None), "no figure for name new"),
        (runs(even(falling)).assign(**{LIMIT: 99}), "no runs of toy at the settings"),
    ],
)
def test_what_is_missing_is_said(rows: pd.DataFrame, note: str) -> None:
    found = judge(check(), rows)
    assert found.agreement == Agreement.NOT_RUN
    assert note in found.note


def test_runs_beyond_the_ends_do_not_count() -> None:
    rows = runs(
        even(lambda count, limit: falling(count, limit) if count in (100, 200, 300) else 9),
        counts=(50, 100, 200, 300, 400),
    )
    assert judge(check(), rows).agreement == Agreement.AGREES


@pytest.mark.parametrize(("counts", "mean"), [([100, 200, 300], "2.00"), ([300], "3.00")])
def test_a_choice_may_be_the_range_that_a_figure_is_over(counts: list[int], mean: str) -> None:
    """Speedups of 1, 2 and 3 at 100, 200 and 300 requests; which of them are meant is open."""
    rows = runs(even(lambda count, limit: count / 100))
    choices = Specification({"workload.requests": counts})
    one = check(
        rule="figure", paper=2.0, settings={REQUESTS: {"each": [100]}, LIMIT: {"each": [8]}}
    )
    assert judge(one, rows, "paper", choices).ours.startswith(mean)


def test_several_runs_of_one_cell_are_not_guessed_between() -> None:
    rows = pd.concat([runs(even(falling)), runs(even(falling))], ignore_index=True)
    rows["config.policy.slots"] = [1] * (len(rows) // 2) + [2] * (len(rows) // 2)
    found = judge(check(), rows)
    assert found.agreement == Agreement.NOT_RUN
    assert found.note.endswith("config.policy.slots differ")
    chosen = check(where={"config.policy.slots": 1})
    assert judge(chosen, rows).agreement == Agreement.AGREES
    absent = check(where={"config.engine": "x"})
    assert judge(absent, rows).note == "no runs with engine x"


def test_only_runs_of_one_variant_count() -> None:
    """The paper's unless another is asked for; here only the program's are as claimed."""
    rows = pd.concat([runs(even(lambda *_: 0.5)), runs(even(falling))], ignore_index=True)
    rows["config.variant"] = ["paper"] * (len(rows) // 2) + ["code"] * (len(rows) // 2)
    assert judge(check(), rows).agreement == Agreement.DIFFERS
    assert judge(check(), rows, "code").agreement == Agreement.AGREES


def test_figures_of_several_runs_are_added() -> None:
    """New alone takes 10 s and more; old and older, one after the other, three times that."""
    times = {"new": 1.0, "old": 1.0, "older": 2.0}
    rows = runs(lambda name, count, limit, seed: (10.0 + seed) * times[name])
    both = check(baselines=[{"config.system.name": {"sum": ["old", "older"]}}], paper=[3.0, 3.0])
    assert judge(both, rows).agreement == Agreement.AGREES
    assert judge(replace(both, paper=[2.0, 2.0]), rows).agreement != Agreement.AGREES


def test_of_those_added_some_may_have_been_run_at_one_setting() -> None:
    """Older takes 20 s whatever the requests are, and was run with 100 of them alone."""
    times = {"new": 10.0, "old": 10.0, "older": 20.0}
    rows = runs(lambda name, count, limit, seed: times[name] + seed)
    is_older = rows["config.system.name"] == "older"
    rows = rows[~is_older | (rows[REQUESTS] == 100)]
    whole = check(baselines=[{"config.system.name": {"sum": ["old", "older"]}}], paper=[3.0, 3.0])
    assert judge(whole, rows).agreement is Agreement.NOT_RUN
    there = {"config.system.name": "older", REQUESTS: 100}
    placed = replace(whole, baselines=[{"config.system.name": {"sum": ["old", there]}}])
    assert judge(placed, rows).agreement is Agreement.AGREES
    assert judge(replace(placed, paper=[2.0, 2.0]), rows).agreement is not Agreement.AGREES


def seed_in(folder: Path) -> float:
    """A figure that a check derives from a run's folder."""
    return float(folder.name)


def test_a_figure_is_derived_from_run_folders() -> None:
    rows = runs(even(falling))
    rows["folder"] = ["somewhere/7"] * len(rows)
    derived = check(
        rule="within",
        quantity="value",
        columns=["figure"],
        derive={"figure": f"{__name__}:seed_in"},
        baselines=[],
        paper=[7, 7],
    )
    assert judge(derived, rows).agreement == Agreement.AGREES
    assert judge(replace(derived, paper=[6, 6]), rows).agreement == Agreement.DIFFERS


def test_settings_may_be_listed() -> None:
    """Not every combination was run: 100 at 8 and 300 at 16 only."""
    rows = runs(even(falling))
    pairs = list(zip(rows[REQUESTS], rows[LIMIT], strict=True))
    rows = rows[[pair in [(100, 8), (300, 16)] for pair in pairs]]
    listed = [{REQUESTS: 100, LIMIT: 8}, {REQUESTS: 300, LIMIT: 16}]
    assert judge(check(settings=listed), rows).agreement == Agreement.AGREES
    assert judge(check(), rows).agreement == Agreement.NOT_RUN
