"""Runs from Python: the README's lines, and what a frame of cells holds."""

import re
from pathlib import Path

import pytest

from harness import api
from harness.config.paths import ROOT
from harness.runs import figures
from harness.runs.cells import Run


def test_the_lines_of_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    place = f'"workload.requests=100", "workers=1", "tracking=none", "results={tmp_path}"'
    assert lines.count('"workload.requests=100"') == 2
    names: dict[str, object] = {}
    exec(lines.replace('"workload.requests=100"', place), names)
    assert "gpu_idle_s" in capsys.readouterr().out
    frame, done = names["frame"], names["done"]
    assert isinstance(done, Run)
    assert frame["policy"].tolist() == ["vllm", "srtf"]  # type: ignore[index]
    assert (frame["failed"] == "").all()  # type: ignore[index]


def test_a_cell_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    words = ("workload.requests=4", "workers=1", "tracking=none", f"results={tmp_path}")
    axes = "+matrix={policy:[vllm,vllm_0_3],hardware.kv_bytes:[null,1048576]}"
    frame = api.sweep(overrides=[*words, axes]).set_index(["policy", "hardware.kv_bytes"])
    assert len(frame) == 4
    lost = frame[frame["failed"] != ""]
    assert lost["jct_s_mean"].isna().all()
    assert set(lost.index.get_level_values(1)) <= {1048576}


def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="No policy is called 'vlm'"):
        api.configuration("policy=vlm")
    axes = ["+matrix={policy:[vllm]}"]
    with pytest.raises(ValueError, match="no cell has policy=x; there are vllm"):
        api.sweep(overrides=axes, where={"policy": "x"})
    with pytest.raises(ValueError, match="No axis of these cells is called 'polcy'"):
        api.sweep(overrides=axes, where={"polcy": "vllm"})
    with pytest.raises(ValueError, match="policy=1 is no name of a file"):
        api.configuration("policy=1")


def test_a_part_of_a_scenario_is_no_list_of_its_cells(tmp_path: Path) -> None:
    """Claims are judged by a scenario's list: a part of it would stand for the whole."""
    words = ("tracking=none", "workers=1", f"results={tmp_path}")
    frame = api.sweep("running_requests", words, where={"engine": "simulator"})
    assert len(frame) == 1
    assert not [*tmp_path.glob("*/cells_*.json")]


def test_a_figure_of_a_notebook_asks_for_no_run_again_and_one_that_fails_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", dict(figures.FIGURES))
    words = ("workload.requests=4", "workers=1", "tracking=none", f"results={tmp_path}")
    assert len(api.sweep(overrides=words)) == 1
    figures.figure(unit="requests")(twice)
    assert api.sweep(overrides=words)["twice"].tolist() == [8.0]
    figures.figure(unit="s")(broken)
    with pytest.raises(ValueError, match="the figure broken fails: KeyError: 'nope'"):
        api.sweep(overrides=words)
    assert len([*tmp_path.glob("*/*/manifest.json")]) == 1


def twice(view: figures.View) -> float:
    return 2.0 * len(view.rows)


def broken(view: figures.View) -> float:
    return float(view.rows["nope"].mean())


def test_a_run_is_read_where_it_was_served(tmp_path: Path) -> None:
    config = api.configuration("workload.requests=4", f"results={tmp_path}", "tracking=none")
    first = api.run(config)
    (summary,) = tmp_path.glob("*/*/summary.json")
    before = summary.stat().st_mtime_ns
    assert api.run(config).requests.equals(first.requests)
    assert summary.stat().st_mtime_ns == before
    assert api.figures(first, ["requests"]) == {"requests": 4.0}
