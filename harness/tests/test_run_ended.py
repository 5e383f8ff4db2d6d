"""A command that is told to end has a code and a line of its own, whenever it is told."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from harness import run
from harness.runs import ending
from harness.tests.support.command import COMMAND
from harness.tests.support.processes import HANGS_S


def _made_plain() -> None:
    """As compiled code does, which only sees that some signal has come."""
    with suppress(KeyboardInterrupt):
        ending.terminate()
    raise KeyboardInterrupt


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        (_interrupt, 130, "interrupted"),
        (ending.terminate, 143, "ended by SIGTERM"),
        (_made_plain, 143, "ended by SIGTERM"),
    ],
)
def test_an_interrupt_has_its_own_code_and_line(
    ends: Callable[[], None],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ending.by_sigterm.clear()
    monkeypatch.setattr("hydra.main", lambda **_: ends())
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert run.main() == code
    assert capsys.readouterr().err == f"{said}; finished cells are kept\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"), [("SIGINT", "interrupted"), ("SIGTERM", "ended by SIGTERM")]
)
def test_an_interrupt_while_modules_are_imported_is_a_line_too(
    tmp_path: Path, kind: str, said: str
) -> None:
    program = f"""
import os, runpy, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "hydra":
            os.kill(os.getpid(), signal.{kind})
sys.meta_path.insert(0, Interrupts())
sys.argv = ["run.py"]
runpy.run_path({str(COMMAND)!r}, run_name="__main__")
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 128 + signal.Signals[kind]
    assert done.stderr == f"{said}; finished cells are kept\n"
