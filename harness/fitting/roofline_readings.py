"""What each number of a roofline's calibration is read off from, in one measured profile.

A pair is a model and a tensor-parallel size; `found` is the calibration as far as it is known.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.costs.gpus import gpu_facts
from harness.costs.model import PARTS
from harness.costs.models import ModelFacts, model_facts
from harness.costs.profiles import (
    LATER_MACHINE,
    MEASURED_MEMORY_SHARE,
    Coefficients,
    Profile,
)
from harness.costs.roofline import (
    Calibration,
    allreduce_bytes_per_token,
    compute_s_per_token,
    floor_s,
    forward_costs,
    query_group,
    touched_bytes,
)

Floats = NDArray[np.float64]

KNOTS = (1, 4, 8, 32, 64, 128, 256, 384, 512)
SLOPES_AT = 256  # requests at which the slopes of a profile are read: well measured there


def overheads(pairs: list[Profile]) -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
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


def memory_efficiency(pair: Profile) -> float:
    """Reached when one request decodes alone, which reads all weights for one token."""
    ideal_s = touched_bytes(_model(pair), np.ones(1))[0] / gpu_facts(pair.gpu).memory_bytes_per_s
    return float(ideal_s) / _forward(pair, "decode", "base_s", 1)


def flops_efficiency(pair: Profile) -> float:
    """Reached by what one more padded token of a prompt costs."""
    model, gpu = _model(pair), gpu_facts(pair.gpu)
    flops = 2.0 * model.layers * model.layer_matmul_parameters
    return flops / gpu.fp16_flops_per_s / _forward(pair, "prefill", "per_padded_token_s", 1)


def launch_s(pairs: list[Profile], found: Calibration) -> float:
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


def link_efficiency(pair: Profile, found: Calibration) -> float:
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


def kv_efficiency(pair: Profile) -> float:
    """Of the memory rate, reached when the KV of a context token is read."""
    return 1.0 / _context_ratio(pair)


def query_group_of(pair: Profile) -> float:
    """Query heads per KV head on each GPU."""
    return query_group(_model(pair), pair.tensor_parallel)


def group_exponent(pair: Profile, found: Calibration) -> float:
    """Power of the query group with which reading KV slows down."""
    return float(np.log(_context_ratio(pair) * found.kv_efficiency) / np.log(query_group_of(pair)))


def attended_factor(pair: Profile) -> float:
    """Measured seconds per attended pair of tokens over those at the published rate."""
    model = _model(pair)
    flops = 4.0 * model.layers * model.hidden_size / pair.tensor_parallel
    ideal_s = flops / gpu_facts(pair.gpu).fp16_flops_per_s
    return _forward(pair, "prefill", "per_attended_s", 1) / ideal_s


def request_share(pair: Profile, found: Calibration) -> float:
    """From what the largest batch takes beyond reading weights and computing."""
    model, gpu, size = _model(pair), gpu_facts(pair.gpu), pair.tensor_parallel
    most = KNOTS[-1]
    without_s = forward_costs(model, gpu, size, found)[0]["base_s"][-1]
    beyond_s = _forward(pair, "decode", "base_s", most) - without_s
    return max(0.0, beyond_s / (most * compute_s_per_token(model, gpu, size, found)))


def loading(profiles: Iterable[Profile]) -> dict[str, Any]:
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


def activation_bytes(pair: Profile) -> float | None:
    """What is left of the memory share beside weights and KV; None where KV was not counted."""
    if pair.kv_blocks is None:
        return None
    model = _model(pair)
    block_bytes = model.kv_bytes_per_gpu(pair.tensor_parallel) * pair.block_tokens
    memory_bytes = gpu_facts(pair.gpu).memory_bytes * MEASURED_MEMORY_SHARE
    weight_bytes = model.weight_bytes / pair.tensor_parallel
    return memory_bytes - weight_bytes - pair.kv_blocks * block_bytes


def _model(profile: Profile) -> ModelFacts:
    return model_facts(profile.model)
