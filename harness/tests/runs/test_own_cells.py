"""Which runs count: those of a scenario's own matrix, whatever else lies beside them."""

from pathlib import Path

import pytest

from harness.runs.own_cells import as_it_stands, keep_own, own_of
from harness.runs.record import reader
from harness.tests.support.command import command, runs_below


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


def test_the_latest_list_of_a_variant_is_what_counts(tmp_path: Path) -> None:
    keep_own(tmp_path, "paper", ["a", "b"])
    keep_own(tmp_path, "code", ["c"])
    assert own_of(tmp_path) == {"a", "b", "c"}
    keep_own(tmp_path, "paper", ["b"])
    assert own_of(tmp_path) == {"b", "c"}
    assert own_of(tmp_path / "none") == frozenset()


@pytest.mark.parametrize("text", ["", "5", "[5]", '{"a": 1}', "[" * 100_000])
def test_an_edited_list_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "own_paper.json").write_text(text)
    with pytest.raises(ValueError, match=r"own_paper.json is no list of runs; remove it"):
        own_of(tmp_path)


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
    results, here = tmp_path / "results", tmp_path / "here"
    here.mkdir()
    words = (f"hydra.searchpath=[file://{tmp_path}/conf]", "+scenario=toy", f"results={results}")
    for more, seen in (("seed=7", []), ("workers=1", [0, 1]), ("workload.requests=3", [0, 1])):
        assert command(*words, more, folder=here).returncode == 0
        rows = reader(results)("toy", "paper")
        assert (sorted(rows["config.seed"]) if seen else [*rows.index]) == seen
    assert len(runs_below(results)) == 5
