"""What runs in a worker of a process pool: loads nothing before its first cell."""

import ctypes
import os
import pickle
import signal
import sys
from typing import Any

MOST_WORKERS = 8
"""Processes at a time at most, whatever the cores: each holds its runs in memory."""
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def cores_here() -> int:
    """Cores that this process may use, at most MOST_WORKERS."""
    return max(1, min(MOST_WORKERS, len(os.sched_getaffinity(0))))


def end_with_parent(kind: int = signal.SIGTERM) -> None:
    """On Linux, have the kernel send this process a signal when its parent has ended.

    A parent that got SIGKILL can tell no child. Between fork and exec nothing may be loaded.
    """
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, kind)


def begin(parent: int) -> None:
    """Initialize a worker of the process `parent`."""
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before the kernel was told
        os._exit(1)
    os.environ["OMP_NUM_THREADS"] = "1"


def run_pickled(cell: bytes) -> Any:
    """What a pickled cell gives: `Run` or `Failure`."""
    from harness.runs.failures import Failure, attempt

    try:
        loaded = pickle.loads(cell)
    except Exception as error:  # a class of a policy that is not there any more, for instance
        return Failure.of(error)
    return attempt(loaded)
