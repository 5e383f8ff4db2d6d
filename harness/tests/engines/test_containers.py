"""Real containers: code runs within its limits, and nothing is left behind."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from harness.engines.containers import ContainerLimits, Containers, remove_leftovers
from harness.tests.support.docker_daemon import IMAGE
from harness.tests.support.processes import HANGS_S

pytestmark = pytest.mark.slow


@contextmanager
def limited(running: str, **limits: float) -> Iterator[Containers]:
    """With a container called `one`."""
    about = ContainerLimits(memory_bytes=32 * 2**20, processes=8, **limits)
    made = Containers(image=IMAGE, limits=about, url=running)
    try:
        made.start("one")
        yield made
    finally:
        made.close()


@pytest.fixture
def containers(running: str) -> Iterator[Containers]:
    """Nothing takes so long that it is killed."""
    with limited(running, timeout_s=HANGS_S) as made:
        yield made


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


def test_code_that_hangs_is_killed(running: str) -> None:
    with limited(running, timeout_s=1.0) as containers:
        assert containers.run("one", "while true; do true; done").status == 137


def test_stopping_removes_also_a_busy_container(running: str, containers: Containers) -> None:
    client = docker.DockerClient(base_url=running)
    assert len(client.containers.list(all=True)) == 1
    containers.stop("one")
    containers.stop("one")
    assert client.containers.list(all=True) == []


def test_containers_of_a_process_that_has_ended_are_removed(running: str) -> None:
    code = (
        "from harness.engines.containers import Containers; import os, signal\n"
        f"Containers(image={IMAGE!r}, url={running!r}).start('left')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    client = docker.DockerClient(base_url=running)
    assert len(client.containers.list()) == 1
    assert remove_leftovers(client) == 1
    assert client.containers.list(all=True) == []


@pytest.mark.parametrize("image", ["no-such-image:1"])
def test_a_missing_image_is_refused(running: str, image: str) -> None:
    with pytest.raises(ValueError, match="has no image no-such-image:1"):
        Containers(image=image, url=running)


def test_without_a_daemon_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no docker daemon answers at unix:"):
        Containers(image=IMAGE, url=f"unix://{tmp_path}/docker.sock")
