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
    Coefficients,
    Profile,
    read_profiles,
)
from harness.costs.roofline import (
    Calibration,
    allreduce_bytes_per_token,
    compute_s_per_token,
    floor_s,
    forward_costs,
    query_group,
    roofline_kv_blocks,
    roofline_load_s,
    roofline_profile,
    touched_bytes,
)

Floats = NDArray[np.float64]

KNOTS = (1, 4, 8, 32, 64, 128, 256, 384, 512)
SLOPES_AT = 256  # requests at which the slopes of a profile are read: well measured there
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
    found = replace(start, memory_efficiency=_median(single, _memory_efficiency))
    found = replace(found, flops_efficiency=_median(single, _flops_efficiency))
    found = replace(
        found,
        launch_s_per_layer={
            size: _launch_s([pair for pair in measured if pair.tensor_parallel == size], found)
            for size in found.launch_s_per_layer
        },
    )
    several = [profile for profile in measured if profile.tensor_parallel > 1]
    found = replace(
        found, link_efficiency=_by_size(several, lambda pair: _link_efficiency(pair, found))
    )
    plain = [pair for pair in measured if _group(pair) == 1.0]
    found = replace(found, kv_efficiency=_median(plain, _kv_efficiency))
    shared = [pair for pair in measured if _group(pair) > 1.0]
    exponent = _median(shared, lambda pair: _group_exponent(pair, found)) if shared else 0.0
    found = replace(found, kv_group_exponent=exponent)
    found = replace(found, attended_factor=_median(measured, _attended_factor))
    found = replace(
        found, request_share=_median(measured, lambda pair: _request_share(pair, found))
    )
    return replace(found, **_load(profiles), activation_bytes=_by_size(profiles, _activation_bytes))


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
            size: _overheads([pair for pair in measured if pair.tensor_parallel == size])
            for size in sizes
        },
        load_bytes_per_s=1.0,
        load_start_s={},
        activation_bytes={},
        error={},
    )


def _overheads(pairs: list[Profile]) -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
    """Median CPU components of some pairs, per phase, at `KNOTS`."""
    found: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {"prefill": {}, "decode": {}}
    for phase, components in found.items():
        for part in PARTS[1:]:
            of_pairs = [(pair, getattr(pair, phase)[part]) for pair in pairs]
            components[part] = {
                name: tuple(np.median([_at(*one, name) for one in of_pairs], axis=0))
                for name in of_pairs[0][1]
            }
    return found


def _at(profile: Profile, component: Coefficients, name: str) -> Floats:
    return np.interp(KNOTS, profile.knots_requests, component[name])


def _forward(profile: Profile, phase: str, name: str, requests: int) -> float:
    component: Coefficients = getattr(profile, phase)["forward"]
    return float(np.interp(requests, profile.knots_requests, component[name]))


def _memory_efficiency(pair: Profile) -> float:
    """Reached when one request decodes alone, which reads all weights for one token."""
    ideal_s = touched_bytes(_model(pair), np.ones(1))[0] / gpu_facts(pair.gpu).memory_bytes_per_s
    return float(ideal_s) / _forward(pair, "decode", "base_s", 1)


def _flops_efficiency(pair: Profile) -> float:
    model, gpu = _model(pair), gpu_facts(pair.gpu)
    flops = 2.0 * model.layers * model.layer_matmul_parameters
    return flops / gpu.fp16_flops_per_s / _forward(pair, "prefill", "per_padded_token_s", 1)


def _launch_s(pairs: list[Profile], found: Calibration) -> float:
    """Seconds the CPU takes to launch a layer, seen where reading weights is not the limit.

    The median over pairs that read their weights in less than 3/4 of the time; if there are none,
    the least time per layer, which launching cannot exceed.
    """
    per_layer = [_forward(pair, "decode", "base_s", 1) / _model(pair).layers for pair in pairs]
    launching = [
        layer_s
        for layer_s, pair in zip(per_layer, pairs, strict=True)
        if _read_s(pair, found) < 0.75 * layer_s * _model(pair).layers
    ]
    return float(np.median(launching)) if launching else min(per_layer)


