"""What ran where: program and profiles, git, packages, machine."""

import hashlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from harness.runs import provenance
from harness.runs.run_key import as_plain


def test_provenance_says_what_ran_where() -> None:
    told = provenance.provenance(
        code="0" * 12, started_s=time.time() - 5, costs={"profile": "p"}, datasets={"d": "0" * 64}
    )
    assert told["code"] == "0" * 12
    assert 5 <= float(str(told["wall_s"])) < 60
    assert told["datasets"] == {"d": "0" * 64}
    assert told["costs"] == {"profile": "p"}
    packages = told["packages"]
    assert isinstance(packages, dict)
    assert packages["numpy"] == np.__version__
    installed = told["installed"]
    assert isinstance(installed, dict)
    pins = installed["packages"].split()
    assert f"numpy=={np.__version__}" in pins
    assert pins == sorted(set(pins))
    assert installed["sha256"] == hashlib.sha256(installed["packages"].encode()).hexdigest()
    machine = told["machine"]
    assert isinstance(machine, dict)
    assert machine["cores"] == os.cpu_count()
    as_plain(told)


def test_no_git_and_no_repository_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"commit": None, "changes": None}
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.git_state.__wrapped__() == nothing
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git_state.__wrapped__() == nothing


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_changes_since_the_commit_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    (tmp_path / "f").write_text("1")
    assert provenance._said("git", "init", "-q") is not None
    assert provenance._said("git", "add", "f") is not None
    assert provenance._said("git", *identity, "commit", "-qm", "one") is not None
    clean = provenance.git_state.__wrapped__()
    assert len(str(clean["commit"])) == 40
    assert clean["changes"] is None
    (tmp_path / "f").write_text("2")
    dirty = provenance.git_state.__wrapped__()
    assert dirty["commit"] == clean["commit"]
    assert len(str(dirty["changes"])) == 12
