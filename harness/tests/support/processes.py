"""Processes that tests start: how they end, what they listen at, and which are left."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from harness.runs.pool_worker import end_with_parent

HANGS_S = 1200.0
"""For what takes seconds, or minutes on a busy machine: only a test that hangs takes so long."""
SUITE = "HARNESS_SUITE"
"""Marks of the test sessions that a process was started below, in its environment."""
GRACE_S = 120.0
"""Within which a process ends that has been told to."""
_TRACKER = "multiprocessing.resource_tracker"  # ends with its parent

T = TypeVar("T")
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


def eventually(happens: Callable[[], T]) -> T:
    """What `happens` returns once that is true. AssertionError where it never is."""
    until_s = time.monotonic() + HANGS_S
    while not (found := happens()):
        assert time.monotonic() < until_s, "it has not happened"
        time.sleep(0.05)
    return found


@contextmanager
def started(words: Sequence[str], **about: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A process and a group of its own: SIGTERM when the block ends, then the group is killed.

    `about` is for `Popen`. The process gets SIGTERM as well where this one ends.
    """
    process = subprocess.Popen(words, start_new_session=True, preexec_fn=end_with_parent, **about)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def mark_suite() -> str:
    """Have all processes that are started from now on bear a new mark; returns it.

    They keep what they compile: else each compiles the whole program, for longer than it runs.
    """
    mark = uuid4().hex
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ[SUITE] = f"{os.environ.get(SUITE, '')} {mark}"
    os.environ["SPT_NOENV"] = "1"  # Ray's and vLLM's set their titles, but not over the environment
    return mark


def end_left(mark: str) -> list[str]:
    """Kill what bears a mark and does not end by itself; its command lines."""
    until_s = time.monotonic() + GRACE_S
    while (left := _marked(mark)) and time.monotonic() < until_s:
        time.sleep(0.1)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return [f"{process} {name}" for process, name in left.items()]


def _marked(mark: str) -> dict[int, str]:
    """Processes that bear a mark, and their command lines."""
    found = {}
    for process, parent in _parents():
        name = named(process)
        with suppress(OSError):
            bears = mark.encode() in Path(f"/proc/{process}/environ").read_bytes()
            if bears and not (parent == os.getpid() and _TRACKER in name):
                found[process] = name
    return found
