"""Temporary folders that end with their process."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.config import scratch
from harness.config.paths import ROOT

PREFIX = "scratch-test-"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The machine's temporary folder, for this test."""
    with tempfile.TemporaryDirectory(prefix="tmp-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def in_process(program: str, place: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"TMPDIR": str(place), "PATH": ""},
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def test_a_folder_goes_when_it_is_left(place: Path) -> None:
    with scratch.temporary_folder(PREFIX) as folder:
        assert folder.parent == place
        assert list(place.glob(f"{PREFIX}*")) == [folder]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("end", ["", "scratch.remove(); import os; os._exit(0)"])
def test_what_libraries_leave_goes_with_the_process(place: Path, end: str) -> None:
    program = (
        "import tempfile; from harness.config import scratch\n"
        "with scratch.temporary_files(): print(tempfile.mkstemp()[1])\n"
        "with scratch.temporary_files(): print(tempfile.mkstemp()[1])\n"
        f"print(tempfile.gettempdir(), flush=True)\n{end}"
    )
    with in_process(program, place) as done:
        first, second, after = done.communicate("")[0].splitlines()
    assert Path(first).parent == Path(second).parent
    assert Path(first).parent.parent == Path(after) == place
    assert list(place.iterdir()) == []
