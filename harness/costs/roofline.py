"""Costs of a pair (model, GPU) that was never measured, from published figures.

The published figures give how long reading the weights, computing and moving the KV take at the
rates of a data sheet; what an engine reaches of those rates, and what its CPU side adds, is
calibrated on the measured pairs (`harness.tools.fitting.roofline`), a few numbers in
`roofline.json`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.config.schema import STRICT, Count, NotNegative, Positive, Seconds, fits, read_json
from harness.costs.gpu_facts import GpuFacts
from harness.costs.model_facts import BYTES_PER_NUMBER, ModelFacts
from harness.costs.profiles import (
    Coefficients,
    PhaseName,
    Profile,
    StoredPhase,
    calibration_path,
    require_ascending,
    require_length,
)

Floats = NDArray[np.float64]
_Entry = TypeVar("_Entry")

STEP_KNOTS_TOKENS = (1, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the measured engine makes of published figures. Maps by tensor-parallel size.

    `*_efficiency` are shares of the published rate (0..1). `launch_s_per_layer` bounds a forward
    pass from below: the CPU launches kernels no faster. `request_share` is the computation of a
    request that does not overlap with reading weights, as a share of a token's FLOPs. Attention
    with fewer KV heads than heads reads its KV `group ** kv_group_exponent` times. `overheads` are
    the CPU components (prepare, sample, other) per phase along `knots_requests`. `slowdown` is, per
    phase and size, how much longer than calibrated a forward pass takes on engines and machines
    that nothing is known about (`harness.tools.fitting.roofline_across`); none is 1.
    `pcie_efficiency` is the share of the PCIe rate where NVLink does not join a group.
    """

    source: str
    engine: str
    block_tokens: Count
    knots_requests: tuple[Count, ...]
    memory_efficiency: Positive
    flops_efficiency: Positive
    kv_efficiency: Positive
    kv_group_exponent: NotNegative
    attended_factor: NotNegative
    request_share: NotNegative
    launch_s_per_layer: Mapping[Count, Seconds]
    link_efficiency: Mapping[Count, Positive]
    overheads: Mapping[Count, Mapping[PhaseName, StoredPhase]]
    load_bytes_per_s: Positive
    load_start_s: Mapping[Count, Seconds]
    activation_bytes: Mapping[Count, NotNegative]
    error: Mapping[str, NotNegative]
    slowdown: Mapping[PhaseName, Mapping[Count, Positive]] = field(default_factory=dict)
    pcie_efficiency: Positive = 1.0

    __pydantic_config__ = STRICT


@cache
def read_calibration(folder: Path) -> Calibration:
    """The calibration that goes with the profiles of a folder. Raises ValueError for a bad one."""
    path = calibration_path(folder)
    raw = read_json(path, dict[str, Any])
    said = {key: value for key, value in raw.items() if key not in ("tried", "choice")}
    calibration = fits(said, Calibration, str(path))
    try:
        _require_whole(calibration)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return calibration


def _require_whole(calibration: Calibration) -> None:
    """Refuse a calibration that says nothing of groups of one, or rows beside its knots."""
    require_ascending("knots_requests", calibration.knots_requests, least=2)
    for name in ("launch_s_per_layer", "overheads", "load_start_s", "activation_bytes"):
        if 1 not in getattr(calibration, name):
            raise ValueError(f"{name} has no tensor parallel size 1")
    if 2 not in calibration.link_efficiency:
        raise ValueError("link_efficiency has no tensor parallel size 2")
    for size, phases in calibration.overheads.items():
        for phase, components in phases.items():
            for component, coefficients in components.items():
                for name, values in coefficients.items():
                    place = f"overheads.{size}.{phase}.{component}.{name}"
                    require_length(place, values, len(calibration.knots_requests))


