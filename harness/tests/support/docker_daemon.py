"""A docker daemon for tests: the machine's own, or one that is started for them.

Where none answers, its packages are downloaded (apt) and unpacked below a folder, nothing is
installed. That takes root and a Debian; elsewhere tests say why they are skipped.
"""

import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
from docker.errors import DockerException

from harness.tests.support.processes import HANGS_S, eventually, started

IMAGE = "harness-busybox:1"
_PACKAGES = (
    *("docker.io", "containerd", "runc", "iptables", "libip4tc2", "libip6tc2", "libnftnl11"),
    *("libnfnetlink0", "libnetfilter-conntrack3", "libxtables12", "tini", "busybox-static"),
)
_APPLETS = ("sh", "sleep", "echo", "cat", "timeout", "kill", "true", "wget", "touch", "dd")


class NoDaemonError(Exception):
    """Why there is no daemon."""


@contextmanager
def daemon(packages: Path) -> Iterator[str]:
    """The address of a daemon of its own from unpacked packages. Raises NoDaemonError."""
    # Paths of sockets may have 107 characters.
    place = Path(tempfile.mkdtemp(prefix="docker-"))
    url = f"unix://{place}/docker.sock"
    path = f"{packages}/usr/bin:{packages}/usr/sbin:{os.environ['PATH']}"
    options = ("--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--bridge=none")
    places = (f"--data-root={place}/data", f"--exec-root={place}/exec", f"--pidfile={place}/pid")
    words, environment = ["dockerd", *options, *places, "-H", url], {**os.environ, "PATH": path}
    try:
        with (
            (place / "log").open("wb") as log,
            started(words, env=environment, stdout=log, stderr=log) as process,
        ):
            _await(url, process, place / "log")
            _import_image(url, packages)
            yield url
    finally:
        shutil.rmtree(place, ignore_errors=True)


def unpacked(folder: Path) -> Path:
    """The root of the unpacked packages of a daemon, which processes may ask for at a time."""
    if os.geteuid() or not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NoDaemonError("a docker daemon needs root, apt-get and dpkg")
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "root").is_dir():
            _unpack(folder)
    return folder / "root"


def _unpack(folder: Path) -> None:
    try:
        for command in (["apt-get", "-q", "update"], ["apt-get", "-q", "download", *_PACKAGES]):
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=HANGS_S)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, "root"], cwd=folder, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise NoDaemonError(f"no packages of a docker daemon: {error}") from None


def _await(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until it answers, or has ended."""

    def answers() -> bool:
        with suppress(DockerException):
            docker.DockerClient(base_url=url).ping()
            return True
        return False

    eventually(lambda: answers() or process.poll() is not None)
    if process.poll() is not None:
        last = log.read_text(errors="replace").splitlines()[-1:]
        raise NoDaemonError(f"a docker daemon does not start here: {last}")


def _import_image(url: str, packages: Path) -> None:
    """An image of busybox, of which the commands are links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("bin", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        tar.add(packages / "bin" / "busybox", "bin/busybox")
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    name, tag = IMAGE.split(":")
    client = docker.APIClient(base_url=url)
    client.import_image_from_data(data.getvalue(), repository=name, tag=tag)
