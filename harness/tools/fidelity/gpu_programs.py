"""GPU programs in a shared object: keeps the machine code for one architecture.

nvcc puts programs into the section `.nv_fatbin` of a 64-bit ELF file, in containers. A container
is a header (magic number, version, size of the header, size of what follows) and entries, one per
program: PTX, or machine code for one architecture. What is kept moves to the front of its
container, whose size is lowered, and zeros follow: no address outside the containers changes, and
the zeros compress to nothing.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
ALIGNMENT = 8
"""Bytes; zeros may stand between two containers."""
MACHINE_CODE = 2
"""The kind of an entry; 1 is PTX."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One program: its kind and architecture, and where it is, its header included."""

    kind: int
    arch: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Container:
    """Where a container is, and its entries; `first` is where these begin."""

    start: int
    first: int
    end: int
    entries: tuple[Entry, ...]


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
    place, end = section(data) or (0, 0)
    while place < end - 2 * ALIGNMENT:
        if struct.unpack_from("<I", data, place)[0] != MAGIC:
            place += ALIGNMENT
            continue
        found = _container(data, place)
        yield found
        place = found.end


def _container(data: bytes, start: int) -> Container:
    header, size = struct.unpack_from("<HQ", data, start + 6)
    at = first = start + header
    end, entries = first + size, []
    while at < end:
        kind, _, own_header, payload = struct.unpack_from("<HHIQ", data, at)
        (arch,) = struct.unpack_from("<I", data, at + 28)
        entries.append(Entry(kind, arch, at, own_header + payload))
        at += own_header + payload
    if at != end:
        raise ValueError(f"the container of GPU programs at byte {start} is of an unknown format")
    return Container(start, first, end, tuple(entries))


def kept(data: bytes, container: Container, arch: int) -> bytes:
    """The machine code for an architecture that a container has."""
    entries = (e for e in container.entries if e.kind == MACHINE_CODE and e.arch == arch)
    return b"".join(data[e.start : e.start + e.size] for e in entries)


def pruned(data: bytes, arch: int) -> bytes:
    """The file, as long as before, without programs for other architectures.

    A container of which nothing would be kept has one small program for another architecture, so
    that the driver can read it. Raises ValueError where what is kept is not what is read back.
    """
    work, found = bytearray(data), list(containers(data))
    other = _smallest_other(data, found, arch)
    for each in found:
        body = kept(data, each, arch) or other
        struct.pack_into("<Q", work, each.start + 8, len(body))
        work[each.first : each.end] = body.ljust(each.end - each.first, b"\0")
    new = bytes(work)
    before = [kept(data, each, arch) for each in found]
    if [kept(new, each, arch) for each in containers(new)] != before:
        raise ValueError(f"the programs for sm_{arch} are not the same after pruning")
    return new


def _smallest_other(data: bytes, found: list[Container], arch: int) -> bytes:
    others = [e for c in found for e in c.entries if e.kind == MACHINE_CODE and e.arch != arch]
    least = min(others, key=lambda entry: entry.size, default=Entry(MACHINE_CODE, 0, 0, 0))
    return data[least.start : least.start + least.size]
