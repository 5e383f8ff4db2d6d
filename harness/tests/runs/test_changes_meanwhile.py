"""A result is kept only where nothing that names it has changed since the command began."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.config import inputs
from harness.config.paths import PROFILES
from harness.engines.engine import Engine
from harness.runs.cells import Cell
from harness.runs.run_key import Changed, RunKey
from harness.tests.support.checkouts import copy_of_the_project, python
from harness.tests.support.configured import first_cell_of
from harness.tests.support.run_folders import run_cell
from harness.tests.support.traces import SMALL, asking, write_prompts
from harness.workloads.workload import Workload


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "prompts.jsonl")


def edited_while(cell: Cell, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a cell during which a line is added to a file."""
    run = type(cell.engine).run

    def edits(self: Engine, *arguments: Any) -> None:
        run(self, *arguments)
        with path.open("a") as text:
            text.write('{"prompt_tokens": 999}\n')

    monkeypatch.setattr(type(cell.engine), "run", edits)
    run_cell(cell)


def test_an_input_that_changes_meanwhile_fails_the_cell(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = asking(prompts, f"results={tmp_path / 'results'}")
    with pytest.raises(Changed, match=rf"^{prompts} changed after the command began, so it is"):
        edited_while(cell, prompts, monkeypatch)
    assert not cell.folder.exists()


def test_an_input_that_changed_before_the_cell_fails_it(prompts: Path, tmp_path: Path) -> None:
    cell = asking(prompts, f"results={tmp_path / 'results'}")
    was = prompts.read_text()
    prompts.write_text(was + '{"prompt_tokens": 999}\n')
    with pytest.raises(Changed, match="changed after the command began"):
        run_cell(cell)
    prompts.write_text(was)
    run_cell(cell)
    assert cell.folder.exists()


FALSE: dict[str, Callable[[RunKey], RunKey]] = {
    "the program was edited after": lambda named: replace(named, code="0" * 12),
    "named by another machine": lambda named: replace(named, machine={"cpu": "another"}),
    "named by numpy 0.0.1, this process has numpy 2": lambda named: replace(
        named, versions={"numpy": "0.0.1"}
    ),
}


@pytest.mark.parametrize("said", FALSE)
def test_a_process_that_has_something_else_refuses_the_cell(said: str, tmp_path: Path) -> None:
    """As a worker does that was started after an edit, or on another machine."""
    cell = first_cell_of(*SMALL, f"results={tmp_path / 'results'}")
    with pytest.raises(Changed, match=said):
        run_cell(replace(cell, named=FALSE[said](cell.named)))
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_a_program_that_changes_meanwhile_fails_the_cell_and_tells_which_file(
    tmp_path: Path,
) -> None:
    copy = copy_of_the_project(tmp_path / "copy")
    program = f"""
from pathlib import Path
from harness.tests.support.configured import first_cell_of
from harness.tests.support.run_folders import run_cell
from harness.runs.run_key import Changed
cell = first_cell_of(*{[*SMALL, f"results={tmp_path / 'results'}"]})
with Path("harness/runs/table.py").open("a") as unused:
    unused.write("#")
path = Path("harness/engines/ask.py")
was = path.read_text()
for text in (was + "#", was):
    path.write_text(text)
    try:
        run_cell(cell)
    except Changed as error:
        print(error)
    print(cell.folder.exists())
"""
    said = python(copy, program).splitlines()
    assert said[0].startswith("harness/engines/ask.py changed after the command began")
    assert said[1:] == ["False", "True"]


def test_a_profile_that_is_read_and_not_named_fails_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = first_cell_of(*SMALL, f"results={tmp_path / 'results'}")
    build = type(cell.workload_factory).build

    def reads(self: Any, seed: int) -> Workload:
        inputs.read(PROFILES / "capacity" / "ssjf_capacity.json")
        return build(self, seed)

    monkeypatch.setattr(inputs, "READ", {})
    monkeypatch.setattr(type(cell.workload_factory), "build", reads)
    with pytest.raises(
        ValueError, match=r"has read harness/profiles/capacity/ssjf_capacity\.json, which is not"
    ):
        run_cell(cell)
    assert not cell.folder.exists()


def test_a_parquet_trace_is_read_and_hashed_once(tmp_path: Path) -> None:
    path = tmp_path / "prompts.parquet"
    pd.DataFrame({"prompt_tokens": range(10, 30)}).to_parquet(path)
    cell = asking(path, f"results={tmp_path / 'results'}")
    run_cell(cell)
    assert inputs.READ[str(path)] == {cell.named.files[str(path)]}
