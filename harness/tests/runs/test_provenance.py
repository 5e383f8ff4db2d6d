"""What ran where: program and profiles, git, packages, machine."""

import hashlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from harness.runs import provenance, record


def test_the_digest_follows_program_and_profiles_only(tmp_path: Path) -> None:
    for name in ("harness/a.py", "harness/tests/test_a.py", "systems/x/b.py", "plots/p.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    profile = tmp_path / "harness" / "profiles" / "gpu.json"
    profile.parent.mkdir()
    profile.write_text("{}")
    first = provenance.digest_of(tmp_path)
    (tmp_path / "harness/tests/test_a.py").write_text("2")
    (tmp_path / "plots/p.py").write_text("2")
    assert provenance.digest_of(tmp_path) == first
    seen = {first}
    for changed in (tmp_path / "systems/x/b.py", tmp_path / "harness/a.py", profile):
        changed.write_text("2")
        seen.add(provenance.digest_of(tmp_path))
    (tmp_path / "harness/a.py").rename(tmp_path / "harness/c.py")
    seen.add(provenance.digest_of(tmp_path))
    assert len(seen) == 5


def test_provenance_says_what_ran_where() -> None:
    told = provenance.provenance(
        started_s=time.time() - 5, costs={"profile": "p"}, datasets={"d": "0" * 64}
    )
    assert told["code"] == provenance.source_digest()
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
    record.as_plain(told)


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
