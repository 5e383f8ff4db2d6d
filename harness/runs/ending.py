"""How a command is told to end: SIGTERM comes as Ctrl-C does, which waiting code lets through."""

from threading import Event
from typing import NoReturn

by_sigterm = Event()
"""Set by SIGTERM. Compiled code makes a plain interrupt of any signal."""


def terminate(*_: object) -> NoReturn:
    """For `signal.signal`."""
    by_sigterm.set()
    raise KeyboardInterrupt
