"""Files that a result follows from: of each, what this process has of it.

The program is hashed before any of it is loaded (`harness/__init__.py` imports this module first),
other files when they are read, fitted profiles among them. A result may be kept only where all that
was loaded and read is one version and the disk still holds it; `changed` says where that is not so.
"""

import errno
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from harness.paths import ROOT

TOPS = ("harness", "baselines", "systems")
"""Folders of the project that hold its program."""

_PROFILES = "harness/profiles/"

_BELOW = f"{ROOT}/"

_Stamp = tuple[int, int, int, int]


def name_of(path: Path) -> str:
    """From the project's folder where the file is below it, so that no checkout's place matters."""
    return _name_of(path.absolute())


@cache
def _name_of(path: Path) -> str:
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def path_of(name: str) -> Path:
    """Where the file of a name is."""
    return ROOT / name


def digests_of(root: Path) -> dict[str, str]:
    """sha256 of every source file of the program below `root`, without its tests."""
    found: dict[str, str] = {}
    for folder, folders, files in (step for top in TOPS for step in os.walk(root / top)):
        place = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if name not in ("tests", "__pycache__")]
        for name in files:
            if name.endswith(".py"):
                found[f"{place}/{name}"] = _sha256(Path(folder, name).read_bytes())
    return dict(sorted(found.items()))


def together(digests: Mapping[str, str]) -> str:
    """12 hex digits over files by name and sha256."""
    text = json.dumps(digests, sort_keys=True)
    return _sha256(text.encode())[:12]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PROGRAM: Mapping[str, str] = digests_of(ROOT)
"""The program as this process loads it: sha256 by name, taken before any of it was loaded."""

_had: defaultdict[str, set[str]] = defaultdict(set)
"""Every version of a file that this process has read, by name, in the order of the first reads."""

_PIECE_BYTES = 1 << 20
_hashed: dict[str, tuple[_Stamp, str]] = {}
"""sha256 of the file at a path, as it was when its stamp was this."""

_imported: dict[str, str] = {}
"""Modules from outside the program, as they were first asked for."""


def read(path: Path) -> bytes:
    """The bytes of a file, remembered as read. Raises OSError."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "it is a pipe, which may never end", str(path))
    content = path.read_bytes()
    _had[name_of(path)].add(_sha256(content))
    return content


@contextmanager
def profiles_read() -> Iterator[list[str]]:
    """Names of the profile files that this process reads for the first time inside the block.

    The list is filled when the block ends.
    """
    before, found = len(_had), list[str]()
    yield found
    found += [name for name in islice(_had, before, None) if name.startswith(_PROFILES)]


def read_json(path: Path) -> Any:
    """What a JSON file holds, remembered as read. Raises OSError and ValueError."""
    return json.loads(read(path))


def sha256(path: Path | str) -> str:
    """Of the file as it is now; hashed again only where it has been written since. OSError."""
    place, stat = str(path), os.stat(path)
    stamp = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    known = _hashed.get(place)
    if known is None or known[0] != stamp:
        known = _hashed[place] = stamp, sha256_now(Path(path))
    return known[1]


def sha256_now(path: Path) -> str:
    """Of the file as it is, read in any case. Raises OSError."""
    found = hashlib.sha256()
    # Most files are small and many: no buffer is made for more than they hold.
    with path.open("rb", buffering=0) as content:
        while piece := content.read(_PIECE_BYTES):
            found.update(piece)
    return found.hexdigest()


def sha256_imported(path: Path) -> str:
    """Of a module's file when this process asked first: what is loaded does not change later."""
    return _imported.setdefault(name_of(path), sha256(path))


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """sha256 of files by name. Raises OSError."""
    return {name_of(path): sha256(path) for path in paths}


def changed(files: Mapping[str, str]) -> list[str]:
    """Names of those files of which this process has, or the disk holds, anything else.

    `files` are sha256 by name.
    """
    return [name for name, digest in files.items() if not _is_still(name, digest)]


def _is_still(name: str, digest: str) -> bool:
    # Called for every source file of a cell, before and after it is computed.
    if name in _had and _had[name] != {digest}:
        return False
    if not _imported.get(name, digest) == PROGRAM.get(name, digest) == digest:
        return False
    try:
        return sha256(name if name.startswith("/") else _BELOW + name) == digest
    except OSError:
        return False
