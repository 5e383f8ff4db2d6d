"""Runs on a real engine beside simulated ones: what is compared."""

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.tools.fidelity.real_engine import main  # noqa: E402


def test_noise_needs_two_repetitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert main(["--repeats", "1", "--out", str(out)]) == 2
    assert "--repeats=1" in capsys.readouterr().err
    assert not out.exists()
