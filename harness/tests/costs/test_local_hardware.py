"""Hardware as a driver describes it."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.costs.local_hardware import known_gpu, local_hardware


def driver(name: str, gib: int, count: int) -> Any:
    """A driver that finds so many GPUs of one type."""
    return SimpleNamespace(
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: name,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=gib << 30),
    )


def test_memory_tells_gpus_of_one_name_apart() -> None:
    found = local_hardware(driver("NVIDIA A100-SXM4-80GB", 79, 8))
    assert (found["gpu"], found["gpu_count"], found["nvlink_island"]) == ("A100-80G", 8, 8)
    assert local_hardware(driver("NVIDIA A100-SXM4-40GB", 40, 2))["gpu"] == "A100-40G"
    assert found["profile"] == "roofline"


@pytest.mark.parametrize("nvml", [None, driver("none", 0, 0)])
def test_without_gpus_the_cores_are_slots(nvml: Any) -> None:
    found = local_hardware(nvml)
    assert found["gpu"] == "CPU"
    assert isinstance(found["gpu_count"], int)
    assert found["gpu_count"] >= 1


def test_a_gpu_that_nobody_knows_is_named() -> None:
    assert known_gpu("Voodoo 2") is None
    with pytest.raises(ValueError, match="Voodoo 2 is not in"):
        local_hardware(driver("Voodoo 2", 8, 1))
