"""Packs vLLM for a machine with one Hopper GPU and no network: `make gpu-pack`.

That machine has Python 3.12, torch 2.11.0 for CUDA 13, transformers and what these bring. Wheels
are fetched by the lock `requirements/gpu-pack.txt`; of vLLM, Python files and the shared objects
that a dense model in bfloat16 needs are kept, of these the machine code for one architecture. What
is written is compressed, with a manifest of checksums: `gpu_unpack` is for the other side.

nvcc puts GPU programs into the section `.nv_fatbin` of a 64-bit ELF file, in containers. A
container is a header (magic number, version, size of the header, size of what follows) and entries,
one per program: PTX, or machine code for one architecture. What is kept moves to the front of its
container, whose size is lowered, and zeros follow: no address outside the containers changes, and
the zeros compress to nothing.
"""

import argparse
import hashlib
import io
import json
import lzma
import re
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from harness.config.paths import ROOT
from harness.tools.fidelity.gpu_unpack import MANIFEST

LOCK = ROOT / "requirements" / "gpu-pack.txt"
ARCH = 90  # H100 and H200
PYTHON = "3.12"
SYSTEMS = ("1", "2014", *(f"_2_{minor}" for minor in (5, 12, 17, 24, 26, 27, 28, 31)))
"""Names of Linux systems that wheels may be for; pip takes each by its exact name."""
OWN = ("hydra-core", "omegaconf", "antlr4-python3-runtime")
"""What the project imports beyond that: Python files alone, taken from this environment."""
OBJECTS = (
    "vllm/_C_stable_libtorch.abi3.so",
    "vllm/_moe_C_stable_libtorch.abi3.so",
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
    "vllm/cumem_allocator.abi3.so",
    "vllm/spinloop.abi3.so",
)
"""Of vLLM; its other shared objects are for other models, numbers or GPUs."""
TEXT = re.compile(r"\.(py|json|jinja)$|/py\.typed$|\.dist-info/")
UNUSED = re.compile(
    r"(^|/)(include|fused_moe/configs)/(?!__init__)|\.(pyi|pxd|h|cmake|pyc)$|/RECORD$|/$|^\.\./"
)
LARGE = 20 << 20
"""Bytes; a shared object of more is an archive of its own, to be compressed beside the others."""
SUFFIX = ".tar.xz"
SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
ALIGNMENT = 8
"""Bytes; zeros may stand between two containers."""
MACHINE_CODE = 2
"""The kind of an entry; 1 is PTX."""

File = tuple[str, bytes]


class Container(NamedTuple):
    """Where a container is, and its entries, which begin at `first`: kind, architecture, bytes."""

    start: int
    first: int
    end: int
    entries: list[tuple[int, int, bytes]]

    def kept(self, arch: int) -> bytes:
        """The machine code for an architecture."""
        wanted = (MACHINE_CODE, arch)
        return b"".join(data for kind, of, data in self.entries if (kind, of) == wanted)


def section(data: bytes) -> tuple[int, int] | None:
    """First and last byte (exclusive) of `SECTION` of an ELF file; None where it has none."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    (text,) = struct.unpack_from("<Q", data, table + names * size + 0x18)
    for header in range(table, table + count * size, size):
        start = text + struct.unpack_from("<I", data, header)[0]
        if data[start : data.index(b"\0", start)].decode() == SECTION:
            first, length = struct.unpack_from("<QQ", data, header + 0x18)
            return first, first + length
    return None


def containers(data: bytes) -> Iterator[Container]:
    """Every container of an ELF file. Raises ValueError where entries do not fill one."""
    start, last = section(data) or (0, 0)
    while start < last - 2 * ALIGNMENT:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, start)
        if magic != MAGIC:
            start += ALIGNMENT
            continue
        at = first = start + header
        end, entries = first + size, []
        while at < end:
            kind, _, own_header, payload = struct.unpack_from("<HHIQ", data, at)
            (arch,) = struct.unpack_from("<I", data, at + 28)
            entries.append((kind, arch, data[at : at + own_header + payload]))
            at += own_header + payload
        if at != end:
            raise ValueError(f"the container of GPU programs at byte {start} has an unknown format")
        yield Container(start, first, end, entries)
        start = end


def pruned(data: bytes, arch: int) -> bytes:
    """The file, as long as before, without programs for other architectures.

    A container of which nothing would be kept has one small program for another architecture, so
    that the driver can read it. Raises ValueError where what is kept is not what is read back.
    """
    work, found = bytearray(data), list(containers(data))
    others = (e for each in found for e in each.entries if e[0] == MACHINE_CODE and e[1] != arch)
    _, _, other = min(others, key=lambda entry: len(entry[2]), default=(0, 0, b""))
    for each in found:
        body = each.kept(arch) or other
        struct.pack_into("<Q", work, each.start + 8, len(body))
        work[each.first : each.end] = body.ljust(each.end - each.first, b"\0")
    new = bytes(work)
    if [each.kept(arch) for each in containers(new)] != [each.kept(arch) for each in found]:
        raise ValueError(f"the programs for sm_{arch} are not the same after pruning")
    return new


def fetch(folder: Path) -> list[Path]:
    """Wheels of the lock. Raises `subprocess.CalledProcessError`; pip says why."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    flags = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    flags += [f"--platform=manylinux{name}_x86_64" for name in SYSTEMS]
    subprocess.run([*pip, *flags, "--require-hashes", "-r", str(LOCK)], check=True)
    return sorted(folder.glob("*.whl"))


