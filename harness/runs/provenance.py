"""Where a result comes from: program, packages, machine, data."""

import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version

from packaging.utils import canonicalize_name

from harness.config.paths import ROOT


def provenance(
    *,
    code: str,
    started_s: float,
    costs: Mapping[str, object] | None = None,
    datasets: Mapping[str, str] | None = None,
    engine: str = "simulated",
    notes: Sequence[str] = (),
) -> dict[str, object]:
    """What `provenance.json` holds, at the end of a run.

    `code` is the digest of the cell's source files; `started_s` is `time.time()` at its start.
    `costs` says what its seconds rest on: `profile` (name) and `fit_error` (relative, 0.05 = 5%).
    `datasets` maps names to SHA-256 digests; `engine` says whether its seconds are simulated or
    measured, and on what; `notes` what the workload assumed or left out. The commit, and what the
    run is named by, are added by the process that writes it: a node of a cluster has no repository.
    """
    return {
        "code": code,
        "packages": _packages(),
        "installed": _installed(),
        "machine": machine(),
        "started": datetime.fromtimestamp(started_s, UTC).isoformat(),
        "wall_s": time.time() - started_s,
        "costs": dict(costs or {}),
        "datasets": dict(datasets or {}),
        "engine": engine,
        "notes": list(notes),
    }


def _said(*command: str) -> str | None:
    """What a command printed; None where it is absent, fails or hangs."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.decode(errors="replace").strip()


@cache
def git_state() -> dict[str, str | None]:
    """Commit, and a digest of what differs from it; both None outside this project's repository.

    A copy of the tree inside some other repository must not be given that one's commit.
    """
    if _said("git", "rev-parse", "--show-toplevel") != str(ROOT):
        return {"commit": None, "changes": None}
    changes = _said("git", "diff", "HEAD")
    digest = hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else None
    return {"commit": _said("git", "rev-parse", "--verify", "HEAD"), "changes": digest}


@cache
def _packages() -> dict[str, str | None]:
    """Version of every package the project asks for by name; None where it is not installed."""
    listed = (ROOT / "requirements" / "base.in").read_text().split()
    return {name: package_version(name) for name in listed}


@cache
def _installed() -> dict[str, str]:
    """`packages`, every package as name==version in order, as pip takes it, and its `sha256`."""
    pins = {f"{canonicalize_name(it.name)}=={it.version}" for it in distributions() if it.name}
    packages = " ".join(sorted(pins))
    return {"sha256": hashlib.sha256(packages.encode()).hexdigest(), "packages": packages}


@cache
def package_version(name: str) -> str | None:
    """What is installed of a package; None where it is not."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def machine() -> dict[str, object]:
    """Python, system, processor, cores and GPUs of this machine."""
    gpus = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "gpus": gpus.splitlines() if gpus else [],
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            named = [
                line.partition(":")[2].strip() for line in lines if line.startswith("model name")
            ]
    except OSError:
        named = []
    return named[0] if named else platform.processor()
