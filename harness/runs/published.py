"""Where generated things go: below results/local, unless they are being published.

What is published (figures, verdicts, measurements) is tracked by git, and README and its
pages show it. A command writes it only with `--publish`; `make publish` makes all that follows from
runs. What a run here makes goes below results/local, which git ignores.
"""

import argparse
from pathlib import Path

from harness.config.paths import ROOT
from harness.config.scratch import write_whole

RESULTS = ROOT / "results"
LOCAL = "local"


def add_publish(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command that writes generated things."""
    said = f"write what git tracks below results/, instead of results/{LOCAL}/"
    parser.add_argument("--publish", action="store_true", help=said)


def place(kind: str, *, publish: bool, results: Path = RESULTS) -> Path:
    """Folder of generated things of a kind: figures, claims ..."""
    return results / kind if publish else results / LOCAL / kind


def shown(path: Path) -> str:
    """A path as a person reads it: from the project's folder, where it is inside."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def write(path: Path, text: str) -> None:
    """Write a generated file, whole or not at all, and say where it is. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    print(f"wrote {shown(path)}")
