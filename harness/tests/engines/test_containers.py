"""Real containers: code runs within its limits, and nothing is left behind."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from harness.engines.containers import ContainerLimits, Containers, remove_leftovers
from harness.tests.support.docker_daemon import IMAGE, Daemon, NoDaemonError, daemon, unpacked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A daemon's packages."""
    try:
        return unpacked(tmp_path_factory.mktemp("docker"))
    except NoDaemonError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def running(packages: Path) -> Iterator[Daemon]:
    """A daemon of this module."""
    try:
        with daemon(packages) as found:
            yield found
    except NoDaemonError as error:
        pytest.skip(str(error))


@pytest.fixture
def containers(running: Daemon) -> Iterator[Containers]:
    """With a container called `one`."""
    limits = ContainerLimits(memory_bytes=32 * 2**20, processes=8, timeout_s=2.0)
    made = Containers(image=IMAGE, limits=limits, url=running.url)
    try:
        made.start("one")
        yield made
    finally:
        made.close()


def test_code_runs_and_fails_by_itself(containers: Containers) -> None:
    assert containers.run("one", "echo $((6 * 7))").output == "42\n"
    assert containers.run("one", "exit 3").status == 3


@pytest.mark.parametrize(
    "code",
    [
        "echo x > /etc/x",  # the root file system is read only
        "wget -T 1 http://1.1.1.1/",  # no network
        "dd if=/dev/zero of=/tmp/x bs=1M count=20",  # more than /tmp holds
        "n=0; while [ $n -lt 20 ]; do sleep 1 & n=$((n+1)); done; wait",  # processes
    ],
    ids=["files", "network", "tmp", "processes"],
)
def test_code_cannot_do_what_it_must_not(containers: Containers, code: str) -> None:
    ran = containers.run("one", code)
    assert ran.status not in (0, None) or "can't fork" in ran.output, ran


def test_code_that_takes_too_much_memory_is_killed(containers: Containers) -> None:
    ran = containers.run("one", "x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; done")
    assert ran.status != 0


def test_code_that_hangs_is_killed(containers: Containers) -> None:
    started_s = time.monotonic()
    assert containers.run("one", "while true; do true; done").status == 137
    assert time.monotonic() - started_s < 10.0


def test_stopping_removes_also_a_busy_container(running: Daemon, containers: Containers) -> None:
    client = docker.DockerClient(base_url=running.url)
    assert len(client.containers.list(all=True)) == 1
    containers.stop("one")
    containers.stop("one")
    assert client.containers.list(all=True) == []


def test_containers_of_a_process_that_has_ended_are_removed(running: Daemon) -> None:
    code = (
        "from harness.engines.containers import Containers; import os, signal\n"
        f"Containers(image={IMAGE!r}, url={running.url!r}).start('left')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    client = docker.DockerClient(base_url=running.url)
    assert len(client.containers.list()) == 1
    assert remove_leftovers(client) == 1
    assert client.containers.list(all=True) == []


@pytest.mark.parametrize("image", ["no-such-image:1"])
def test_a_missing_image_is_refused(running: Daemon, image: str) -> None:
    with pytest.raises(ValueError, match="has no image no-such-image:1"):
        Containers(image=image, url=running.url)


def test_without_a_daemon_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no docker daemon answers at unix:"):
        Containers(image=IMAGE, url=f"unix://{tmp_path}/docker.sock")
