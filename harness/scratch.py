"""Temporary folders that go with their process, also when it is killed: the next one looks.

The kernel knows who lives: each folder holds a lock, whatever the number or container of its
process. Libraries that leave files in the machine's temporary folder leave them here instead.
"""

import atexit
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_LOCK = "lock"
_PREFIX = "llm-scheduler-scratch-"
_LONGEST = 30  # characters of the folder: sockets below it may have 107
_ours = ExitStack()
_folders: list[Path] = []


@contextmanager
def held_folder(prefix: str) -> Iterator[Path]:
    """A folder of that prefix until this ends; those of processes that have died are removed."""
    usual = Path(tempfile.gettempdir())
    parent = usual if len(str(usual)) <= _LONGEST else Path("/tmp")
    for left in parent.glob(f"{prefix}*"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    with open(folder / _LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    try:
        with open(folder / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return  # it is in use, or another user's, or just being made


def own_folder() -> Path:
    """The one of this process, made when it is asked for first."""
    if not _folders:
        _folders.append(_ours.enter_context(held_folder(_PREFIX)))
        atexit.register(remove)
    return _folders[0]


@contextmanager
def temporary_files() -> Iterator[None]:
    """What is asked for a temporary place meanwhile is given this process's folder."""
    was, tempfile.tempdir = tempfile.tempdir, str(own_folder())
    try:
        yield
    finally:
        tempfile.tempdir = was


def remove() -> None:
    """End this process's folder now: for who ends without Python's own end."""
    _ours.close()
    _folders.clear()
