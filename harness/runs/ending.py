"""How a command is told to end: SIGTERM comes as Ctrl-C does, which whoever waits lets through."""

from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. Who waits in compiled code lets only interrupts through."""


def terminate(*_: object) -> NoReturn:
    """For `signal.signal`."""
    raise Terminated
