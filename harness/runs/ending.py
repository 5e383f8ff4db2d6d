"""How a command ends: SIGTERM comes as Ctrl-C does, which waiting code lets through."""

import os
import sys
from threading import Event
from typing import NoReturn

from harness.config import scratch

by_sigterm = Event()
"""Set by SIGTERM. Compiled code makes a plain interrupt of any signal."""


def terminate(*_: object) -> NoReturn:
    """For `signal.signal`."""
    by_sigterm.set()
    raise KeyboardInterrupt


def end_process(code: int) -> NoReturn:
    """End the process at its last word.

    Runs are written and Ray's processes told to end by then. Python would go on to take libraries
    apart, Ray's above all: seconds on a busy machine, for the caller of the command.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    scratch.remove()
    os._exit(code)
