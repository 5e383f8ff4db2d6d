"""The last words of a session: what was skipped, and processes that tests have left."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness.config.paths import ROOT
from harness.tests import conftest
from harness.tests.support.processes import eventually, named


@pytest.mark.parametrize(("why", "ci"), [(conftest.ENGINE, ""), ("x", "true")])
def test_elsewhere_and_for_other_reasons_tests_may_be_skipped(
    why: str, ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    assert not conftest.missing(Counter({why: 1}))


def session(folder: Path, *tests: str) -> "subprocess.CompletedProcess[str]":
    """A session of two workers under the rules of this one, where all can be installed."""
    own = (ROOT / "harness/tests/conftest.py").read_text()
    soon = "from harness.tests.support import processes\nprocesses.GRACE_S = 3.0\n"
    (folder / "conftest.py").write_text(own + soon)
    (folder / "test_it.py").write_text("\n".join(["import pytest, subprocess", *tests]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CI": "true"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_what_was_skipped_and_what_is_left_are_the_last_lines_but_one(tmp_path: Path) -> None:
    why = conftest.ENGINE
    done = session(
        tmp_path,
        "def test_runs(): pass",
        f"def test_does_not(): pytest.skip({why!r})",
        "def test_leaves(): subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    )
    assert done.returncode == 1, done.stdout
    *_, skipped, ci, left, last = done.stdout.splitlines()
    assert last.startswith("2 passed, 1 skipped")
    assert skipped == f"skipped (tests or whole files): 1 because {why}"
    assert ci.startswith("failed: with CI=true")
    found = re.fullmatch(r"failed: a test has left process (\d+) sleep 1000 ", left)
    assert found is not None
    assert eventually(lambda: not named(int(found[1])))
