"""The command that measures how long backends take to start."""

import pytest

from harness.cold_starts import call_seconds, dnn_seconds, main


def test_a_missing_daemon_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "unix:///nonexistent/docker.sock"]) == 2
    assert "no docker daemon answers at unix:///nonexistent/docker.sock" in capsys.readouterr().err


def test_a_module_loads_where_pytorch_is_installed() -> None:
    found = dnn_seconds()
    assert all(seconds > 0 for seconds in found.values())
    assert 0.5 < call_seconds() < 10.0
