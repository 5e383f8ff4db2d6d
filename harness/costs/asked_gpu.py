"""Facts of a GPU that is in no list of ours, asked of its driver or given.

A profile folder keeps them beside the profiles (`gpu.json`), so that it is whole by itself. Rates
follow from clocks and widths, as data sheets count them; they cost only what was not measured.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from harness.costs.gpu_facts import OWN_FACTS, GpuFacts, load_gpus
from harness.costs.nvml import gpu_memory_bytes

# Dense fp16 FLOPs of one core in one clock, by compute capability: what the data sheets of V100,
# T4, A100, A10, L40S and H100 state over their cores and boost clocks.
FLOPS_PER_CORE = {(7, 0): 16, (7, 5): 16, (8, 0): 32, (8, 6): 8, (8, 9): 8, (9, 0): 32}
PCIE_LANE_BYTES_PER_S = {3: 1e9, 4: 2e9, 5: 4e9}

GIVEN = ("memory_bytes", "fp16_flops_per_s", "memory_bytes_per_s", "pcie_bytes_per_s")
"""What a driver may not say and a user may give."""


def asked(nvml: Any) -> dict[str, float]:
    """What the driver says of the first GPU; a fact that it does not know is left out."""
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    facts: dict[str, float] = {"memory_bytes": gpu_memory_bytes(nvml)}
    readings = {
        "memory_bytes_per_s": _memory_rate,
        "fp16_flops_per_s": _flops,
        "pcie_bytes_per_s": _pcie_rate,
    }
    for name, reading in readings.items():
        try:
            facts[name] = reading(nvml, handle)
        except (nvml.NVMLError, KeyError):
            continue
    return facts


def _memory_rate(nvml: Any, handle: Any) -> float:
    """Twice the clock over the bus: memory moves data on both edges."""
    clock_hz = 1e6 * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
    return float(2 * clock_hz * nvml.nvmlDeviceGetMemoryBusWidth(handle) / 8)


def _flops(nvml: Any, handle: Any) -> float:
    clock_hz = 1e6 * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    per_core = FLOPS_PER_CORE[tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))]
    return float(per_core * clock_hz * nvml.nvmlDeviceGetNumGpuCores(handle))


def _pcie_rate(nvml: Any, handle: Any) -> float:
    lane = PCIE_LANE_BYTES_PER_S[nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)]
    return float(lane * nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))


def facts_of(name: str, said: Mapping[str, float | None], nvml: Any | None) -> GpuFacts:
    """Facts of a GPU: `said`, of the list, or of the driver. ValueError where one is missing."""
    given = {key: value for key, value in said.items() if value is not None}
    listed = load_gpus().get(name)
    if listed is not None:
        reported = None if "memory_bytes" in given else listed.usable_bytes
        return GpuFacts(**{**asdict(listed), "usable_bytes": reported, **given})
    found = {**(asked(nvml) if nvml is not None else {}), **given}
    if missing := [key for key in GIVEN if key not in found]:
        options = ", ".join(f"--gpu-{key.replace('_', '-')}" for key in missing)
        raise ValueError(f"{name} is in no list, and its driver does not say all: give {options}")
    return GpuFacts(
        name=name,
        memory_bytes=int(found["memory_bytes"]),
        fp16_flops_per_s=found["fp16_flops_per_s"],
        memory_bytes_per_s=found["memory_bytes_per_s"],
        nvlink_bytes_per_s=found["pcie_bytes_per_s"],
        nvlink_gpus=1,
        pcie_bytes_per_s=found["pcie_bytes_per_s"],
        source="asked of its driver, or given",
    )


def keep_facts(folder: Path, facts: GpuFacts) -> None:
    """Write them beside the profiles of a folder, unless the list has the same."""
    if load_gpus().get(facts.name) == facts:
        return
    content = {field.name: getattr(facts, field.name) for field in fields(facts)}
    text = json.dumps(content, sort_keys=True, indent=1) + "\n"
    (folder / OWN_FACTS).write_text(text, encoding="utf-8")
