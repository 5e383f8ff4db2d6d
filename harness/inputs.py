"""Files that a result follows from: of each, what this process has of it.

The program and its profiles are hashed before any of them is loaded (`harness/__init__.py` imports
this module first), other inputs when they are read. A result may be kept only where all that was
loaded and read is one version and the disk still holds it; `changed` says where that is not so.
"""

import errno
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.paths import ROOT

TOPS = ("harness", "baselines", "systems")
"""Folders of the project that hold its program."""

APART = frozenset(
    {
        "harness/attack",
        "harness/benchmarks",
        "harness/claims",
        "harness/fidelity",
        "harness/lanes.py",
        "harness/publish.py",
        "harness/report",
        "harness/reproduce.py",
        "harness/results.py",
        "harness/smoke_gpu.py",
        "harness/why.py",
    }
)
"""Files and folders of it that start runs or look at them; nothing that a run loads imports one.

To say more of runs, or better, is then no reason to make them again. Where a configuration names
one all the same it counts like one from outside the project: by its content.
"""

_PROFILES = "harness/profiles"

_BELOW = f"{ROOT}/"

_Stamp = tuple[int, int, int, int]


def name_of(path: Path) -> str:
    """From the project's folder where the file is below it, so that no checkout's place matters."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def path_of(name: str) -> Path:
    """Where the file of a name is."""
    return ROOT / name


def digests_of(root: Path) -> dict[str, str]:
    """sha256 of every file below `root` that a run may load, and of the profiles."""
    found: dict[str, str] = {}
    for folder, folders, files in (step for top in TOPS for step in os.walk(root / top)):
        place = os.path.relpath(folder, root)
        folders[:] = [
            name
            for name in folders
            if name not in ("tests", "__pycache__") and f"{place}/{name}" not in APART
        ]
        kinds = (".py", ".json") if place.startswith(_PROFILES) else (".py",)
        for name in files:
            if name.endswith(kinds) and f"{place}/{name}" not in APART:
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
"""Every version of a file that this process has read, by name."""

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
    # Asked of every file of the program behind every cell.
    if name in _had and _had[name] != {digest}:
        return False
    if not _imported.get(name, digest) == PROGRAM.get(name, digest) == digest:
        return False
    try:
        return sha256(name if name.startswith("/") else _BELOW + name) == digest
    except OSError:
        return False
