"""What vLLM computes on here. A module that starts an engine imports this before vLLM."""

import os

# Read by vLLM when it is imported: one process, no hub, no statistics sent, errors only.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from vllm import __version__ as vllm_version
from vllm.platforms import current_platform


def has_gpus() -> bool:
    """Whether vLLM computes on GPUs here."""
    return not current_platform.is_cpu()


def native_dtype() -> str:
    """bfloat16, or float32 on a CPU that has no instructions for it.

    Such a CPU takes 7 times as long for a product of matrices in bfloat16 as in float32 (an AMD
    EPYC with AVX2).
    """
    if has_gpus() or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "bfloat16"
    return "float32"


def engine_name(dtype: str | None = None) -> str:
    """Version of vLLM, what it computes on and in which numbers."""
    device = current_platform.get_device_name() or "CPU"
    return f"vLLM {vllm_version}, {device}, {dtype or native_dtype()}"
