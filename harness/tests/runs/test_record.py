"""Run folders: whole or absent, named by what determines them, read back as written."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.runs import record
from harness.runs.record import MANIFEST, RecordError, damage_of
from harness.runs.run_key import run_id
from harness.tests.support.run_folders import run_with

CONFIG: dict[str, object] = {"seed": 3, "system": {"name": "toy", "gpus": [0, 1]}}


def write(folder: Path, **changes: Any) -> None:
    """Write a small run, with `changes` to its parts."""
    parts: dict[str, Any] = {
        "config": CONFIG,
        "requests": pd.DataFrame({"id": [0, 1], "end_s": [1.0, np.nan]}),
        "figures": {"end_to_end_s": np.float64(2.5), "unfinished": np.int64(1)},
    }
    record.write_run(folder, run_with(**(parts | changes)))


def test_a_run_is_read_back_as_written(tmp_path: Path) -> None:
    write(tmp_path / "a", provenance={"costs": {"fit_error": 0.05}})
    write(tmp_path / "b", config={"seed": 4, "system": {"name": "toy", "gpus": [0]}})
    rows = record.read_summaries(tmp_path)
    assert list(rows.index) == ["a", "b"]
    assert rows.loc["a", "config.system.name"] == "toy"
    assert rows.loc["a", "config.system.gpus"] == "0+1"
    assert rows["config.seed"].tolist() == [3, 4]
    assert rows["end_to_end_s"].tolist() == [2.5, 2.5]
    assert rows["unfinished"].tolist() == [1, 1]
    assert rows.loc["a", "costs.fit_error"] == 0.05
    requests = pd.read_parquet(tmp_path / "a" / "requests.parquet")
    assert requests["id"].tolist() == [0, 1]
    assert requests["end_s"].isna().tolist() == [False, True]


def test_iterations_are_there_only_when_given(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", iterations=pd.DataFrame({"duration_s": [0.5]}))
    assert not (tmp_path / "a" / "iterations.parquet").exists()
    assert pd.read_parquet(tmp_path / "b" / "iterations.parquet")["duration_s"].tolist() == [0.5]


def test_what_is_not_finite_is_written_as_null(tmp_path: Path) -> None:
    write(tmp_path / "a", figures={"mean_s": np.nan, "worst_s": float("inf"), "at": [np.nan, 1]})
    text = (tmp_path / "a" / "summary.json").read_text()
    found = {name: value for name, value in json.loads(text).items() if name != record.PROGRAM}
    assert found == {"mean_s": None, "worst_s": None, "at": [None, 1]}


def test_what_has_no_plain_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot record a object"):
        write(tmp_path / "a", figures={"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "a", figures={"end_to_end_s": 9.0})
    assert record.read_summaries(tmp_path)["end_to_end_s"].tolist() == [2.5]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_nothing_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path.write_text

    def refuse(path: Path, *arguments: Any) -> int:
        if path.name == "facts.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return full(path, *arguments)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(RecordError, match=r"could not write the run .*/a: No space left on device"):
        write(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RecordError, match=r"could not write the run .*/file/a: File exists"):
        write(tmp_path / "file" / "a")


def test_a_run_is_named_by_what_determines_it() -> None:
    name = run_id({"a": 1, "b": {"c": (1, 2), "d": np.int64(3)}}, "code")
    assert name == run_id({"b": {"d": 3, "c": [1, 2]}, "a": 1}, "code")
    assert len(name) == 12
    assert set(name) <= set("0123456789abcdef")
    others = [
        run_id({"a": 2, "b": {"c": [1, 2], "d": 3}}, "code"),
        run_id({"a": 1, "b": {"c": [2, 1], "d": 3}}, "code"),
        run_id({"a": 1, "b": {"c": [1, 2], "d": 3}}, "other"),
    ]
    assert len({name, *others}) == 4


def test_another_process_finishing_first_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def overtaken(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        write(target, figures={"end_to_end_s": 9.0})
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    write(tmp_path / "a")
    assert record.read_summaries(tmp_path)["end_to_end_s"].tolist() == [9.0]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_without_a_manifest_is_no_run_and_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "a" / MANIFEST).unlink()
    assert record.read_summaries(tmp_path).empty
    with pytest.raises(
        RecordError, match=r"could not write the run .*/a: remove it, it has no manifest"
    ):
        write(tmp_path / "a")


@pytest.mark.parametrize("text", ["{", "[]", "null", ""])
@pytest.mark.parametrize("name", ["facts.json", "provenance.json", "config.yaml"])
def test_a_run_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / "a")
    (tmp_path / "a" / name).write_text(text)
    (tmp_path / "a" / record.SUMMARY).unlink()
    with pytest.raises(RecordError, match=r"the run .*/a cannot be read, remove it: ") as raised:
        record.read_summaries(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_manifest_is_compared_with_every_file(tmp_path: Path, text: str) -> None:
    write(tmp_path / "a")
    assert damage_of(tmp_path / "a") is None
    for path in (tmp_path / "a").iterdir():
        if path.name == record.SUMMARY:
            continue  # figures follow from the other files
        was = path.read_bytes()
        path.write_text(text)
        assert damage_of(tmp_path / "a")
        path.unlink()
        assert damage_of(tmp_path / "a") == f"has no {path.name}"
        path.write_bytes(was)
    (tmp_path / "a").rename(tmp_path / "b")
    assert damage_of(tmp_path / "b") == "is the run a under another name"
