"""Copies of the project that a test may edit, and commands run in them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.config.paths import ROOT
from harness.tests.support.processes import HANGS_S

PARTS = ("harness", "baselines", "systems", "scenarios", "requirements")


def copy_of_the_project(place: Path) -> Path:
    """The program, its profiles and scenarios, without what was compiled."""
    for part in PARTS:
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def python(root: Path, program: str, **environment: str) -> str:
    """What a program prints that is run in a checkout. Raises AssertionError where it fails."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
