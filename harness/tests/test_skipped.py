"""What was skipped is said, and fails a run that should have had the real engine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.paths import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("why", "ci", "status"),
    [("vLLM is not installed", "true", 1), ("vLLM is not installed", "", 0), ("x", "true", 0)],
)
def test_skipped_tests_are_the_last_line_but_one(
    tmp_path: Path, why: str, ci: str, status: int
) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "harness/tests/conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n\ndef test_runs(): pass\n\ndef test_does_not(): pytest.skip('{why}')\n\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "."]
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"CI": ci}, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("1 passed, 1 skipped")
    assert f"skipped (tests or whole files): 1 because {why}" in lines[-3:-1]
    assert any(line.startswith("failed: with CI=true") for line in lines) == bool(status)
