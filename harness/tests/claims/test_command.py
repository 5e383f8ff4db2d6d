"""From run folders to the verdict file."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from harness.claims.command import main
from harness.runs import record
from harness.runs.cell_lists import write_cells
from harness.runs.matrix import Place
from harness.tests.support.claims import toy_check, words


def write_runs(folder: Path) -> None:
    """Five seeds of a system and of one that takes twice as long."""
    for name, seconds in (("new", 10.0), ("old", 20.0)):
        for seed in range(5):
            record.write_run(
                folder / f"{name}{seed}",
                config={"system": {"name": name}, "seed": seed},
                provenance={"code": "c", "started": "t", "costs": {"profile": "gpu"}},
                requests=pd.DataFrame({"id": [0]}),
                gpu=pd.DataFrame({"gpu": [0]}),
                iterations=None,
                summary={"end_to_end_s": seconds + seed},
            )
    places = {run: Place({}) for run in sorted(path.name for path in folder.iterdir())}
    write_cells(folder, "paper", places, varied=True)


def test_from_run_folders_to_the_verdict_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = words(check=toy_check(paper=2.0, settings={}))
    unchecked = words(id="p.y", check=None, input="fed in", note="of the workload")
    (tmp_path / "claims").mkdir()
    listed = yaml.safe_dump({"claims": [facts, unchecked]})
    (tmp_path / "claims" / "p.yaml").write_text(listed)
    arguments = ["p", "--results", str(tmp_path), "--strict", "--publish"]
    assert main(arguments) == 1
    write_runs(tmp_path / "toy")
    assert main(arguments) == 0
    first, second = json.loads((tmp_path / "claims" / "p_verdicts.json").read_text())
    assert first["id"] == "p.fig.x"
    assert first["verdict"] == "reproduced"
    assert first["ours"] == "1.84 [1.71, 1.99]"
    assert (first["seeds"], first["basis"]) == (5, "gpu (fit error not stated)")
    assert (second["verdict"], second["note"]) == ("input", "fed in; of the workload")
    printed = capsys.readouterr().out
    assert "p.fig.x" in printed
    assert "1.84 [1.71, 1.99]" in printed
    assert main(["q", "--results", str(tmp_path)]) == 2


ODD = (
    *('{"a":', "[{}]", "5", "null", "[1]", '{"id": "a", "verdict": "b"}'),
    '[{"id": "p.one", "verdict": 5}]',
    '[{"id": "p.one", "verdict": "x", "specifications": 5}]',
)


@pytest.mark.parametrize("text", ODD)
def test_a_broken_file_of_verdicts_is_said_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "p_verdicts.json").write_text(text)
    assert main(["p", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {tmp_path}/claims/p_verdicts.json holds no verdicts")
    assert said.count("\n") == 1
