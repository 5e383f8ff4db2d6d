"""Temporary folders that go with their process, and files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

TEMPORARY = ".tmp-"
"""Begins the name of what is being written."""
_LONGEST = 30  # characters of the folder: sockets below it may have 107
_ours = ExitStack()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """One in the machine's temporary folder, until this ends."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= _LONGEST else "/tmp"
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=parent, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@cache
def own_folder() -> Path:
    """The one of this process, made when it is asked for first."""
    return _ours.enter_context(temporary_folder("llm-scheduler-scratch-"))


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


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