def roofline_profile(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> Profile:
    """Profile of a model on GPUs where it was not measured."""
    decode, prefill, step_s = forward_costs(model, gpu, tensor_parallel, calibration)
    slow = {
        phase: at_size(calibration.slowdown.get(phase, {1: 1.0}), tensor_parallel)
        for phase in ("prefill", "decode")
    }
    overheads = at_size(calibration.overheads, tensor_parallel)
    experts_s: tuple[float, ...] = ()
    if any(kind.mlp.experts for kind in model.layer_kinds):
        tokens = np.asarray(STEP_KNOTS_TOKENS, np.float64)
        read_s = floor_s(model, gpu, tensor_parallel, calibration, tokens)
        experts_s = _rounded(min(slow.values()) * (read_s - read_s[0]))
    return Profile(
        model=model.name,
        gpu=gpu.name,
        engine=calibration.engine,
        kind="roofline",
        source=f"{model.source}; {gpu.source}; {calibration.source}",
        tensor_parallel=tensor_parallel,
        knots_requests=calibration.knots_requests,
        prefill={**overheads["prefill"], "forward": _times(slow["prefill"], prefill)},
        decode={**overheads["decode"], "forward": _times(slow["decode"], decode)},
        step_knots_tokens=STEP_KNOTS_TOKENS,
        step_s=_times(slow["prefill"], {"step_s": step_s})["step_s"],
        block_tokens=calibration.block_tokens,
        error=calibration.error,
        experts_s=experts_s,
    )


def forward_costs(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[float, ...]], tuple[float, ...]]:
    """Forward coefficients of decode and prefill along the knots, and the prefill step.

    Reading weights and computing overlap in part: together they take the root of the sum of their
    squares, which lies between the roofline's maximum and no overlap, and fits both phases.
    """
    requests = np.asarray(calibration.knots_requests, np.float64)
    tokens = np.asarray(STEP_KNOTS_TOKENS, np.float64)
    compute_s = compute_s_per_token(model, gpu, tensor_parallel, calibration)
    token_s = compute_s + allreduce_s_per_token(model, gpu, tensor_parallel, calibration)
    request_s = calibration.request_share * compute_s * requests
    floor = floor_s(model, gpu, tensor_parallel, calibration, np.concatenate([tokens, requests]))
    prompt_floor_s, decode_floor_s = floor[: len(tokens)], floor[len(tokens) :]
    decode = {
        "base_s": _rounded(
            np.hypot(decode_floor_s, token_s * requests)
            + request_s
            + state_s_per_request(model, gpu, tensor_parallel, calibration) * requests
        ),
        "per_context_s": _rounded(
            np.full(len(requests), context_s_per_token(model, gpu, tensor_parallel, calibration))
        ),
    }
    prefill = {
        "base_s": _rounded(prompt_floor_s[0] + request_s),
        "per_padded_token_s": _rounded(np.full(len(requests), token_s)),
        "per_attended_s": _rounded(
            np.full(len(requests), attended_s(model, gpu, tensor_parallel, calibration))
        ),
    }
    overlap_s = np.hypot(prompt_floor_s, token_s * tokens) - token_s * tokens - prompt_floor_s[0]
    return decode, prefill, _rounded(overlap_s)


