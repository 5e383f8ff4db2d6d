"""Folders that are being written: whose process has died is removed, whose process lives is not.

The kernel says which is which: a writer holds a lock on its folder, and the lock ends with it. A
number of a process would be another's in another container.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".tmp-"


@contextmanager
def being_written(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, held until it is renamed or left. OSError if refused."""
    with suppress(FileExistsError):  # a file, which is refused in a moment
        folder.parent.mkdir(parents=True, exist_ok=True)
    temporary, held = _held(folder)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(held)


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _held(folder: Path) -> tuple[Path, int]:
    """A new folder and its lock. One that somebody took for left before it was held is gone."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{folder.name}-", dir=folder.parent))
        made.chmod(0o755)
        held = os.open(made, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: there nothing is taken for left
            fcntl.flock(held, fcntl.LOCK_EX)
        if made.is_dir():
            return made, held
        os.close(held)


def remove_leftovers(scenario_dir: Path) -> int:
    """Remove what killed processes left half-written; returns how many. For a scenario's start."""
    return sum(_removed(folder) for folder in scenario_dir.glob(f"{TEMPORARY}*"))


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
