"""The command that measures how long backends take to start."""

import pytest

from harness.tools.fidelity.cold_starts import main


def test_a_missing_daemon_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "unix:///nonexistent/docker.sock"]) == 2
    assert "no docker daemon answers at unix:///nonexistent/docker.sock" in capsys.readouterr().err
