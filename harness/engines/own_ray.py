"""Ray for engines and clusters: one of this process alone, or a cluster that is there already.

One of its own is on the loopback interface, independent of RAY_ADDRESS and of other clusters.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

PREFIX = "sweep-ray-"
_STARTS = 2
STARTS_S = 120.0
"""Within which Ray starts, also on a busy machine."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANSWERS_S = 10.0
_ASKS_S = "2"
_PRIORITY = {"RAY_worker_niceness": "0"}
"""Of engine processes: at Ray's own 15 whatever else runs on the machine delays them by minutes."""
_SILENT: Mapping[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


class RayLost(RuntimeError):  # noqa: N818 - it says what has happened
    """Ray did not start, or has ended while it was needed; the message says which."""


@contextmanager
def joined_ray(address: str, runtime_env: Mapping[str, Any]) -> Iterator[None]:
    """The cluster at an address. Raises ValueError where none answers."""
    host = _knocked(address)
    try:
        try:
            with _quiet(), _loopback() if host in _LOOPBACK else nullcontext():
                _ray().init(address=address, runtime_env=dict(runtime_env), **_SILENT)
        except Exception as error:  # of many kinds: no address, no answer, another version
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"cluster.address={address}: no Ray cluster answers: {said}") from None
        yield
    finally:
        _shut_down()


def _knocked(address: str) -> str:
    """The host of HOST:PORT, "" where the address is none. Ray would try for minutes.

    Raises ValueError where no server answers there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return ""
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"cluster.address={address}: no Ray cluster answers: {error}") from None
    return host


def _ray() -> Any:
    import ray  # takes a second, which simulated runs need not pay

    return ray


def _shut_down() -> None:
    """End Ray, where it was imported: a command that was told to end meanwhile has half of it."""
    ray = sys.modules.get("ray")
    if ray is not None and hasattr(ray, "shutdown"):
        ray.shutdown()


def start_ray(slots: int, **settings: Any) -> None:
    """Ray with so many CPU slots, which no other process reaches. Raises RayLost.

    Ends the process where Ray neither starts nor fails in `STARTS_S`.
    """
    for attempt in range(1, _STARTS + 1):
        others = _children()
        try:
            with _quiet(), _loopback(), _bounded(), _noticed(others):
                _ray().init(
                    address="local",
                    num_cpus=slots,
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    **_SILENT,
                    **settings,
                )
        except Exception as error:  # of many kinds, as its processes end
            _ray().shutdown()
            _kill(child for child in _children() if child not in others)
            if attempt == _STARTS:
                said = (str(error).splitlines() or [type(error).__name__])[0]
                raise RayLost(f"Ray did not start: {said}") from error
        else:
            return


@contextmanager
def _bounded() -> Iterator[None]:
    """An end to waiting: a Ray whose worker dies while it starts may wait for ever, compiled."""
    watch = threading.Timer(STARTS_S, _give_up)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


@contextmanager
def _noticed(others: Collection[int]) -> Iterator[None]:
    """Processes of Ray that die while it starts are noticed: it would wait half a minute more.

    It asks again and again whether it is there, compiled, and takes a RuntimeError for "not yet".
    `others` were there before, those of a Ray that has ended among them.
    """
    services = _ray()._private.services
    asked = services.get_node

    def get_node(*which: Any) -> Any:
        try:
            return asked(*which)
        except RuntimeError:
            if any(_is_dead(child) for child in _children() if child not in others):
                raise ConnectionError("one of its processes has died") from None
            raise

    services.get_node = get_node
    try:
        with _variables({"RAY_raylet_start_wait_time_s": _ASKS_S, **_PRIORITY}):
            yield
    finally:
        services.get_node = asked


def _children() -> list[int]:
    """Processes that this one started."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return [int(child) for children in lists for child in children.split()]


def _is_dead(child: int) -> bool:
    """Whether it has ended and its status was not read."""
    try:
        # The name, in brackets, may hold anything; the state is the first word behind it.
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _give_up() -> None:
    """Say so, end Ray's processes, which are children of this one, and this one."""
    said = f"error: Ray did not start within {STARTS_S:g} s; give the command again"
    print(said, file=sys.stderr)
    sys.stderr.flush()
    _kill(_children())
    os._exit(1)


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@contextmanager
def _loopback() -> Iterator[None]:
    """Ray takes 127.0.0.1 as it is said: else it would look for an address that others reach."""
    constants = _ray()._private.ray_constants
    was, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = was


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing of Ray's own on the terminal.

    It tells of every dead worker on standard output, where the table goes; we record those. It
    would take SIGTERM for itself and leave without a word; its compiled part prints a stack of C++,
    so that the handler from before gets it back.
    """
    private, handler = _ray()._private, signal.getsignal(signal.SIGTERM)
    worker, utils = private.worker, private.utils
    was, worker.listen_error_messages = worker.listen_error_messages, _hear_nothing
    took, utils.set_sigterm_handler = utils.set_sigterm_handler, _take_nothing
    try:
        yield
    finally:
        worker.listen_error_messages = was
        utils.set_sigterm_handler = took
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _take_nothing(handler: object) -> None:
    """In the place of what takes SIGTERM."""


def _hear_nothing(worker: object, stopped: threading.Event) -> None:
    """In the place of the thread that prints."""


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment of what is started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
