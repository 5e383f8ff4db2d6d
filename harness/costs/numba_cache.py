"""Compiled code on the disk, found by the digest of all that it was compiled from.

numba's own cache looks at the file of a function alone, and code of other files is compiled into
it. Here a folder bears the digest of every source that may be: nothing in it can be stale, equal
checkouts share it, and it lies where it can be written, wherever the project is. A file that is
damaged, or that cannot be written, costs a compilation and no more.
"""

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from harness.config.inputs import PROGRAM, name_of, together

SOURCES = (
    "harness/config/engine_limits.py",
    "harness/config/paths.py",
    "harness/config/inputs.py",
    "harness/config/names.py",
    "harness/config/schema.py",
    "harness/config/yaml_files.py",
    "harness/interface/entities.py",
    "harness/interface/graph.py",
    "harness/interface/moving.py",
    "harness/interface/tables.py",
    "harness/costs/",
    "harness/engines/state.py",
    "harness/engines/token_gaps.py",
    "harness/engines/simulator/kernel/",
    "harness/tools/verify/",
)
"""Where functions that are compiled stand, and whatever their files import."""

DAY_S = 86_400.0
UNUSED_DAYS = 30
"""After which the code of an older program is removed."""

_SETTINGS = ("NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS")  # of numba's, those that change no code


def sources() -> dict[str, str]:
    """sha256 by name of all that compiled code may consist of, as this process loads it."""
    return {name: digest for name, digest in PROGRAM.items() if name.startswith(SOURCES)}


@cache
def folder() -> Path | None:
    """The first folder of `_bases` that can be written; None where none can."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("NUMBA_")}
    for name in _SETTINGS:
        settings.pop(name, None)
    compilers = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
    digest = together({**sources(), **settings, "compiled by": " ".join(map(str, compilers))})
    return next((base / digest for base in _bases() if _is_ours(base / digest)), None)


def _bases() -> Iterator[Path]:
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(given)
    try:
        users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home folder
        users = Path("/nonexistent")
    yield users / "llm-scheduler-bench"
    yield Path(tempfile.gettempdir()) / f"llm-scheduler-bench-{os.getuid()}"


def _is_ours(place: Path) -> bool:
    """Whether a folder is there, can be written, by no other user: its content is executed."""
    try:
        if not place.is_dir():
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_unused(place.parent)
        stat = place.stat()
        if time.time() - stat.st_mtime > DAY_S:
            os.utime(place)
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return stat.st_uid == os.getuid() and not stat.st_mode & 0o022


def _remove_unused(base: Path) -> None:
    """Remove the folders of programs that were not run for long."""
    for other in base.iterdir():
        is_one = len(other.name) == 12 and set(other.name) <= set("0123456789abcdef")
        if is_one and time.time() - other.stat().st_mtime > UNUSED_DAYS * DAY_S:
            shutil.rmtree(other, ignore_errors=True)


class NumbaCache(_Cache):  # type: ignore[misc]
    """The compiled forms of one function, a file each: the sha256 of what follows, and that."""

    def __init__(self, function: Callable[..., Any]) -> None:
        is_known = name_of(Path(function.__code__.co_filename)) in sources()
        # What a function from elsewhere is compiled from is not in the folder's name.
        self._folder = folder() if is_known else None
        self._name = f"{function.__module__}.{function.__qualname__}"

    @property
    def cache_path(self) -> str | None:
        """The folder."""
        return str(self._folder) if self._folder else None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The form for a signature; None where it is not there, or damaged."""
        if self._folder is None:
            return None
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        try:
            content = path.read_bytes()
            digest, code = content[:32], content[32:]
            if hashlib.sha256(code).digest() != digest:
                raise ValueError(f"{path} is damaged")
            return CompileResult._rebuild(target_context, *pickle.loads(code))
        except FileNotFoundError:
            return None
        except Exception:  # whatever is wrong with it, it can be compiled again
            path.unlink(missing_ok=True)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a form, whole or not at all."""
        if self._folder is None or data.lifted or data.library.has_dynamic_globals:
            return
        code = dumps(data._reduce())
        path = self._path(sig, data.codegen)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(hashlib.sha256(code).digest() + code)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> Path:
        """The file of a signature on this processor."""
        assert self._folder is not None
        key = hashlib.sha256(repr((sig, codegen.magic_tuple())).encode()).hexdigest()[:16]
        return self._folder / f"{self._name}-{key}"

    def enable(self) -> None:
        """It always is."""

    def disable(self) -> None:
        """It cannot be."""

    def flush(self) -> None:
        """Forget every form of the function."""
        for path in self._folder.glob(f"{self._name}-*") if self._folder else ():
            path.unlink(missing_ok=True)
