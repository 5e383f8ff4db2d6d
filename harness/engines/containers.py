"""Docker containers that run generated code: limited, killed in time, and removed.

A container has no network, a root file system that is read only, a `/tmp` in memory, and limits of
memory, CPU, processes and seconds. It is killed, not stopped: a busy loop ignores what stopping
sends for ten seconds. Containers of processes that have ended are removed by their label. The
package docker is imported in functions: a run without containers does not need it.
"""

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LABEL = "llm-scheduler-harness.pid"
"""The process that a container belongs to."""
_SLEEP_S = 1_000_000
_TRIES, _NOT_STARTED = 3, (126, b"OCI runtime exec failed")
"""Status and output of code that the runtime could not start, as on a busy machine; tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """What a container may use."""

    memory_bytes: int = 64 * 2**20
    cpus: float = 0.5
    processes: int = 32
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What running a piece of code gave: its exit status and its output.

    `status` is 137 where a limit of memory or time has killed it, None where the daemon failed.
    """

    status: int | None
    output: str


def _errors() -> tuple[type[Exception], ...]:
    """What the client raises where the daemon fails."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    return DockerException, RequestException


class Containers:
    """Containers of one image by name. Methods may be called from several threads."""

    def __init__(
        self,
        *,
        image: str,
        command: Sequence[str] = ("sh", "-c"),
        limits: ContainerLimits | None = None,
        url: str | None = None,
    ) -> None:
        """`command` runs a piece of code, its last argument. `url` is the daemon's; None: as usual.

        Raises ValueError where no daemon answers or it lacks the image.
        """
        import docker
        from docker.errors import ImageNotFound

        self._command, self._limits, self._image = list(command), limits or ContainerLimits(), image
        try:
            self._client = docker.DockerClient(base_url=url) if url else docker.from_env()
            self._client.ping()
            remove_leftovers(self._client)
            self._client.images.get(image)
        except ImageNotFound:
            raise ValueError(f"the docker daemon has no image {image}; docker pull it") from None
        except _errors() as error:
            raise ValueError(
                f"no docker daemon answers at {url or 'its usual place'}: {error}"
            ) from None
        self._running: dict[str, Any] = {}
        self._pids: dict[str, int] = {}

    def start(self, name: str) -> None:
        """Start a container. Raises RuntimeError, in one sentence, where that fails."""
        limits = self._limits
        try:
            container = self._client.containers.create(
                self._image,
                ["sleep", str(_SLEEP_S)],
                network_mode="none",
                read_only=True,
                tmpfs={"/tmp": "size=16m"},
                mem_limit=limits.memory_bytes,
                memswap_limit=limits.memory_bytes,
                nano_cpus=int(limits.cpus * 1e9),
                pids_limit=limits.processes,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                labels={LABEL: str(os.getpid())},
            )
            self._running[name] = container
            container.start()
            container.reload()
            self._pids[name] = container.attrs["State"]["Pid"]
        except _errors() as error:
            self.stop(name)
            raise RuntimeError(f"container {name} did not start: {error}") from None

    def run(self, name: str, code: str) -> CodeResult:
        """Run code in a container that has started; killed after the seconds of its limit."""
        if name not in self._running:
            return CodeResult(None, f"container {name} is not running")
        command = ["timeout", "-s", "KILL", f"{self._limits.timeout_s:g}", *self._command, code]
        try:
            for _ in range(_TRIES):
                status, output = self._running[name].exec_run(command)
                if status != _NOT_STARTED[0] or not output.startswith(_NOT_STARTED[1]):
                    break
        except _errors() as error:
            return CodeResult(None, str(error))
        return CodeResult(status, output.decode(errors="replace"))

    def stop(self, name: str) -> None:
        """Kill and remove a container, with or without its daemon; one that is gone is no error."""
        from docker.errors import NotFound

        container, pid = self._running.pop(name, None), self._pids.pop(name, 0)
        if container is None:
            return
        try:
            container.remove(force=True)
        except NotFound:
            return
        except _errors():
            end_process(pid)

    def close(self) -> None:
        """Kill and remove all."""
        for name in tuple(self._running):
            self.stop(name)
        self._client.close()


def end_process(pid: int) -> None:
    """Kill the first process of a container whose daemon is gone, and with it all of its own."""
    if pid > 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def remove_leftovers(client: Any) -> int:
    """Remove containers of processes that have ended; returns how many there were."""
    from docker.errors import APIError

    count = 0
    for container in client.containers.list(all=True, filters={"label": LABEL}):
        if not _is_alive(int(container.labels[LABEL])):
            with contextlib.suppress(APIError):
                container.remove(force=True)
                count += 1
    return count


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
