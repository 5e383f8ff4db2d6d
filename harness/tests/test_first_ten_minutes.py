import os
import subprocess
from pathlib import Path

import pytest

from harness.config.paths import ROOT

SCRIPT = Path(__file__).with_name("first_ten_minutes.sh")


@pytest.mark.slow
@pytest.mark.skipif(
    "NEWCOMER" not in os.environ,
    reason="takes minutes: NEWCOMER=1 runs it, make newcomer all of it",
)
@pytest.mark.skipif(
    not (ROOT / ".venv").exists() or not (ROOT / ".git").exists(),
    reason="there is no environment or no history to try a newcomer's commands with",
)
def test_the_readmes_commands_leave_nothing_behind() -> None:
    done = subprocess.run([SCRIPT, "--light"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
