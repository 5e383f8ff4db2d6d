import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.calibrate.sweep import design  # noqa: E402


def test_the_design_fits_the_kv() -> None:
    for most in (2000, 12_800):
        runs = design(most)
        assert runs
        assert all(sum(run.prompts) < most for run in runs)
    assert {run.gap for run in design(12_800)} == {0, 2}
