"""The command, as a person gives it and as it is inside the test's own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import run
from harness.config.paths import ROOT
from harness.runs.composing import BAD_INPUT, composed, sentence
from harness.tests.support.processes import HANGS_S

COMMAND = ROOT / "harness" / "run.py"
ENSEMBLE = ("workload=mixinstruct", "policy=vllm_0_3", "hardware=a100_80g_8", "system=samullm")
"""A planner's run; what comes later on a command line wins."""
SMALL = (
    *ENSEMBLE,
    "workload.requests=4",
    "workload.models=[chatglm3-6b]",
    "hardware.gpu_count=2",
)


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The real command, started from `folder`, without W&B; nothing may be left there."""
    before = sorted(folder.iterdir())
    done = subprocess.run(
        [sys.executable, str(COMMAND), *arguments, "tracking=none"],
        cwd=folder,
        env=os.environ | {"COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert sorted(folder.iterdir()) == before
    return done


def runs_below(results: Path) -> dict[str, int]:
    """Run folders and when their summaries were written."""
    return {
        str(path.parent.relative_to(results)): path.stat().st_mtime_ns
        for path in results.glob("*/*/summary.json")
    }


def refused(*words: str) -> str:
    """What the command would say."""
    with pytest.raises(BAD_INPUT) as raised, composed(*words) as composer:
        run.run(composer)
    return sentence(raised.value, words)
