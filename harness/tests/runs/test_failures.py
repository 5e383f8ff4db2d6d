"""A cell that fails is a result: recorded, shown, named, tried again alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from harness import run
from harness.engines.simulator.loop import Simulator
from harness.runs import composed_cells
from harness.runs.failures import FOLDER, Failure, attempt
from harness.runs.record import read_summaries
from harness.tests.support.command import runs_below
from harness.tests.support.configured import composed, first_cell_of
from harness.tests.support.failing import Failing

SERVED = (
    "workload=chats",
    "workload.requests=4",
    "system=fixed",
    "workers=1",
    "tracking=none",
)
EARLY = ("policy=vllm_0_3", "policy.rule.max_num_seqs=8")
BUDGETS = "+matrix={policy.rule.max_num_batched_tokens:[4096,10,8192],seed:[0,1]}"
"""At a budget of 10 tokens no prompt is ever admitted."""


def go(results: Path, *words: str) -> int:
    with composed(*SERVED, f"results={results}", *words) as config:
        return run.run(config)


def failed_below(results: Path) -> list[str]:
    return sorted(path.parent.name for path in results.glob(f"*/{FOLDER}/*/error.json"))


def test_one_failing_cell_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(tmp_path, *EARLY, BUDGETS) == run.FAILED
    assert len(runs_below(tmp_path)) == 4
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines() if "fixed" in line]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("4,096", "2", "0"),
        ("10", "0", "2"),
        ("8,192", "2", "0"),
    ]
    assert set(rows[1][4:]) == {"-"}
    *_, last = said.err.splitlines()
    place = "policy.rule.max_num_batched_tokens=10"
    assert last.startswith("failed: 2 of 6 cells (")
    assert last.endswith(f"{place}, seed=0; {place}, seed=1")
    assert "can never be admitted" in said.err


def test_what_is_known_of_a_failure_is_kept(tmp_path: Path) -> None:
    go(tmp_path, *EARLY, "policy.rule.max_num_batched_tokens=10")
    (folder,) = tmp_path.glob(f"adhoc/{FOLDER}/*")
    said = json.loads((folder / "error.json").read_text())
    assert "can never be admitted" in said["error"]
    assert said["kind"] == "ValueError"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["policy"]["rule"]["max_num_batched_tokens"] == 10
    assert (folder / "log.txt").read_text().startswith("Traceback")
    assert read_summaries(tmp_path / "adhoc").empty


def test_failed_cells_alone_are_tried_again_and_a_success_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []
    serve = Simulator.run

    def short_of_memory(self: Simulator, workload, system, recorder) -> None:  # type: ignore[no-untyped-def]
        served.append(len(served))
        if len(served) == 2:
            raise MemoryError
        serve(self, workload, system, recorder)

    monkeypatch.setattr(Simulator, "run", short_of_memory)
    assert go(tmp_path, "+matrix.seed=[0,1,2]") == run.FAILED
    before = runs_below(tmp_path)
    assert (len(served), len(before), len(failed_below(tmp_path))) == (3, 2, 1)
    assert go(tmp_path, "+matrix.seed=[0,1,2]") == 0
    assert (len(served), len(runs_below(tmp_path)), failed_below(tmp_path)) == (4, 3, [])
    assert before.items() <= runs_below(tmp_path).items()
    assert not (tmp_path / "adhoc" / FOLDER).exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("row 7 is bad"), "row 7 is bad"),
        (MemoryError(), "MemoryError"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(3), "SystemExit: 3"),
        (RecursionError("too deep\nby far"), "RecursionError: too deep"),
    ],
)
def test_a_failure_is_one_sentence_with_its_log(error: BaseException, said: str) -> None:
    cell = replace(first_cell_of(*SERVED), workload_factory=Failing(error))
    gave = attempt(cell)
    assert isinstance(gave, Failure)
    assert gave.sentence == said
    assert "in build" in gave.log


def test_an_interrupt_is_no_failure() -> None:
    cell = replace(first_cell_of(*SERVED), workload_factory=Failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        attempt(cell)


PREDICTED = "+matrix={policy:[vllm,srtf],predictor:[oracle,none]}"
"""The last of its four cells has no predictor."""


def test_what_cannot_be_built_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="orders by predicted lengths"):
        go(tmp_path, PREDICTED)
    assert list(tmp_path.iterdir()) == []


def test_of_a_large_matrix_what_cannot_be_built_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells in which a value is new are built before: here the first three."""
    monkeypatch.setattr(composed_cells, "CHECKED", 0)
    assert go(tmp_path, PREDICTED) == run.FAILED
    assert (len(runs_below(tmp_path)), len(failed_below(tmp_path))) == (3, 1)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("policy=srtf, predictor=none")
