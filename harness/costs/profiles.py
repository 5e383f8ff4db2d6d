"""A cost profile as it is stored: coefficients at knots, source, error, range of validity."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.costs.gpu_facts import OWN_FACTS
from harness.costs.sm_shares import SmShares, sm_shares_from

Coefficients = Mapping[str, tuple[float, ...]]
Phase = Mapping[str, Coefficients]

MEASURED_MEMORY_SHARE = 0.9  # of GPU memory, at which the KV blocks of a profile were counted

CALIBRATION = "roofline.json"  # beside the profiles of a folder; what is in no profile follows it

# Loads were measured on two machines; 2503.16893 sec. 5 ran on the later one.
LATER_MACHINE = "second machine (8 x A100-80G)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Costs of one model at one tensor-parallel size.

    `prefill` and `decode` map a component (forward, prepare, sample, other) to coefficients
    (`base_s`, `per_context_s`, ...), each a tuple along `knots_requests`; both are empty where
    iterations were not measured, as `load_s` and `kv_blocks` are None. `step_s` along
    `step_knots_tokens` is `IterationTable.prefill_step_s`, part of the forward pass. `valid` holds
    the smallest and largest measured value of each quantity, `error` the relative errors.
    `sm_shares` is None where iterations were measured on all SMs only.
    """

    model: str
    gpu: str
    engine: str
    kind: str
    source: str
    tensor_parallel: int
    knots_requests: tuple[int, ...]
    prefill: Phase
    decode: Phase
    step_knots_tokens: tuple[int, ...]
    step_s: tuple[float, ...]
    load_s: float | None
    load_source: str
    kv_blocks: int | None
    block_tokens: int
    valid: Mapping[str, tuple[int, int]]
    error: Mapping[str, float]
    sm_shares: SmShares | None = None


@cache
def read_profiles(folder: Path) -> Mapping[tuple[str, int], Profile]:
    """All profiles of a folder by model and tensor-parallel size.

    Raises ValueError if the folder does not exist.
    """
    if not folder.is_dir():
        raise ValueError(f"There is no folder of cost profiles {str(folder)!r}.")
    found: dict[tuple[str, int], Profile] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name not in (CALIBRATION, OWN_FACTS):
            raw = json.loads(path.read_text(encoding="utf-8"))
            for size, entry in raw.pop("tensor_parallel").items():
                found[raw["model"], int(size)] = profile_from(raw, int(size), entry)
    return found


def profile_from(
    shared: Mapping[str, Any], tensor_parallel: int, entry: Mapping[str, Any]
) -> Profile:
    """Profile of one size from what a file says of all sizes (`shared`) and of this one.

    The knots are those of the size where it has its own.
    """
    knots = entry["knots_requests"] if "knots_requests" in entry else shared["knots_requests"]
    return Profile(
        model=shared["model"],
        gpu=shared["gpu"],
        engine=shared["engine"],
        kind=shared["kind"],
        source=shared["source"],
        tensor_parallel=tensor_parallel,
        knots_requests=tuple(knots),
        prefill=_phase(entry.get("prefill", {})),
        decode=_phase(entry.get("decode", {})),
        step_knots_tokens=tuple(entry.get("step_knots_tokens", (0,))),
        step_s=tuple(entry.get("step_s", (0.0,))),
        load_s=entry.get("load_s"),
        load_source=entry.get("load_source", ""),
        kv_blocks=entry.get("kv_blocks"),
        block_tokens=shared["block_tokens"],
        valid={name: (low, high) for name, (low, high) in entry.get("valid", {}).items()},
        error=entry.get("error", {}),
        sm_shares=sm_shares_from(entry.get("sm_share", {})),
    )


def _phase(raw: Mapping[str, Mapping[str, list[float]]]) -> Phase:
    return {
        component: {name: tuple(values) for name, values in coefficients.items()}
        for component, coefficients in raw.items()
    }
