"""Schema of a run: what a configuration may say at its top level.

Group contents (`engine`, `hardware`, `workload`, `policy`, `system`) are checked by the
constructors they name. No field has a default here: values live in the YAML files.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class HardwareConfig:
    """A machine."""

    gpu: str = MISSING
    """GPU name in harness/profiles/gpus.json."""
    gpu_count: int = MISSING
    """Number of GPUs."""
    nvlink_island: int = MISSING
    """Consecutive GPUs joined by NVLink."""
    memory_share: float = MISSING
    """Share of GPU memory for weights and KV, 0..1."""
    profile: str = MISSING
    """Folder of fitted cost profiles under harness/profiles."""


@dataclass
class RunConfig:
    """One cell, or with `matrix` many."""

    engine: dict[str, Any] = field(default_factory=dict)
    """The engine: `_target_` and its options."""
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    """The machine."""
    workload: dict[str, Any] = field(default_factory=dict)
    """Workload recipe: `_target_` and its options."""
    policy: dict[str, Any] = field(default_factory=dict)
    """Scheduling policy: `_target_` and its constants."""
    system: dict[str, Any] = field(default_factory=dict)
    """Name, dispatch and placement policy."""
    name: str = MISSING
    """Folder of the results, and name of the run."""
    seed: int = MISSING
    """Of the workload and of the planner."""
    matrix: dict[str, Any] = field(default_factory=dict)
    """Axis -> values; an axis is a config group or a dotted key. Cells are the product."""
    compare: dict[str, Any] = field(default_factory=dict)
    """`axis` and the `reference` value on it that the printed table normalises by."""
    claims: list[str] = field(default_factory=list)
    """Claims that the results feed."""
    expected_minutes: float = MISSING
    """On 2 cores."""
    tracking: str = MISSING
    """wandb | none."""
    results: str = MISSING
    """Folder for run folders."""
    workers: int = MISSING
    """Cells that run at the same time; with 1 no Ray is started."""
    record_iterations: bool = MISSING
    """Whether to write iterations.parquet."""
