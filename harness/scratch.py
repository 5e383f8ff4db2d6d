"""Temporary folders that go with their process, also when it is killed: the next one looks.

The kernel knows which processes live: each holds a lock on its folder, and the lock ends with it.
A number of a process would be another's in another container. Libraries that leave files in the
machine's temporary folder leave them in one of these instead.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

_PREFIX = "llm-scheduler-scratch-"
_LONGEST = 30  # characters of the folder: sockets below it may have 107
_ours = ExitStack()


@contextmanager
def held_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """A folder in another, until this ends. Raises OSError where none can be made."""
    folder, held = _held(prefix, parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _held(prefix: str, parent: Path) -> tuple[Path, int]:
    """A new folder and its lock. One that somebody took for left before it was held is gone."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        held = os.open(made, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: there nothing is taken for left
            fcntl.flock(held, fcntl.LOCK_EX)
        if made.is_dir():
            return made, held
        os.close(held)


def remove_left(prefix: str, parent: Path) -> int:
    """Remove the folders of that prefix whose processes have died; returns how many."""
    return sum(_removed(folder) for folder in parent.glob(f"{prefix}*"))


def _removed(folder: Path) -> bool:
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(held)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """One in the machine's temporary folder, when those of processes that have died are removed."""
    usual = Path(tempfile.gettempdir())
    parent = usual if len(str(usual)) <= _LONGEST else Path("/tmp")
    remove_left(prefix, parent)
    with held_folder(prefix, parent) as folder:
        yield folder


@cache
def own_folder() -> Path:
    """The one of this process, made when it is asked for first."""
    atexit.register(remove)
    return _ours.enter_context(temporary_folder(_PREFIX))


@contextmanager
def temporary_files() -> Iterator[None]:
    """What is asked for a temporary place meanwhile is given this process's folder."""
    was, tempfile.tempdir = tempfile.tempdir, str(own_folder())
    try:
        yield
    finally:
        tempfile.tempdir = was


def remove() -> None:
    """Remove this process's folder now, where the process ends without Python's own exit."""
    _ours.close()
    own_folder.cache_clear()
