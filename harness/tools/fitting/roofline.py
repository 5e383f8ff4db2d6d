"""Calibrates the roofline on the measured profiles: medians over pairs of (model, size).

Its error bar leaves out, in turn, all models of one architecture, predicts their iterations, and
compares with their measured profiles over the batches that serving meets. Below, `found` is the
calibration as far as it is known.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.costs.gpu_facts import gpu_facts
from harness.costs.iteration import expand, iteration_seconds
from harness.costs.model import PARTS
from harness.costs.model_facts import model_facts
from harness.costs.profiles import LATER_MACHINE, MEASURED_MEMORY_SHARE, Profile, read_profiles
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
from harness.tools.fitting.stored import rounded

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
    return rounded(content)  # type: ignore[no-any-return]


def calibrate(profiles: Iterable[Profile]) -> Calibration:
    """The calibration from measured profiles; its `error` is empty.

    Each number is fitted with those before it in place, from the pairs where it can be seen.
    """
    profiles = tuple(profiles)
    measured = [profile for profile in profiles if profile.decode]
    single = [pair for pair in measured if pair.tensor_parallel == 1]
    shared = [pair for pair in measured if _query_group(pair) > 1.0]
    several = [pair for pair in measured if pair.tensor_parallel > 1]
    first, sizes = measured[0], {pair.tensor_parallel for pair in measured}
    of_size = {s: [pair for pair in measured if pair.tensor_parallel == s] for s in sizes}
    found = Calibration(
        source="overheads and efficiencies: medians over the measured profiles of "
        f"{first.gpu}, {first.engine} ({first.source})",
        engine=first.engine,
        block_tokens=first.block_tokens,
        knots_requests=KNOTS,
        memory_efficiency=_median(map(_memory_efficiency, single)),
        flops_efficiency=_median(map(_flops_efficiency, single)),
        kv_efficiency=_median(1.0 / _context_ratio(p) for p in measured if _query_group(p) == 1.0),
        kv_group_exponent=0.0,
        attended_factor=_median(map(_attended_factor, measured)),
        request_share=0.0,
        launch_s_per_layer=dict.fromkeys(sizes, 0.0),
        link_efficiency={},
        overheads={size: _overheads(pairs) for size, pairs in of_size.items()},
        **_loading(profiles),
        activation_bytes=_by_size(profiles, _activation_bytes),
        error={},
    )
    found = replace(
        found,
        launch_s_per_layer={size: _launch_s(pairs, found) for size, pairs in of_size.items()},
        link_efficiency=_by_size(several, lambda pair: _link_efficiency(pair, found)),
        kv_group_exponent=_median(_group_exponent(p, found) for p in shared) if shared else 0.0,
    )
    return replace(found, request_share=_median(_request_share(pair, found) for pair in measured))


def _median(values: Iterable[float | None]) -> float:
    return float(np.median([value for value in values if value is not None]))


def _by_size(
    pairs: Iterable[Profile], value: Callable[[Profile], float | None]
) -> dict[int, float]:
    of_size: dict[int, list[float | None]] = {}
    for pair in pairs:
        of_size.setdefault(pair.tensor_parallel, []).append(value(pair))
    return {size: _median(values) for size, values in of_size.items()}


def _overheads(pairs: list[Profile]) -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
    """Median CPU components of some pairs, per phase, at `KNOTS`."""
    return {
        phase: {
            part: {
                name: tuple(
                    np.median([_at(pair, phase, part, name, KNOTS) for pair in pairs], axis=0)
                )
                for name in getattr(pairs[0], phase)[part]
            }
            for part in PARTS[1:]
        }
        for phase in ("prefill", "decode")
    }


def _at(pair: Profile, phase: str, part: str, name: str, requests: Any) -> Floats:
    values: Floats = np.interp(requests, pair.knots_requests, getattr(pair, phase)[part][name])
    return values


def _forward(pair: Profile, phase: str, name: str, requests: int = 1) -> float:
    return float(_at(pair, phase, "forward", name, requests))


def _memory_efficiency(pair: Profile) -> float:
    """Reached when one request decodes alone, which reads all weights for one token."""
    read_bytes = touched_bytes(model_facts(pair.model), np.ones(1))[0]
    ideal_s = float(read_bytes / gpu_facts(pair.gpu).memory_bytes_per_s)
    return ideal_s / _forward(pair, "decode", "base_s")


def _flops_efficiency(pair: Profile) -> float:
    """Reached by what one more padded token of a prompt costs."""
    model = model_facts(pair.model)
    ideal_s = 2.0 * model.layers * model.layer_matmul_parameters
    ideal_s /= gpu_facts(pair.gpu).fp16_flops_per_s
    return ideal_s / _forward(pair, "prefill", "per_padded_token_s")


def _launch_s(pairs: list[Profile], found: Calibration) -> float:
    """Seconds the CPU takes to launch a layer, seen where reading weights is not the limit.

    The median over pairs that read their weights in less than 3/4 of the time; if there are none,
    the least time per layer, which launching cannot exceed.
    """
    launching, every = [], []
    for pair in pairs:
        model, whole_s = model_facts(pair.model), _forward(pair, "decode", "base_s")
        read_s = floor_s(model, gpu_facts(pair.gpu), pair.tensor_parallel, found, np.ones(1))[0]
        every.append(whole_s / model.layers)
        if read_s < 0.75 * whole_s:
            launching.append(every[-1])
    return float(np.median(launching)) if launching else min(every)


def _link_efficiency(pair: Profile, found: Calibration) -> float:
    """From what a token costs beyond its computation."""
    model, gpu, size = model_facts(pair.model), gpu_facts(pair.gpu), pair.tensor_parallel
    token_s = _forward(pair, "prefill", "per_padded_token_s")
    ideal_s = allreduce_bytes_per_token(model, size) / gpu.nvlink_bytes_per_s
    return ideal_s / max(token_s - compute_s_per_token(model, gpu, size, found), ideal_s)


def _context_ratio(pair: Profile) -> float:
    """Measured seconds per context token over those of reading its KV once at full rate."""
    kv_bytes = model_facts(pair.model).kv_bytes_per_gpu(pair.tensor_parallel)
    ideal_s = kv_bytes / gpu_facts(pair.gpu).memory_bytes_per_s
    return _forward(pair, "decode", "per_context_s", SLOPES_AT) / ideal_s


def _query_group(pair: Profile) -> float:
    """Query heads per KV head on each GPU."""
    return query_group(model_facts(pair.model), pair.tensor_parallel)


def _group_exponent(pair: Profile, found: Calibration) -> float:
    """Power of the query group with which reading KV slows down."""
    return float(np.log(_context_ratio(pair) * found.kv_efficiency) / np.log(_query_group(pair)))


def _attended_factor(pair: Profile) -> float:
    """Measured seconds per attended pair of tokens over those at the published rate."""
    model = model_facts(pair.model)
    ideal_s = 4.0 * model.layers * model.hidden_size / pair.tensor_parallel
    ideal_s /= gpu_facts(pair.gpu).fp16_flops_per_s
    return _forward(pair, "prefill", "per_attended_s") / ideal_s


def _request_share(pair: Profile, found: Calibration) -> float:
    """From what the largest batch takes beyond reading weights and computing."""
    model, gpu, size = model_facts(pair.model), gpu_facts(pair.gpu), pair.tensor_parallel
    without_s = forward_costs(model, gpu, size, found)[0]["base_s"][-1]
    beyond_s = _forward(pair, "decode", "base_s", KNOTS[-1]) - without_s
    return max(0.0, beyond_s / (KNOTS[-1] * compute_s_per_token(model, gpu, size, found)))


def _loading(profiles: Iterable[Profile]) -> dict[str, Any]:
    """Loading as a start per group size and one rate: least squares over the later machine."""
    loaded = [profile for profile in profiles if profile.load_source.startswith(LATER_MACHINE)]
    sizes = sorted({profile.tensor_parallel for profile in loaded})
    columns = [
        [*(pair.tensor_parallel == s for s in sizes), model_facts(pair.model).weight_bytes / 1e9]
        for pair in loaded
    ]
    seconds = np.array([pair.load_s for pair in loaded], np.float64)
    found = np.linalg.lstsq(np.array(columns, np.float64), seconds, rcond=None)[0]
    *starts, per_gigabyte_s = found.tolist()
    return {
        "load_bytes_per_s": 1e9 / per_gigabyte_s,
        "load_start_s": dict(zip(sizes, starts, strict=True)),
    }


def _activation_bytes(pair: Profile) -> float | None:
    """What is left of the memory share beside weights and KV; None where KV was not counted."""
    if pair.kv_blocks is None:
        return None
    model, size = model_facts(pair.model), pair.tensor_parallel
    held_bytes = pair.kv_blocks * pair.block_tokens * model.kv_bytes_per_gpu(size)
    memory_bytes = gpu_facts(pair.gpu).memory_bytes * MEASURED_MEMORY_SHARE
    return memory_bytes - model.weight_bytes / size - held_bytes


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


def _architecture(profile: Profile) -> tuple[int, ...]:
    model = model_facts(profile.model)
    return (model.layers, model.hidden_size, model.intermediate_size, model.kv_heads)


def _add_errors(errors: dict[str, list[float]], pair: Profile, seen: Calibration) -> None:
    model, gpu, size = model_facts(pair.model), gpu_facts(pair.gpu), pair.tensor_parallel
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
