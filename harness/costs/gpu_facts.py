"""Published facts of the GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import STRICT, Count, NotNegative, Positive, read_json, read_named

GPUS = PROFILES / "gpus.json"
OWN_FACTS = "gpu.json"  # beside the profiles of a folder: facts of the GPU they were measured on


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU type. Link rates are of one direction: half the total a data sheet states.

    NVLink joins `nvlink_gpus` of a machine as such machines are usually built: 8 on boards with
    NVSwitch, 2 with a bridge, 1 where there is none; larger groups send over PCIe.
    `memory_bytes` is the nominal size in GiB; a driver keeps about 1% of it, and `usable_bytes` is
    the total that it reports to programs, None where that is not known. `fp16_flops_per_s` is
    dense, with a multiply-add counted as two; `fp8_flops_per_s` and `fp4_flops_per_s` are the same
    for numbers of 8 and 4 bits, None where the GPU has no unit for them. `kernels_of` names the GPU
    whose table of kernels stands for this one, and `kernels_links` says whether its links do, too.
    """

    name: str
    memory_bytes: Count
    fp16_flops_per_s: Positive
    memory_bytes_per_s: Positive
    nvlink_bytes_per_s: NotNegative
    nvlink_gpus: Count
    pcie_bytes_per_s: Positive
    source: str
    fp8_flops_per_s: Positive | None = None
    fp4_flops_per_s: Positive | None = None
    usable_bytes: Count | None = None
    kernels_of: str = ""
    kernels_links: bool = False

    __pydantic_config__ = STRICT


@cache
def load_gpus() -> Mapping[str, GpuFacts]:
    """All known GPUs by name."""
    return read_named(GPUS, GpuFacts)


def gpu_facts(name: str, folder: Path | None = None) -> GpuFacts:
    """Facts of one GPU, those of a profile folder first. ValueError if it is unknown."""
    gpus = {**load_gpus(), **(_own_facts(folder) if folder else {})}
    if name not in gpus:
        raise ValueError(unknown_name("GPU", name, gpus))
    return gpus[name]


@cache
def _own_facts(folder: Path) -> Mapping[str, GpuFacts]:
    """The GPU that a folder describes itself; none where it does not."""
    path = folder / OWN_FACTS
    if not path.is_file():
        return {}
    facts = read_json(path, GpuFacts)
    return {facts.name: facts}
