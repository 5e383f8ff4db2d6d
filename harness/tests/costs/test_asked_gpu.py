from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.costs.asked_gpu import asked, facts_of, keep_facts
from harness.costs.gpu_facts import gpu_facts

GIVEN = {
    "memory_bytes": 8e9,
    "fp16_flops_per_s": 1e12,
    "memory_bytes_per_s": 1e11,
    "pcie_bytes_per_s": 1e10,
}


class NoAnswer(Exception):  # noqa: N818 - stands for the library's
    """The driver does not say."""


def driver(**changes: Any) -> Any:
    """An A100-SXM4-80GB, as its driver describes it."""
    said: dict[str, Any] = {
        "NVMLError": NoAnswer,
        "NVML_CLOCK_MEM": "memory",
        "NVML_CLOCK_SM": "cores",
        "nvmlDeviceGetHandleByIndex": lambda gpu: gpu,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * 2**30),
        "nvmlDeviceGetMaxClockInfo": lambda handle, of: {"memory": 1593, "cores": 1410}[of],
        "nvmlDeviceGetMemoryBusWidth": lambda handle: 5120,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (8, 0),
        "nvmlDeviceGetNumGpuCores": lambda handle: 6912,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 4,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
    }
    return SimpleNamespace(**{**said, **changes})


def test_a_driver_says_what_the_data_sheet_states() -> None:
    sheet, said = gpu_facts("A100-80G"), asked(driver())
    assert said["memory_bytes"] == sheet.memory_bytes
    for name in ("fp16_flops_per_s", "memory_bytes_per_s", "pcie_bytes_per_s"):
        assert said[name] == pytest.approx(getattr(sheet, name), rel=0.01)


def test_what_is_given_comes_first_and_what_is_missing_is_named() -> None:
    unknown = driver(nvmlDeviceGetCudaComputeCapability=lambda handle: (99, 0))
    with pytest.raises(ValueError, match=r"give --gpu-fp16-flops-per-s$"):
        facts_of("X", {}, unknown)
    assert facts_of("X", {"fp16_flops_per_s": 5.0}, unknown).fp16_flops_per_s == 5.0
    assert facts_of("A100-80G", {}, None) == gpu_facts("A100-80G")
    with pytest.raises(ValueError, match="--gpu-memory-bytes, "):
        facts_of("X", {}, None)


def test_a_folder_keeps_the_facts_of_a_gpu_of_no_list(tmp_path: Path) -> None:
    facts = facts_of("X", GIVEN, None)
    keep_facts(tmp_path, facts)
    assert gpu_facts("X", tmp_path) == facts
    with pytest.raises(ValueError, match="No GPU is called 'X'"):
        gpu_facts("X")
