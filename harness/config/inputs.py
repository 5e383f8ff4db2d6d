"""Files that a result follows from: of each, what this process has of it.

The program is hashed before any of it is loaded (`harness/__init__.py` imports this module first),
other files when they are read, fitted profiles among them. A result may be kept only where all that
was loaded and read is one version and the disk still holds it; `changed` says where that is not so.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.config.paths import ROOT

TOPS = ("harness", "baselines", "systems")
"""Folders of the project that hold its program."""


def name_of(path: Path) -> str:
    """From the project's folder where the file is below it, so that no checkout's place matters."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def digests_of(root: Path) -> dict[str, str]:
    """sha256 of every source file of the program below `root`, without its tests."""
    paths = (path for top in TOPS for path in (root / top).rglob("*.py"))
    named = {path.relative_to(root): path for path in sorted(paths)}
    return {
        name.as_posix(): _sha256(path.read_bytes())
        for name, path in named.items()
        if "tests" not in name.parts
    }


def together(digests: Mapping[str, str]) -> str:
    """12 hex digits over files by name and sha256."""
    text = json.dumps(digests, sort_keys=True)
    return _sha256(text.encode())[:12]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PROGRAM: Mapping[str, str] = digests_of(ROOT)
"""The program as this process loads it: sha256 by name, taken before any of it was loaded."""

READ: dict[str, set[str]] = {}
"""Every version of a file that this process has read, by name, in the order of the first reads."""


PARTED: set[str] = set()
"""Files that hold entries of many models or GPUs, of which a cell names those that it goes by."""


def parted(path: Path, rows: Mapping[str, object] = MappingProxyType({})) -> None:
    """A file that was read is parted: a cell need not name it whole, but its rows or none.

    `rows` are entries of a JSON file by name; of each is remembered what was read.
    """
    name = name_of(path)
    PARTED.add(name)
    for row, content in rows.items():
        READ.setdefault(f"{name}{ROW}{row}", set()).add(_of_json(content))


def rows(path: Path, names: Iterable[str]) -> dict[str, str]:
    """sha256 of entries of a JSON file, as they are now, by `FILE#ENTRY`. OSError and KeyError."""
    content = _content(str(path), _version(path))
    return {f"{name_of(path)}{ROW}{name}": _of_json(content[name]) for name in names}


ROW = "#"
"""Between the name of a file and that of an entry in it."""


def _of_json(content: object) -> str:
    return _sha256(json.dumps(content, sort_keys=True).encode())


@cache
def _content(path: str, _: tuple[int, int, int, int]) -> Any:
    return json.loads(Path(path).read_bytes())


def read(path: Path) -> bytes:
    """The bytes of a file, remembered as read. Raises OSError."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "it is a pipe, which may never end", str(path))
    content = path.read_bytes()
    READ.setdefault(name_of(path), set()).add(_sha256(content))
    return content


def read_json(path: Path) -> Any:
    """What a JSON file holds, remembered as read. Raises OSError and ValueError."""
    return json.loads(read(path))


def sha256(path: Path | str) -> str:
    """Of the file as it is now; hashed again only where it has been written since. OSError."""
    return _hashed(str(path), _version(path))


def _version(path: Path | str) -> tuple[int, int, int, int]:
    """Changes whenever a file is written. Raises OSError."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


@cache
def _hashed(path: str, _: tuple[int, int, int, int]) -> str:
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@cache
def sha256_imported(path: Path) -> str:
    """Of a module's file when this process asked first: what is loaded does not change later."""
    return sha256(path)


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """sha256 of files by name. Raises OSError."""
    return {name_of(path): sha256(path) for path in paths}


def changed(files: Mapping[str, str]) -> list[str]:
    """Names of files (sha256 by name) of which this process or the disk has another."""
    return [name for name, digest in files.items() if not _is_still(name, digest)]


def _is_still(name: str, digest: str) -> bool:
    # Called for every source file of a cell, before and after it is computed.
    try:
        return READ.get(name, {digest}) == {digest} == {_now(name)}
    except (OSError, ValueError, KeyError):
        return False


def _now(name: str) -> str:
    """sha256 of a file, or of an entry in one, as it is on the disk."""
    file, _, row = name.rpartition(ROW)
    path = os.path.join(ROOT, name)
    if not file or os.path.exists(path):
        return sha256(path)
    return rows(Path(ROOT, file), [row])[name]
