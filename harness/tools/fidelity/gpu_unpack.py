"""Unpacks what `make gpu-pack` wrote: `python3 harness/tools/fidelity/gpu_unpack.py TARGET FOLDER`.

Needs the standard library alone, and nothing else of this project. Ends with status 1 where an
archive is missing or is not what the manifest says, and where this is another Python.
"""

import argparse
import compileall
import hashlib
import io
import json
import lzma
import os
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def unpack(folder: Path, name: str, about: dict[str, Any], target: Path) -> str:
    """Unpack one archive; a line about it. Raises ValueError for a checksum mismatch."""
    data = (folder / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise ValueError(f"{folder / name}: checksum mismatch")
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(data))) as archive:
        archive.extractall(target, filter="data")
    return f"{name}: {about['files']} files, {about['bytes'] / 2**20:.0f} MiB"


def unpack_all(folder: Path, target: Path) -> None:
    """Unpack all archives at once, then compile what is Python.

    Raises ValueError where this is another Python than what was packed for.
    """
    started_s = time.monotonic()
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    wanted, this = manifest["python"], ".".join(map(str, sys.version_info[:2]))
    if wanted != this:
        raise ValueError(f"{folder} was packed for Python {wanted}, this is {this}")
    archives = manifest["archives"]
    target.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(unpack, folder, name, archives[name], target) for name in archives]
        for job in jobs:
            print(job.result())
    unpacked_s = time.monotonic() - started_s
    # Single files that do not compile are for other Pythons.
    compileall.compile_dir(target, quiet=2, workers=os.cpu_count() or 1)
    compiled_s = time.monotonic() - started_s - unpacked_s
    print(f"unpacked in {unpacked_s:.1f} s, compiled in {compiled_s:.1f} s")


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Unpacks what make gpu-pack has written.")
    parser.add_argument("target", type=Path, help="a folder for PYTHONPATH")
    parser.add_argument("folder", type=Path, help="what make gpu-pack has written")
    options = parser.parse_args(arguments)
    try:
        unpack_all(options.folder, options.target)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
