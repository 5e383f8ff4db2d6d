"""Ray of this machine alone, for the engine processes of a run, or a cluster that is there."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.engines.ray_token import use_token

PREFIX = "sweep-ray-"
"""Of the folder that a local Ray writes to."""
_ANSWERS_S = 10.0
_SILENT: Mapping[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


class RayLost(RuntimeError):  # noqa: N818 - it says what has happened
    """Ray did not start, or has ended while it was needed; the message says which."""


@contextmanager
def joined_ray(address: str, runtime_env: Mapping[str, Any]) -> Iterator[None]:
    """The cluster at an address. Raises ValueError where none answers or takes the user's token."""
    _refuse_unreachable(address)
    use_token(address)
    try:
        try:
            _init(address=address, runtime_env=dict(runtime_env))
        except Exception as error:  # of many kinds: no address, no answer, another version
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"cluster.address={address}: no Ray cluster answers: {said}") from None
        yield
    finally:
        _shut_down()


def start_ray(slots: int, **settings: Any) -> None:
    """A local Ray with so many CPU slots, on the loopback interface. Raises RayLost."""
    # At Ray's own 15 whatever else runs on the machine delays an engine by minutes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        _init(
            address="local",
            num_cpus=slots,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            **settings,
        )
    except Exception as error:  # of many kinds, as its processes end
        _shut_down()
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise RayLost(f"Ray did not start: {said}") from error


def _init(**settings: Any) -> None:
    """`ray.init`, after which SIGTERM is handled as before: Ray's own handler ends the process."""
    import ray  # takes a second, which simulated runs need not pay

    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**_SILENT, **settings)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _refuse_unreachable(address: str) -> None:
    """Raise ValueError where no server answers at HOST:PORT: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"cluster.address={address}: no Ray cluster answers: {error}") from None


def _shut_down() -> None:
    """End Ray, where it was imported: a command that was told to end meanwhile has half of it."""
    ray = sys.modules.get("ray")
    if ray is not None and hasattr(ray, "shutdown"):
        ray.shutdown()
