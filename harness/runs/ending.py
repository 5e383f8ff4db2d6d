"""How a command is told to end: SIGTERM comes as Ctrl-C does, which whoever waits lets through."""

from threading import Event
from typing import NoReturn

_told = Event()


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. Who waits in compiled code lets only interrupts through."""


def terminate(*_: object) -> NoReturn:
    """For `signal.signal`."""
    _told.set()
    raise Terminated


def by_sigterm(interrupt: KeyboardInterrupt) -> bool:
    """Whether it was SIGTERM: who waits in compiled code may make a plain interrupt of any."""
    return isinstance(interrupt, Terminated) or _told.is_set()