def compute_s_per_token(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> float:
    """Seconds of one token's matrix multiplications; a multiply-add is two FLOPs."""
    flops = 2.0 * model.matmul_parameters / tensor_parallel
    return flops / (gpu.fp16_flops_per_s * calibration.flops_efficiency)


def allreduce_bytes_per_token(model: ModelFacts, tensor_parallel: int) -> float:
    """Bytes each GPU sends per token: two ring all-reduces of the hidden state in every layer."""
    hidden_bytes = 2.0 * model.layers * model.hidden_size * BYTES_PER_NUMBER
    return hidden_bytes * 2.0 * (tensor_parallel - 1) / tensor_parallel


def allreduce_s_per_token(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> float:
    """Seconds of one token's all-reduces over NVLink, or PCIe where it does not join the group.

    The measured A100s count as joined: their groups of four are faster than PCIe could make them.
    """
    if tensor_parallel == 1:
        return 0.0
    if tensor_parallel > gpu.nvlink_gpus:
        rate = gpu.pcie_bytes_per_s * calibration.pcie_efficiency
    else:
        rate = gpu.nvlink_bytes_per_s * at_size(calibration.link_efficiency, tensor_parallel)
    return allreduce_bytes_per_token(model, tensor_parallel) / rate


def floor_s(
    model: ModelFacts,
    gpu: GpuFacts,
    tensor_parallel: int,
    calibration: Calibration,
    tokens: Floats,
) -> Floats:
    """Least seconds of a forward pass: launches, or reading weights and experts hit at random."""
    launch_s = model.layers * at_size(calibration.launch_s_per_layer, tensor_parallel)
    rate = gpu.memory_bytes_per_s * calibration.memory_efficiency
    return np.maximum(launch_s, touched_bytes(model, tokens) / tensor_parallel / rate)


def touched_bytes(model: ModelFacts, tokens: Floats) -> Floats:
    """Bytes of weights a forward pass of so many tokens reads, whole model."""
    unread_bytes = np.zeros(len(tokens))
    for kind in model.layer_kinds:
        if kind.mlp.experts:
            missed = (1.0 - kind.mlp.experts_per_token / kind.mlp.experts) ** tokens
            unread_bytes += kind.layers * kind.mlp.routed_parameters * missed * model.expert_bytes
    return model.weight_bytes - unread_bytes


def context_s_per_token(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> float:
    """Seconds of reading one token's KV, windows as the facts state them."""
    numbers = 0.0
    for kind in model.layer_kinds:
        mixer = kind.mixer
        kept = kind.layers * mixer.kv_heads_per_gpu(tensor_parallel) * mixer.kv_numbers_per_head
        share = mixer.kept_tokens(model.window_at_tokens) / model.window_at_tokens
        group = mixer.query_group(tensor_parallel)
        numbers += kept * share * group**calibration.kv_group_exponent
    kv_bytes = model.kv_number_bytes * numbers
    return float(kv_bytes / (gpu.memory_bytes_per_s * calibration.kv_efficiency))


def state_s_per_request(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> float:
    """Seconds of reading and writing the states of one request in layers without KV."""
    rate = gpu.memory_bytes_per_s * calibration.kv_efficiency
    return 2.0 * model.state_bytes / tensor_parallel / rate


def query_group(model: ModelFacts, tensor_parallel: int) -> float:
    """Attention heads per KV head on one GPU; 1 unless KV heads are shared."""
    kv_heads = max(1, model.kv_heads // tensor_parallel)
    return max(1.0, model.attention_heads / tensor_parallel / kv_heads)


def attended_s(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, calibration: Calibration
) -> float:
    """Seconds per attended pair of prompt tokens (the s^2 of arXiv 2503.16893 eq. 1)."""
    flops = 4.0 * model.attended_width / tensor_parallel
    return calibration.attended_factor * flops / gpu.fp16_flops_per_s


def roofline_load_s(model: ModelFacts, tensor_parallel: int, calibration: Calibration) -> float:
    """Seconds to load a model: a start that depends on the group's size, then its bytes."""
    start_s = at_size(calibration.load_start_s, tensor_parallel)
    return start_s + model.weight_bytes / calibration.load_bytes_per_s


def roofline_kv_blocks(
    model: ModelFacts,
    gpu: GpuFacts,
    tensor_parallel: int,
    calibration: Calibration,
    memory_share: float,
) -> int:
    """KV blocks that fit beside a GPU's part of the weights and the activations; 0 if none do."""
    activation_bytes = at_size(calibration.activation_bytes, tensor_parallel)
    used_bytes = model.weight_bytes / tensor_parallel + activation_bytes
    block_bytes = model.kv_bytes_per_gpu(tensor_parallel) * calibration.block_tokens
    return max(0, math.floor((gpu.memory_bytes * memory_share - used_bytes) / block_bytes))


def at_size(by_size: Mapping[int, _Entry], tensor_parallel: int) -> _Entry:
    """Entry of the measured size, else of the largest measured one below it."""
    return by_size[max(size for size in by_size if size <= tensor_parallel)]


def _times(factor: float, coefficients: Coefficients) -> Coefficients:
    """The coefficients multiplied; untouched by a factor of 1."""
    if factor == 1.0:
        return coefficients
    return {name: _rounded(factor * np.asarray(values)) for name, values in coefficients.items()}


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
