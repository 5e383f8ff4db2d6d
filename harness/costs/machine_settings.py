"""Settings of a machine's configuration that no machine has."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from harness.config.paths import PROFILES
from harness.costs.kernels import tables
from harness.costs.profiles import require_roofline

LEAST = {
    "engine_start_s": 0,
    "replica_start_s": 0,
    "state_requests": 0,
    "kv_bytes": 1,
    "block_tokens": 1,
    "window_at_tokens": 1,
    "weights_bytes_per_s": 1,
}


def refuse_settings(machine: Mapping[str, Any]) -> None:
    """Raise ValueError for arguments of `ProfileCosts` that no machine has.

    A number out of range, or a folder of something else than profiles.
    """
    require_roofline(PROFILES / machine["profile_dir"], machine["profile_dir"])
    for name, least in LEAST.items():
        value = machine[name]
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"hardware.{name} is {value}, it must be at least {least}, or null")
    for name in ("scale_seconds", "scale_prompt_seconds"):
        if not 0.0 < machine[name] < math.inf:
            raise ValueError(f"hardware.{name} is {machine[name]}, it must be above 0")
    number_bytes = machine["kv_number_bytes"]
    if number_bytes not in (None, 1, 2):
        raise ValueError(f"hardware.kv_number_bytes={number_bytes}, it must be 1 or 2, or null")
    if not 0.0 < machine["memory_share"] <= 1.0:
        raise ValueError(f"A memory share lies between 0 and 1, not {machine['memory_share']}.")


def refuse_gpu(
    machine: Mapping[str, Any], measured_on: Collection[str], *, has_kernels: bool
) -> None:
    """Raise ValueError for a GPU of which neither a profile nor kernels are known.

    The folder has profiles of the GPUs in `measured_on`. `has_kernels` says whether the kind of
    engine has costs of this one, where its costs are those of kernels.
    """
    gpu, engine = machine["gpu"], machine["engine"]
    if measured_on and gpu not in measured_on:
        raise ValueError(
            f"hardware.profile={machine['profile_dir']} holds costs of "
            f"{', '.join(sorted(measured_on))}, not of hardware.gpu={gpu}; "
            "hardware.profile=roofline has estimates for any GPU"
        )
    if engine.costs == "kernels" and not has_kernels:
        raise ValueError(
            f"hardware.engine={engine.name} has kernels of {', '.join(tables())}, not of "
            f"hardware.gpu={gpu}; hardware.roofline=true takes formulas in their place"
        )
