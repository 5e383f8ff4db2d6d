"""Calibrates the roofline on the measured profiles: medians over pairs of (model, size).

Its error bar leaves out, in turn, all models of one architecture, predicts their iterations, and
compares with their measured profiles over the batches that serving meets.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.costs.gpus import gpu_facts
from harness.costs.iteration import expand, iteration_seconds
from harness.costs.model import PARTS
from harness.costs.models import ModelFacts, model_facts
from harness.costs.profiles import (
    LATER_MACHINE,
    MEASURED_MEMORY_SHARE,
    Profile,
    read_profiles,
)
from harness.costs.roofline import (
    Calibration,
    roofline_kv_blocks,
    roofline_load_s,
    roofline_profile,
)
from harness.fitting.roofline_readings import (
    KNOTS,
    activation_bytes,
    attended_factor,
    flops_efficiency,
    group_exponent,
    kv_efficiency,
    launch_s,
    link_efficiency,
    loading,
    memory_efficiency,
    overheads,
    query_group_of,
    request_share,
)

Floats = NDArray[np.float64]

# Where errors are taken: decodes of requests x context each, prefills of prompts x length each.
DECODES = tuple(itertools.product((1, 8, 32, 64, 128, 256, 512), (20, 100, 300, 1000)))
PREFILLS = tuple(itertools.product((1, 2, 4, 8, 16, 32), (16, 64, 128)))


def calibration_file(folder: Path) -> dict[str, Any]:
    """Content of `roofline.json` for the profiles of a folder."""
    profiles = tuple(read_profiles(folder).values())
    return as_json(replace(calibrate(profiles), error=left_out_errors(profiles)))


def as_json(calibration: Calibration) -> dict[str, Any]:
    """Content of a calibration's file; what says the same as its absence is left out."""
    content = asdict(calibration)
    if not calibration.slowdown:
        del content["slowdown"], content["pcie_efficiency"]
    return as_rounded(content)  # type: ignore[no-any-return]


def calibrate(profiles: Iterable[Profile]) -> Calibration:
    """The calibration from measured profiles; its `error` is empty.

    Each number is fitted with those before it in place, from the pairs where it can be seen.
    """
    profiles = tuple(profiles)
    measured = [profile for profile in profiles if profile.decode]
    start = _start(measured)
    single = [profile for profile in measured if profile.tensor_parallel == 1]
    found = replace(start, memory_efficiency=_median(single, memory_efficiency))
    found = replace(found, flops_efficiency=_median(single, flops_efficiency))
    found = replace(
        found,
        launch_s_per_layer={
            size: launch_s([pair for pair in measured if pair.tensor_parallel == size], found)
            for size in found.launch_s_per_layer
        },
    )
    several = [profile for profile in measured if profile.tensor_parallel > 1]
    found = replace(
        found, link_efficiency=_by_size(several, lambda pair: link_efficiency(pair, found))
    )
    plain = [pair for pair in measured if query_group_of(pair) == 1.0]
    found = replace(found, kv_efficiency=_median(plain, kv_efficiency))
    shared = [pair for pair in measured if query_group_of(pair) > 1.0]
    exponent = _median(shared, lambda pair: group_exponent(pair, found)) if shared else 0.0
    found = replace(found, kv_group_exponent=exponent)
    found = replace(found, attended_factor=_median(measured, attended_factor))
    found = replace(found, request_share=_median(measured, lambda pair: request_share(pair, found)))
    return replace(
        found, **loading(profiles), activation_bytes=_by_size(profiles, activation_bytes)
    )


def _start(measured: list[Profile]) -> Calibration:
    """Neutral values, and what is read off directly: the CPU components."""
    sizes = sorted({profile.tensor_parallel for profile in measured})
    return Calibration(
        source="overheads and efficiencies: medians over the measured profiles of "
        f"{measured[0].gpu}, {measured[0].engine} ({measured[0].source})",
        engine=measured[0].engine,
        block_tokens=measured[0].block_tokens,
        knots_requests=KNOTS,
        memory_efficiency=1.0,
        flops_efficiency=1.0,
        kv_efficiency=1.0,
        kv_group_exponent=0.0,
        attended_factor=1.0,
        request_share=0.0,
        launch_s_per_layer=dict.fromkeys(sizes, 0.0),
        link_efficiency={},
        overheads={
            size: overheads([pair for pair in measured if pair.tensor_parallel == size])
            for size in sizes
        },
        load_bytes_per_s=1.0,
        load_start_s={},
        activation_bytes={},
        error={},
    )


def left_out_errors(profiles: Iterable[Profile]) -> dict[str, float]:
    """Relative errors for models of an architecture that the calibration did not see."""
    profiles = tuple(profiles)
    errors: dict[str, list[float]] = {"prefill": [], "decode": [], "load": [], "kv_blocks": []}
    for held_out in sorted({_architecture(profile) for profile in profiles}):
        seen = calibrate(p for p in profiles if _architecture(p) != held_out)
        for pair in (p for p in profiles if _architecture(p) == held_out):
            _add_errors(errors, pair, seen)
    found = {}
    for name, values in errors.items():
        found[f"{name}_median"] = float(np.median(values))
        found[f"{name}_p95"] = float(np.quantile(values, 0.95))
    return found


def _add_errors(errors: dict[str, list[float]], pair: Profile, seen: Calibration) -> None:
    model, gpu, size = _model(pair), gpu_facts(pair.gpu), pair.tensor_parallel
    if pair.decode:
        guessed = batch_seconds(roofline_profile(model, gpu, size, seen))
        for phase, measured_s in batch_seconds(pair).items():
            errors[phase] += list(np.abs(guessed[phase] / measured_s - 1.0))
    if pair.load_s is not None and pair.load_source.startswith(LATER_MACHINE):
        errors["load"].append(abs(roofline_load_s(model, size, seen) / pair.load_s - 1.0))
    if pair.kv_blocks is not None:
        blocks = roofline_kv_blocks(model, gpu, size, seen, MEASURED_MEMORY_SHARE)
        errors["kv_blocks"].append(abs(blocks / pair.kv_blocks - 1.0))


def batch_seconds(profile: Profile) -> dict[str, Floats]:
    """Seconds of the iterations `PREFILLS` and `DECODES` under a profile."""
    table = expand(profile, PARTS)
    prefill_s = [
        iteration_seconds(table, n, n * s, n * s, float(n * s * s), 0, 0, 0) for n, s in PREFILLS
    ]
    decode_s = [iteration_seconds(table, 0, 0, 0, 0.0, n, n * c, c) for n, c in DECODES]
    return {"prefill": np.array(prefill_s), "decode": np.array(decode_s)}


def _architecture(profile: Profile) -> tuple[int, ...]:
    model = _model(profile)
    return (model.layers, model.hidden_size, model.intermediate_size, model.kv_heads)


def _model(profile: Profile) -> ModelFacts:
    return model_facts(profile.model)


def _median(pairs: Iterable[Profile], value: Callable[[Profile], float | None]) -> float:
    values = [found for found in map(value, pairs) if found is not None]
    return float(np.median(values))


def _by_size(
    pairs: Iterable[Profile], value: Callable[[Profile], float | None]
) -> Mapping[int, float]:
    pairs = tuple(pairs)
    sizes = sorted({pair.tensor_parallel for pair in pairs})
    return {size: _median([p for p in pairs if p.tensor_parallel == size], value) for size in sizes}


def as_rounded(value: Any) -> Any:
    """The same with text keys and six significant digits."""
    if isinstance(value, dict):
        return {str(key): as_rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