def files_of(wheel: Path) -> Iterator[File]:
    """What is kept of a wheel."""
    is_vllm = wheel.name.startswith("vllm-")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            is_wanted = not is_vllm or name in OBJECTS or TEXT.search(name)
            if is_wanted and not UNUSED.search(name):
                yield name, archive.read(name)


def own_files() -> Iterator[File]:
    """Files of the packages that are taken from this environment."""
    for name in OWN:
        for path in distribution(name).files or ():
            if not UNUSED.search(str(path)):
                yield str(path), Path(str(path.locate())).read_bytes()


def grouped(files: Iterable[File]) -> dict[str, list[File]]:
    """Files by the archive that they go to, shared objects pruned; alike ones side by side."""
    groups: dict[str, list[File]] = {}
    for name, data in files:
        last = name.rpartition("/")[2]
        if ".so" not in last:
            group = "python"
        else:
            group = last.partition(".")[0] if len(data) > LARGE else "objects"
            data = pruned(data, ARCH) if section(data) else data
        groups.setdefault(group, []).append((name, data))
    groups.get("python", []).sort(key=lambda file: (file[0].rpartition(".")[2], file[0]))
    return groups


def compressed(files: Iterable[File], *, has_code: bool) -> bytes:
    """One archive; machine code of x86 gets the filter for it."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755 if has_code else 0o644
            archive.addfile(member, io.BytesIO(data))
    filters: list[dict[str, int]] = [{"id": lzma.FILTER_X86}] if has_code else []
    preset = 9 | lzma.PRESET_EXTREME
    filters.append({"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": 128 << 20})
    return lzma.compress(plain.getvalue(), filters=filters)


def write(out: Path, groups: Mapping[str, list[File]], wheels: Iterable[str]) -> int:
    """Write archives and manifest; the bytes of all archives."""
    with ThreadPoolExecutor(2) as pool:  # more would need a gigabyte of memory each
        jobs = {
            name: pool.submit(compressed, files, has_code=name != "python")
            for name, files in groups.items()
        }
        archives, total = {}, 0
        for name, job in jobs.items():
            data = job.result()
            (out / f"{name}{SUFFIX}").write_bytes(data)
            archives[f"{name}{SUFFIX}"] = {
                "sha256": hashlib.sha256(data).hexdigest(),
                "files": len(groups[name]),
                "bytes": sum(len(content) for _, content in groups[name]),
            }
            total += len(data)
            print(f"{name}: {len(data) / 2**20:.2f} MiB, {len(groups[name])} files", flush=True)
    content = {"python": PYTHON, "arch": ARCH, "archives": archives, "wheels": sorted(wheels)}
    (out / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return total


def cleared(out: Path) -> Path:
    """An empty folder. Raises ValueError for one with files that are no earlier pack."""
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise ValueError(f"--out={out} has other files: name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob(f"*{SUFFIX}"), out / MANIFEST):
        old.unlink(missing_ok=True)
    return out


def main(arguments: list[str] | None = None) -> int:
    """Fetch, prune, compress and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Packs vLLM for one GPU without a network.")
    parser.add_argument("--out", type=Path, default=ROOT / ".gpu", help="what is to be carried")
    options = parser.parse_args(arguments)
    started_s = time.monotonic()
    try:
        out = cleared(options.out)
        with TemporaryDirectory() as folder:
            wheels = fetch(Path(folder))
            files = [*own_files(), *(file for wheel in wheels for file in files_of(wheel))]
        total = write(out, grouped(files), (wheel.name for wheel in wheels))
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{total / 2**20:.1f} MiB in {out}, {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
