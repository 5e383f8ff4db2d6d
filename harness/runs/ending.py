"""How a command is told to end: SIGTERM comes as Ctrl-C does, which waiting code lets through."""

from threading import Event
from typing import NoReturn

_told = Event()


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. Compiled code lets only interrupts through."""


def terminate(*_: object) -> NoReturn:
    """For `signal.signal`."""
    _told.set()
    raise Terminated


def by_sigterm(interrupt: KeyboardInterrupt) -> bool:
    """Whether it was SIGTERM: compiled code may make a plain interrupt of any signal."""
    return isinstance(interrupt, Terminated) or _told.is_set()
