import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.tools.calibrate.__main__ import main  # noqa: E402


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "tinny"]) == 2
    assert "tinny" in capsys.readouterr().err
