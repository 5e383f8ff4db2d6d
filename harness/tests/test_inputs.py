"""Of every file a process has one version, and knows when the disk has another."""

import os
from pathlib import Path

import pytest

from harness.config import inputs
from harness.config.paths import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trace.json"
    file.write_text('{"a": 1}')
    return file


def test_what_was_written_or_removed_has_changed(path: Path) -> None:
    known = inputs.digests([path])
    stamp = path.stat().st_mtime_ns
    path.write_text('{"a": 2}')
    # the same size and time: as an editor that keeps times leaves it
    os.utime(path, ns=(stamp, stamp))
    assert inputs.changed(known) == [str(path)]
    path.unlink()
    assert inputs.changed(known) == [str(path)]


def test_what_was_read_in_another_version_has_changed_whatever_the_disk_holds(path: Path) -> None:
    known = inputs.digests([path])
    path.write_text('{"a": 2}')
    assert inputs.read_json(path) == {"a": 2}
    path.write_text('{"a": 1}')
    assert inputs.changed(known) == [str(path)]


def test_the_program_is_what_is_on_the_disk(tmp_path: Path) -> None:
    assert inputs.digests_of(ROOT) == dict(inputs.PROGRAM)
    assert inputs.changed(inputs.PROGRAM) == []
    assert {name.partition("/")[0] for name in inputs.PROGRAM} == set(inputs.TOPS)
    for place in ("harness/runs/a.py", "harness/tests/b.py", "plots/c.py", "harness/d.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("1")
    assert [*inputs.digests_of(tmp_path)] == ["harness/runs/a.py"]
