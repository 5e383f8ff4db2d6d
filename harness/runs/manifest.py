"""What a run folder was when it was written: the sha256 of every file, held against it later."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

from harness.inputs import sha256_now

MANIFEST = "manifest.json"
NEEDED = (
    "config.yaml",
    "provenance.json",
    "requests.parquet",
    "gpu.parquet",
    "summary.json",
    MANIFEST,
)
"""What every run has."""
ASIDE = ".damaged-"
"""Begins the name of a folder that was set aside, which is not read."""


def write_manifest(folder: Path, run: str) -> None:
    """Put everything in a folder on the disk, then what it is. Raises OSError.

    `run` is the name under which it is a run: it may be about to get it.
    """
    files = {path.name: sha256_now(path) for path in sorted(folder.iterdir()) if path.is_file()}
    for name in files:
        sync(folder / name)
    content = {"run": run, "sha256": files}
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n")
    sync(folder / MANIFEST)
    sync(folder)


def sync(path: Path) -> None:
    """Have a file or a folder on the disk before going on. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def damage_of(folder: Path) -> str | None:
    """What is wrong with a run folder, to be read behind its name; None where nothing is.

    Files that were added later are not checked: no figure comes from them.
    """
    try:
        written = json.loads((folder / MANIFEST).read_bytes())
        files = written["sha256"]
        if not isinstance(files, Mapping) or not files:
            return f"has a {MANIFEST} that names no files"
        if written.get("run", folder.name) != folder.name:
            return f"is the run {written['run']} under another name"
        if missing := sorted(set(NEEDED) - {*files, MANIFEST}):
            return f"has a {MANIFEST} without {missing[0]}"
        for name, digest in files.items():
            if Path(name).name != name or not (folder / name).is_file():
                return f"has no {name}"
            if sha256_now(folder / name) != digest:
                return f"has another {name} than was written"
    except FileNotFoundError as error:
        return f"has no {Path(error.filename).name}"
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        return f"has a {MANIFEST} or files that cannot be read: {error}"
    return None


def is_written(folder: Path, name: str) -> bool:
    """Whether a file was written with the run. Of a folder that is not damaged."""
    manifest = folder / MANIFEST
    return manifest.is_file() and name in json.loads(manifest.read_bytes())["sha256"]


def refuse_damaged(folder: Path) -> None:
    """Raise ValueError for a folder with a manifest that is not as it was written."""
    if (folder / MANIFEST).is_file() and (damage := damage_of(folder)):
        raise ValueError(f"the run {folder} {damage}; it was edited or damaged")


def set_aside(folder: Path, damage: str) -> None:
    """Give a damaged folder a name under which it is not read, and say so on stderr.

    Where it cannot be renamed it is only said; another process may have done it meanwhile.
    """
    said = f"the run {folder} {damage}"
    for number in count(1):
        place = folder.with_name(f"{ASIDE}{folder.name}-{number}")
        if not place.exists():
            break
    with suppress(FileNotFoundError):
        try:
            folder.rename(place)
        except FileNotFoundError:
            raise
        except OSError as error:
            said = f"{said} and is left out ({error.strerror})"
        else:
            said = f"{said}: set aside as {place.name}, to be run again"
        print(said, file=sys.stderr)
