import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.paths import ROOT
from harness.runs.leftovers import TEMPORARY, being_written, remove_leftovers

HOLDS = """
import sys
from pathlib import Path
from harness.runs.leftovers import being_written
with being_written(Path(sys.argv[1])) as temporary:
    print(temporary, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_and_a_living_ones_is_kept(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDS, str(tmp_path / "run")]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        held = Path(other.stdout.readline().strip())
        assert (remove_leftovers(tmp_path), held.is_dir()) == (0, True)
        other.kill()
        other.wait()
        assert (remove_leftovers(tmp_path), held.is_dir()) == (1, False)


def test_the_number_of_a_process_says_nothing(tmp_path: Path) -> None:
    """Ours is alive, and in another container it may be that of a writer that has died."""
    left = tmp_path / f"{TEMPORARY}run-{os.getpid()}"
    left.mkdir()
    (left / "config.yaml").touch()
    assert remove_leftovers(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_renamed_stays(tmp_path: Path) -> None:
    with being_written(tmp_path / "run") as temporary:
        temporary.rename(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_another_command_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that ends without a run, while the folder is empty."""
    parent, made = tmp_path / "scenario", tempfile.mkdtemp
    removed: list[Path] = []

    def late(prefix: str, dir: Path) -> str:
        if not removed:
            dir.rmdir()
            removed.append(dir)
        return made(prefix=prefix, dir=dir)

    monkeypatch.setattr("tempfile.mkdtemp", late)
    with being_written(parent / "run") as temporary:
        temporary.rename(parent / "run")
    assert (len(removed), [path.name for path in parent.iterdir()]) == (1, ["run"])
