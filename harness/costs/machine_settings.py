"""Numbers of a machine's configuration that no machine has."""

import math
from collections.abc import Mapping
from typing import Any

LEAST = {
    "engine_start_s": 0,
    "replica_start_s": 0,
    "state_requests": 0,
    "kv_bytes": 1,
    "block_tokens": 1,
    "window_at_tokens": 1,
    "weights_bytes_per_s": 1,
}


def refuse_numbers(machine: Mapping[str, Any]) -> None:
    """Raise ValueError for a number of the arguments of `ProfileCosts` that no machine has."""
    for name, least in LEAST.items():
        value = machine[name]
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"hardware.{name} is {value}, it must be at least {least}, or null")
    if not 0.0 < machine["scale_seconds"] < math.inf:
        raise ValueError(
            f"hardware.scale_seconds is {machine['scale_seconds']}, it must be above 0"
        )
    number_bytes = machine["kv_number_bytes"]
    if number_bytes not in (None, 1, 2):
        raise ValueError(f"hardware.kv_number_bytes={number_bytes}, it must be 1 or 2, or null")
    if not 0.0 < machine["memory_share"] <= 1.0:
        raise ValueError(f"A memory share lies between 0 and 1, not {machine['memory_share']}.")
