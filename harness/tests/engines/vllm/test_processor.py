"""What vLLM computes on, and in which numbers."""

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
import torch

from harness.engines.vllm import processor
from harness.tests.support.real_engine import engine

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize(("supported", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_numbers_are_those_that_the_cpu_has_instructions_for(
    monkeypatch: pytest.MonkeyPatch, supported: bool, dtype: str
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)
    assert processor.native_dtype() == dtype
    assert engine(dtype=None).about.endswith(f", {dtype}")
    assert engine(dtype="float16").about.endswith(", float16")


def test_a_gpu_computes_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "has_gpus", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert processor.native_dtype() == "bfloat16"
