"""Folders that are being written: whose process has died is removed, whose process lives is not."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from harness.scratch import held_folder, remove_left

TEMPORARY = ".tmp-"
TRIES = 100
"""How often other commands may come first in the same folder."""


@contextmanager
def being_written(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, held until it is renamed or left. OSError if refused."""
    with ExitStack() as held:
        temporary = _made_beside(folder, held)
        temporary.chmod(0o755)
        yield temporary


def _made_beside(folder: Path, held: ExitStack) -> Path:
    """The temporary folder. Another command may remove the folder above it while that is empty."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            return _held_beside(folder, held)
    return _held_beside(folder, held)


def _held_beside(folder: Path, held: ExitStack) -> Path:
    with suppress(FileExistsError):  # a file, which is refused in a moment
        folder.parent.mkdir(parents=True, exist_ok=True)
    return held.enter_context(held_folder(f"{TEMPORARY}{folder.name}-", folder.parent))


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(scenario_dir: Path) -> int:
    """Remove what killed processes left half-written; returns how many. For a scenario's start."""
    return remove_left(TEMPORARY, scenario_dir)
