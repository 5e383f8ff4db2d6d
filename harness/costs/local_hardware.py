"""What this machine computes on, for `hardware=local`."""

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from harness.config.paths import PROFILES
from harness.costs.gpu_facts import gpu_facts, load_gpus
from harness.costs.nvml import gpu_memory_bytes, gpu_name, open_nvml

CPU: Mapping[str, object] = {"gpu": "CPU", "nvlink_island": 1, "profile": "cpu_vllm"}


def known_gpu(name: str, memory_bytes: int | None = None) -> str | None:
    """The GPU of gpus.json in a driver's name, of several that of the nearest memory; or None."""
    words = set(re.split(r"[\s-]+", name.upper()))
    found = [known for known in load_gpus() if known.split("-")[0].upper() in words]
    if not found or memory_bytes is None:
        return found[0] if found else None
    return min(found, key=lambda known: abs(gpu_facts(known).memory_bytes - memory_bytes))


def called(name: str, memory_bytes: int | None = None) -> str:
    """What we call the GPU of a driver's name: as the list does, else the driver."""
    return known_gpu(name, memory_bytes) or re.sub(r"\W+", "-", name).strip("-")


def measured_profile(gpu: str) -> str:
    """Folder of what was measured on such a GPU of one's own."""
    return f"{gpu.lower()}_vllm"


def local_hardware(nvml: Any | None) -> dict[str, object]:
    """Fields of `hardware`: the GPUs of the driver, or without any the cores as CPU slots.

    Costs are those measured on such a GPU where they are there, else the roofline's. Raises
    ValueError for a GPU that is not known.
    """
    count = 0 if nvml is None else int(nvml.nvmlDeviceGetCount())
    if nvml is None or not count:
        return {**CPU, "gpu_count": os.cpu_count() or 1}
    name = str(gpu_name(nvml))
    gpu = called(name, gpu_memory_bytes(nvml))
    measured = measured_profile(gpu)
    is_measured = (PROFILES / measured).is_dir()
    if not is_measured and gpu not in load_gpus():
        raise ValueError(
            f"{name} is not in harness/profiles/gpus.json: make smoke-gpu measures it first"
        )
    facts = gpu_facts(gpu, PROFILES / measured)
    return {
        "gpu": gpu,
        "gpu_count": count,
        "nvlink_island": min(count, facts.nvlink_gpus),
        "profile": measured if is_measured else "roofline",
    }


@cache
def here() -> Mapping[str, object]:
    """The same for this machine, looked up once."""
    return local_hardware(open_nvml())
