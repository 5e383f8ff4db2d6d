"""What was skipped is said, and fails a run that should have had the real engine."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness.config.paths import ROOT
from harness.tests import conftest


@pytest.mark.parametrize(("why", "ci"), [(conftest.ENGINE, ""), ("x", "true")])
def test_elsewhere_and_for_other_reasons_tests_may_be_skipped(
    why: str, ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    assert not conftest.missing(Counter({why: 1}))


@pytest.mark.slow
def test_skipped_tests_are_the_last_line_but_one(tmp_path: Path) -> None:
    why = conftest.ENGINE
    (tmp_path / "conftest.py").write_text((ROOT / "harness/tests/conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n\ndef test_runs(): pass\n\ndef test_does_not(): pytest.skip('{why}')\n\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "."]
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"CI": "true"}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("1 passed, 1 skipped")
    assert f"skipped (tests or whole files): 1 because {why}" in lines[-3:-1]
    assert any(line.startswith("failed: with CI=true") for line in lines)