def _read_s(pair: Profile, found: Calibration) -> float:
    neutral = replace(found, launch_s_per_layer={pair.tensor_parallel: 0.0})
    model, gpu = _model(pair), gpu_facts(pair.gpu)
    return float(floor_s(model, gpu, pair.tensor_parallel, neutral, np.ones(1))[0])


def _link_efficiency(pair: Profile, found: Calibration) -> float:
    """From what a token costs beyond its computation."""
    model, gpu = _model(pair), gpu_facts(pair.gpu)
    compute_s = compute_s_per_token(model, gpu, pair.tensor_parallel, found)
    beyond_s = _forward(pair, "prefill", "per_padded_token_s", 1) - compute_s
    ideal_s = allreduce_bytes_per_token(model, pair.tensor_parallel) / gpu.nvlink_bytes_per_s
    return ideal_s / max(beyond_s, ideal_s)


def _context_ratio(pair: Profile) -> float:
    """Measured seconds per context token over those of reading its KV once at full rate."""
    kv_bytes = _model(pair).kv_bytes_per_gpu(pair.tensor_parallel)
    ideal_s = kv_bytes / gpu_facts(pair.gpu).memory_bytes_per_s
    return _forward(pair, "decode", "per_context_s", SLOPES_AT) / ideal_s


def _kv_efficiency(pair: Profile) -> float:
    return 1.0 / _context_ratio(pair)


def _group(pair: Profile) -> float:
    return query_group(_model(pair), pair.tensor_parallel)


def _group_exponent(pair: Profile, found: Calibration) -> float:
    return float(np.log(_context_ratio(pair) * found.kv_efficiency) / np.log(_group(pair)))


def _attended_factor(pair: Profile) -> float:
    model = _model(pair)
    flops = 4.0 * model.layers * model.hidden_size / pair.tensor_parallel
    ideal_s = flops / gpu_facts(pair.gpu).fp16_flops_per_s
    return _forward(pair, "prefill", "per_attended_s", 1) / ideal_s


def _request_share(pair: Profile, found: Calibration) -> float:
    """From what the largest batch takes beyond reading weights and computing."""
    model, gpu, size = _model(pair), gpu_facts(pair.gpu), pair.tensor_parallel
    most = KNOTS[-1]
    without_s = forward_costs(model, gpu, size, found)[0]["base_s"][-1]
    beyond_s = _forward(pair, "decode", "base_s", most) - without_s
    return max(0.0, beyond_s / (most * compute_s_per_token(model, gpu, size, found)))


def _load(profiles: Iterable[Profile]) -> dict[str, Any]:
    """Loading as a start per group size and one rate: least squares over the later machine."""
    loaded = [profile for profile in profiles if profile.load_source.startswith(LATER_MACHINE)]
    sizes = sorted({profile.tensor_parallel for profile in loaded})
    starts = np.array([[pair.tensor_parallel == size for size in sizes] for pair in loaded], float)
    gigabytes = np.array([_model(pair).weight_bytes / 1e9 for pair in loaded])
    found = np.linalg.lstsq(
        np.column_stack([starts, gigabytes]), np.array([pair.load_s for pair in loaded]), rcond=None
    )[0]
    return {
        "load_bytes_per_s": 1e9 / float(found[-1]),
        "load_start_s": dict(zip(sizes, map(float, found[:-1]), strict=True)),
    }


def _activation_bytes(pair: Profile) -> float | None:
    """What is left of the memory share beside weights and KV; None where KV was not counted."""
    if pair.kv_blocks is None:
        return None
    model = _model(pair)
    block_bytes = model.kv_bytes_per_gpu(pair.tensor_parallel) * pair.block_tokens
    memory_bytes = gpu_facts(pair.gpu).memory_bytes * MEASURED_MEMORY_SHARE
    weight_bytes = model.weight_bytes / pair.tensor_parallel
    return memory_bytes - weight_bytes - pair.kv_blocks * block_bytes


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
