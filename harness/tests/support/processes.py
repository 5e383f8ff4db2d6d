"""What processes below this one do, as Linux has it."""

import os
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"
_LOOPBACK = {
    "0100007F",
    "0000000000000000FFFF00000100007F",
    "00000000000000000000000001000000",
}


def below(process: int) -> set[int]:
    """Numbers of all processes that it has started, and those have."""
    parents = dict(_parents())
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def named(process: int) -> str:
    """Its command line; empty where it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def listening_beyond_loopback(processes: set[int]) -> list[str]:
    """Addresses that others reach and that one of the processes listens at."""
    return [
        f"{named(process)[:60]}: {address}"
        for process in processes | {os.getpid()}
        for address in _listened_at(process)
        if address.partition(":")[0] not in _LOOPBACK
    ]


def _listened_at(process: int) -> Iterator[str]:
    try:
        held = {os.readlink(f"/proc/{process}/fd/{fd}") for fd in os.listdir(f"/proc/{process}/fd")}
    except OSError:
        return
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{family}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS and f"socket:[{words[9]}]" in held:
                yield words[1]


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        yield int(folder.name), int(stat.rpartition(")")[2].split()[1])
