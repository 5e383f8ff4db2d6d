"""Compiled code on the disk: never stale, rebuilt where damaged, kept where it can be written."""

import os
import tempfile
from pathlib import Path

import pytest

from harness.config.inputs import PROGRAM
from harness.config.paths import ROOT
from harness.costs import numba_cache
from harness.tests.support.checkouts import python
from harness.tests.support.sources import is_test, module_of, own_imports, python_files, relative

INNER = """
from harness.costs.compiled import compiled

@compiled
def inner(x):
    return x + 1.0
"""
OUTER = """
from harness.costs.compiled import compiled
from harness.costs.inner import inner

@compiled
def outer(x):
    return 10.0 * inner(x)
"""
ASK = "from harness.costs.outer import outer; print(outer(1.0))"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a project as compiles two functions, one of which calls the other."""
    root = tmp_path / "checkout"
    folder = root / "harness" / "costs"
    folder.mkdir(parents=True)
    (root / "harness" / "config").mkdir()
    names = (
        "__init__",
        "config/__init__",
        "config/paths",
        "config/inputs",
        "costs/__init__",
        "costs/compiled",
        "costs/numba_cache",
    )
    for name in names:
        (root / "harness" / f"{name}.py").write_bytes((ROOT / f"harness/{name}.py").read_bytes())
    (folder / "inner.py").write_text(INNER)
    (folder / "outer.py").write_text(OUTER)
    return root


def files_below(folder: Path) -> dict[Path, int]:
    """Kept code and when it was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_code_of_another_file_is_never_stale(checkout: Path, tmp_path: Path) -> None:
    """Edited, with its old time and size: the caller's file is the same."""
    cache = tmp_path / "cache"
    inner = checkout / "harness" / "costs" / "inner.py"
    was = inner.stat()
    assert python(checkout, ASK, NUMBA_CACHE_DIR=str(cache)) == "20.0"
    first = files_below(cache)
    assert first
    inner.write_text(INNER.replace("1.0", "2.0"))
    # Python's own cache looks at seconds and size, as numba's does.
    os.utime(inner, ns=(was.st_atime_ns, was.st_mtime_ns + 10**9))
    assert python(checkout, ASK, NUMBA_CACHE_DIR=str(cache)) == "30.0"
    assert files_below(cache).items() >= first.items()
    assert not list(checkout.rglob("*.nb[ic]"))


@pytest.mark.slow
def test_where_nothing_can_be_written_it_runs_all_the_same(checkout: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    none = {name: str(nowhere / "x") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")}
    program = f"import tempfile; tempfile.tempdir = {str(nowhere)!r}; {ASK}"
    program += "; from harness.costs.numba_cache import folder; print(folder())"
    assert python(checkout, program, **none).split() == ["20.0", "None"]


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The places where code may be kept, all missing."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def found() -> Path:
    """Where code is kept, looked for anew."""
    folder = numba_cache.folder.__wrapped__()
    assert folder is not None
    return folder


def test_the_first_place_that_can_be_written_is_taken(bases: Path) -> None:
    assert found().parent == bases / "given"
    (bases / "given" / found().name).rmdir()
    (bases / "given").rmdir()
    (bases / "given").touch()
    assert found().parent == bases / "users" / "llm-scheduler-bench"
    (bases / "users" / "llm-scheduler-bench" / found().name).rmdir()
    (bases / "users" / "llm-scheduler-bench").rmdir()
    (bases / "users" / "llm-scheduler-bench").touch()
    assert found().parent == bases / f"llm-scheduler-bench-{os.getuid()}"


def test_a_folder_that_others_can_write_is_not_trusted(bases: Path) -> None:
    found().chmod(0o777)
    assert found().parent == bases / "users" / "llm-scheduler-bench"


def test_the_folders_name_covers_all_that_compiled_code_may_consist_of() -> None:
    """Files that compile something, and all that they import."""
    files = {module_of(path): path for path in python_files() if not is_test(path)}
    to_do = [name for name, path in files.items() if "harness.costs.compiled" in own_imports(path)]
    assert len(to_do) > 5
    seen: set[str] = set()
    while to_do:
        name = to_do.pop()
        if name in files and name not in seen:
            seen.add(name)
            to_do += own_imports(files[name])
    assert {relative(files[name]) for name in seen} - set(numba_cache.sources()) == set()
    assert set(numba_cache.sources()) < set(PROGRAM)
