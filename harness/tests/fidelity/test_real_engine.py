"""Runs on a real engine beside simulated ones: what is compared."""

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.fidelity.real_engine import AIMS, Setting, compare, main  # noqa: E402


def test_a_comparison_by_hand() -> None:
    """Measured 1 and 3, simulated 2.1: 5% off; each is 67% and 200% from the other."""
    setting = Setting("tiny", "vllm", "offline", 10, None, 1.0)
    runs = [dict.fromkeys(AIMS, value) for value in (1.0, 3.0)]
    rows = compare(setting, runs, dict.fromkeys(AIMS, 2.1))
    assert [row["figure"] for row in rows] == list(AIMS)
    assert rows[0]["error"] == pytest.approx(0.05)
    assert rows[0]["noise"] == pytest.approx((2 / 3 + 2) / 2)
    assert rows[0]["within"]


def test_noise_needs_two_repetitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert main(["--repeats", "1", "--out", str(out)]) == 2
    assert "--repeats=1" in capsys.readouterr().err
    assert not out.exists()
