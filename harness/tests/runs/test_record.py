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
from harness.runs.manifest import MANIFEST, NEEDED, write_manifest
from harness.runs.record import RecordError
from harness.runs.run_key import run_id

CONFIG: dict[str, object] = {"seed": 3, "system": {"name": "toy", "gpus": [0, 1]}}


def write(folder: Path, **changes: Any) -> record.Row:
    """Write a small run, with `changes` to its parts."""
    parts: dict[str, Any] = {
        "config": CONFIG,
        "provenance": {"code": "c1", "started": "2026-01-01T00:00:00+00:00", "costs": {}},
        "requests": pd.DataFrame({"id": [0, 1], "end_s": [1.0, np.nan]}),
        "gpu": pd.DataFrame({"gpu": [0], "busy_s": [1.0]}),
        "iterations": None,
        "summary": {"end_to_end_s": np.float64(2.5), "unfinished": np.int64(1)},
    }
    return record.write_run(folder, **(parts | changes))


def test_the_row_of_a_run_is_that_which_is_read(tmp_path: Path) -> None:
    """What was written need not be read to be known, and is not."""
    config = {
        "seed": 3,
        "share": 1e-5,
        "gpus": [0, 1],
        "none": None,
        "text": "1e-5",
        "in": {"a": 1},
    }
    parts = {"summary": {"a_s": np.float64(0.1), "by": {"x": [1, 2]}, "worst_s": np.nan}}
    rows = {name: write(tmp_path / name, config=config, **parts) for name in "ab"}
    read = record.read_summaries(tmp_path)
    pd.testing.assert_frame_equal(pd.DataFrame.from_dict(rows, orient="index"), read)
    (tmp_path / "a" / "config.yaml").write_text("seed: 4")
    assert record.read_summaries(tmp_path, rows).equals(read)
    assert list(record.read_summaries(tmp_path, {"b": rows["b"]}).index) == ["b"]


def test_a_run_is_read_back_as_written(tmp_path: Path) -> None:
    write(tmp_path / "a", provenance={"code": "c1", "started": "t", "costs": {"fit_error": 0.05}})
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
    write(tmp_path / "a", summary={"mean_s": np.nan, "worst_s": float("inf"), "at": [np.nan, 1]})
    text = (tmp_path / "a" / "summary.json").read_text()
    assert json.loads(text) == {"mean_s": None, "worst_s": None, "at": [None, 1]}


