"""Lists of cells: what a scenario's file has, whatever else lies beside it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness import run
from harness.runs.cell_lists import ScenarioCells, as_it_stands, read_cells, write_cells
from harness.runs.matrix import Place
from harness.runs.record import write_run
from harness.tests.support.command import runs_below
from harness.tests.support.configured import composed
from harness.tests.support.run_folders import run_with


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"scenario", "variant", "workers", "results", "cluster.address", "tracking"}, True),
        ({"scenario"}, True),
        ({"scenario", "seed"}, False),
        ({"scenario", "matrix.seed"}, False),
        ({"scenario", "vary"}, False),
        ({"scenario", "workload.requests"}, False),
    ],
)
def test_what_runs_a_scenario_as_it_stands(given: set[str], own: bool) -> None:
    assert as_it_stands(given) is own


def listed(
    folder: Path,
    *settings: Mapping[str, object],
    more: Mapping[str, Place] | None = None,
    varied: bool = True,
    summary: Mapping[str, object] | None = None,
) -> ScenarioCells:
    """Runs a, b and so on at these settings, and `more` of a variation, as they are read."""
    places = {**{run: Place(it) for run, it in zip("abcd", settings, strict=False)}, **(more or {})}
    for name in places:
        write_run(folder / name, run_with(summary or {"extra_s": 1.0}, config={"name": name}))
    write_cells(folder, "paper", places, varied=varied)
    return read_cells(folder, "paper")


def slots(run: str, value: object, **axes: object) -> dict[str, Place]:
    """A run with another value of a key."""
    return {run: Place({**axes, "policy.slots": value}, "policy.slots")}


def test_each_axis_is_a_column_under_the_last_part_of_its_key(tmp_path: Path) -> None:
    axes = ("system", "workload.parts.summary.documents", "workload/arrivals", "models")
    one, other = (
        dict(zip(axes, values, strict=True))
        for values in (("s", 4, "poisson", ["m", "n"]), ("t", 4, "even", []))
    )
    more = slots("v", 8, **one) | slots("w", True, **other)
    cells = listed(tmp_path, one, other, more=more)
    names = ["system", "documents", "arrivals", "models", "extra_s", "engine"]
    assert cells.reference[names].to_numpy().tolist() == [
        ["s", 4, "poisson", "m+n", 1.0, "simulated"],
        ["t", 4, "even", "", 1.0, "simulated"],
    ]
    assert [*cells.variations] == ["policy.slots=8", "policy.slots=true"]
    varied = cells.variations["policy.slots=8"]
    assert (varied.index.tolist(), varied["documents"].tolist()) == (["v"], [4])


def test_without_variations_those_of_the_same_reference_are_kept(tmp_path: Path) -> None:
    listed(tmp_path, {"seed": 0}, {"seed": 1}, more=slots("v", 8, seed=0))
    assert [*listed(tmp_path, {"seed": 0}, {"seed": 1}, varied=False).variations] == [
        "policy.slots=8"
    ]
    assert listed(tmp_path, {"seed": 0}, varied=False).variations == {}


def test_runs_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    assert read_cells(tmp_path / "none", "paper").reference.empty
    write_cells(tmp_path, "paper", {"a": Place({"seed": 0}), **slots("v", 8, seed=0)}, varied=True)
    cells = read_cells(tmp_path, "paper")
    assert cells.reference.empty
    assert [part.empty for part in cells.variations.values()] == [True]
    assert read_cells(tmp_path, "code").variations == {}


def test_the_engine_of_a_run_stays_where_it_is_an_axis(tmp_path: Path) -> None:
    assert listed(tmp_path, {"engine": "simulator"}).reference["engine"].tolist() == ["simulated"]


def test_a_name_for_two_axes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="would both be the column model"):
        listed(tmp_path, {"workload.model": 1, "predictor.model": 1})


def test_an_axis_takes_the_place_of_a_figure_with_its_name(tmp_path: Path) -> None:
    assert listed(tmp_path, {"policy.extra_s": 7}).reference["extra_s"].tolist() == [7]


def test_an_edited_list_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cells_paper.json").write_text("{")
    with pytest.raises(ValueError, match=r"cells_paper.json is no list of cells, remove it"):
        read_cells(tmp_path, "paper")


SCENARIO = """# @package _global_
defaults:
  - override /workload: mixinstruct
name: toy
workload: {requests: 4, models: [chatglm3-6b]}
matrix: {seed: [0, 1]}
"""


def test_what_was_tried_by_hand_is_none_of_them(tmp_path: Path) -> None:
    scenarios = tmp_path / "conf" / "scenario"
    scenarios.mkdir(parents=True)
    (scenarios / "toy.yaml").write_text(SCENARIO)
    results = tmp_path / "results"
    words = [f"hydra.searchpath=[file://{tmp_path}/conf]", "+scenario=toy", "workers=1"]
    words += [f"results={results}"]
    for more, seen in (("seed=7", []), ("tracking=none", [0, 1]), ("workload.requests=3", [0, 1])):
        with composed(*words, "tracking=none", more) as config:
            assert run.run(config) == 0
        rows = read_cells(results / "toy", "paper").reference
        assert (sorted(rows["seed"]) if seen else [*rows.index]) == seen
    assert len(runs_below(results)) == 5


def test_listed_runs_that_are_not_there_are_counted(tmp_path: Path) -> None:
    assert listed(tmp_path, {"gpus": 1}, {"gpus": 8}).missing == 0
    shutil.rmtree(tmp_path / "b")
    assert read_cells(tmp_path, "paper").missing == 1