def test_what_has_no_plain_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot record a object"):
        write(tmp_path / "a", summary={"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "a", summary={"end_to_end_s": 9.0})
    assert record.read_summaries(tmp_path)["end_to_end_s"].tolist() == [2.5]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_half_run_is_redone(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "a" / "summary.json").unlink()
    assert not record.is_finished(tmp_path / "a")
    assert record.read_summaries(tmp_path).empty
    write(tmp_path / "a", summary={"end_to_end_s": 9.0})
    assert record.read_summaries(tmp_path)["end_to_end_s"].tolist() == [9.0]


def test_a_full_disk_leaves_nothing_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path.write_text

    def refuse(path: Path, *arguments: Any) -> int:
        if path.name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return full(path, *arguments)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(RecordError, match=r"could not write the run .*/a: No space left on device"):
        write(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RecordError, match=r"could not write the run .*/file/a: Not a directory"):
        write(tmp_path / "file" / "a")


def test_another_process_finishing_first_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def overtaken(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        write(target, summary={"end_to_end_s": 9.0})
        # The inner run used this process's temporary name; a real rival would not.
        path.mkdir()
        (path / "f").touch()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    assert write(tmp_path / "a")["end_to_end_s"] == 9.0
    assert record.read_summaries(tmp_path)["end_to_end_s"].tolist() == [9.0]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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


@pytest.mark.parametrize("text", ["{", "[]", "null", "{}", '{"end_to_end_s": 1.0}'])
@pytest.mark.parametrize("name", ["summary.json", "provenance.json", "config.yaml", MANIFEST])
def test_a_damaged_run_is_set_aside_with_a_sentence_and_blocks_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    for run in "ab":
        write(tmp_path / run)
    (tmp_path / "a" / name).write_text(text)
    assert not record.is_finished(tmp_path / "a")
    assert list(record.read_summaries(tmp_path).index) == ["b"]
    said = capsys.readouterr().err
    assert said.startswith(f"the run {tmp_path}/a has ")
    assert said.endswith(": set aside as .damaged-a-1, to be run again\n")
    assert (tmp_path / ".damaged-a-1" / name).read_text() == text
    write(tmp_path / "a")
    assert list(record.read_summaries(tmp_path).index) == ["a", "b"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", [name for name in NEEDED if name != MANIFEST])
def test_an_emptied_and_a_removed_file_are_noticed(tmp_path: Path, name: str) -> None:
    for run, hurt in (("a", Path.unlink), ("b", lambda path: path.write_bytes(b""))):
        write(tmp_path / run)
        hurt(tmp_path / run / name)
    assert record.read_summaries(tmp_path).empty
    assert {path.name for path in tmp_path.iterdir()} == {".damaged-a-1", ".damaged-b-1"}


def test_what_was_rewritten_with_its_manifest_is_no_run_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest from another source gives no traceback."""
    write(tmp_path / "a")
    (tmp_path / "a" / "summary.json").write_text("[]")
    (tmp_path / "a" / MANIFEST).unlink()
    write_manifest(tmp_path / "a", "a")
    assert record.read_summaries(tmp_path).empty
    assert "holds an empty configuration, provenance or summary" in capsys.readouterr().err


def test_a_run_under_the_name_of_another_is_none(tmp_path: Path) -> None:
    """Exchanged folders, and a link by which one run would count twice."""
    for run in "ab":
        write(tmp_path / run)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "d").symlink_to("b")
    assert list(record.read_summaries(tmp_path).index) == ["b"]


@pytest.mark.parametrize("text", ["[" * 200_000, '{"sha256": {"../b/summary.json": "0"}}'])
def test_a_manifest_that_is_none_blocks_nobody(tmp_path: Path, text: str) -> None:
    for run in "ab":
        write(tmp_path / run)
    (tmp_path / "a" / MANIFEST).write_text(text)
    assert list(record.read_summaries(tmp_path).index) == ["b"]


def test_neither_a_pipe_nor_a_link_to_nothing_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "a" / "summary.json").unlink()
    os.mkfifo(tmp_path / "a" / "summary.json")
    (tmp_path / "b").symlink_to("nowhere")
    write(tmp_path / "b")
    assert list(record.read_summaries(tmp_path).index) == ["b"]


def test_a_damaged_run_is_set_aside_when_it_is_run_again(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path / "a")
        (tmp_path / "a" / "requests.parquet").write_bytes(b"")
    write(tmp_path / "a", summary={"end_to_end_s": 9.0})
    assert record.read_summaries(tmp_path)["end_to_end_s"].tolist() == [9.0]
    assert {path.name for path in tmp_path.iterdir()} == {"a", ".damaged-a-1", ".damaged-a-2"}


def test_a_folder_that_cannot_be_renamed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, target: Path) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    write(tmp_path / "a")
    (tmp_path / "a" / "summary.json").write_text("{}")
    monkeypatch.setattr(Path, "rename", refuse)
    assert record.read_summaries(tmp_path).empty
    assert capsys.readouterr().err.endswith("is left out (Read-only file system)\n")


def test_all_of_a_run_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file, then the manifest, then their folder; after the renaming the folder above."""
    done: list[str] = []
    sync, rename = os.fsync, Path.rename

    def synced(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        sync(handle)

    def renamed(path: Path, target: Path) -> Path:
        done.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    write(tmp_path / "a", beside=lambda folder: (folder / "trace.json").write_text("{}"))
    files = sorted({*NEEDED, "trace.json"} - {MANIFEST})
    temporary = done.pop(len(files) + 1)
    assert done == [*files, MANIFEST, "renamed", tmp_path.name]
    assert temporary.startswith(".tmp-a-")
    (tmp_path / "a" / "trace.json").unlink()
    assert not record.is_finished(tmp_path / "a")


def test_a_folder_that_was_never_a_run_stays_where_it_is(tmp_path: Path) -> None:
    """A web extension has a manifest.json, too."""
    foreign = tmp_path / "extension"
    foreign.mkdir()
    (foreign / MANIFEST).write_text('{"manifest_version": 3}')
    assert record.read_summaries(tmp_path).empty
    assert [path.name for path in tmp_path.iterdir()] == ["extension"]
