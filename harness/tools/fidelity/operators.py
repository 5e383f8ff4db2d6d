"""Single operators: what the parts of both rooflines say of kernels measured apart.

Small kernels, whose time is their launch, are left out (`least_ms`).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from harness.config.paths import PROFILES
from harness.costs.gpu_facts import GpuFacts, gpu_facts
from harness.costs.model_facts import BYTES_PER_NUMBER
from harness.costs.roofline import Calibration, at_size, read_calibration
from harness.tools.fidelity.lines import CORRECTED, ONE_ENGINE, Line, line, sources
from harness.tools.fitting.operator_rates import (
    EAGER,
    GPU,
    PCIE_GPU,
    calibrated_overheads,
    measured_overheads,
)
from harness.tools.fitting.roofline_across import FOLDER

Column: TypeAlias = "pd.Series[float]"
SecondsOf = Callable[[pd.DataFrame, GpuFacts, Calibration], Column]

LAYER = ["attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms"]


def operator_lines(data: Path) -> Iterator[Line]:
    """Lines of both collections of kernel measurements."""
    for basis, folder in ((ONE_ENGINE, sources()["logged"]["folder"]), (CORRECTED, FOLDER)):
        found = read_calibration(PROFILES / folder)
        for about, gpu, what, measured, ms, seconds, used in (*_kernels(data), *_profiled(data)):
            large = measured[measured[ms] >= about["least_ms"]]
            rows = large.select_dtypes("number").astype(np.float64)
            yield line(
                rows[ms] / 1e3,
                seconds(rows, gpu_facts(gpu), found),
                source=about["name"],
                gpu=gpu,
                engine="kernels",
                model="",
                what=what,
                basis=basis,
                seen=used and basis == CORRECTED,
                note=f"kernels of at least {about['least_ms']:g} ms",
            )


def gemm_seconds(rows: Column, weights: Column, gpu: GpuFacts, found: Calibration) -> Column:
    """Seconds of products of `rows` by matrices of so many weights, each read once."""
    read_s = weights * BYTES_PER_NUMBER / (gpu.memory_bytes_per_s * found.memory_efficiency)
    compute_s = 2.0 * rows * weights / (gpu.fp16_flops_per_s * found.flops_efficiency)
    return (read_s**2 + compute_s**2) ** 0.5


def ring_seconds(message_bytes: Column, gpus: Column, gpu: GpuFacts, found: Calibration) -> Column:
    """Seconds of ring all-reduces."""
    rate = [
        gpu.nvlink_bytes_per_s * at_size(found.link_efficiency, int(size))
        if size <= gpu.nvlink_gpus
        else gpu.pcie_bytes_per_s * found.pcie_efficiency
        for size in gpus
    ]
    return message_bytes * 2.0 * (gpus - 1) / gpus / pd.Series(rate, gpus.index)


def _gemm(rows: pd.DataFrame, gpu: GpuFacts, found: Calibration) -> Column:
    return gemm_seconds(rows["m"], rows["n"] * rows["k"], gpu, found)


def _decode_attention(rows: pd.DataFrame, gpu: GpuFacts, found: Calibration) -> Column:
    """Reading the KV, more often where several heads share it."""
    width, tokens = (
        rows["num_kv_heads"] * rows["head_dim"],
        rows["batch_size"] * rows["context_len"],
    )
    group = rows["num_heads"] / rows["num_kv_heads"]
    read_bytes = 2.0 * BYTES_PER_NUMBER * width * tokens * group**found.kv_group_exponent
    return read_bytes / (gpu.memory_bytes_per_s * found.kv_efficiency)


def _prompt_attention(rows: pd.DataFrame, gpu: GpuFacts, found: Calibration) -> Column:
    width = rows["num_heads"] * rows["head_dim"]
    pairs = rows["batch_size"] * rows["input_len"] ** 2
    return found.attended_factor * 4.0 * pairs * width / gpu.fp16_flops_per_s


def _all_reduce(rows: pd.DataFrame, gpu: GpuFacts, found: Calibration) -> Column:
    message_bytes = rows["message_elements"] * BYTES_PER_NUMBER
    return ring_seconds(message_bytes, rows["num_gpus"], gpu, found)


def _layer(rows: pd.DataFrame, gpu: GpuFacts, found: Calibration) -> Column:
    """The four matrix products of a layer's shard, of a gated MLP."""
    hidden, wide = rows["n_embd"], rows["n_expanded_embd"]
    heads = 1.0 + 2.0 * rows["n_kv_head"] / rows["n_head"]
    matrices = (hidden * hidden * heads, hidden * hidden, 2.0 * hidden * wide, hidden * wide)
    parts = [gemm_seconds(rows["num_tokens"], it / rows["tp"], gpu, found) for it in matrices]
    return pd.concat(parts, axis=1).sum(axis=1)


def _overheads(rows: pd.DataFrame, _: GpuFacts, found: Calibration) -> Column:
    return calibrated_overheads(rows, found)


MeasuredBatches: TypeAlias = tuple[Any, str, str, pd.DataFrame, str, SecondsOf, bool]
"""About the source, GPU, what, rows, their column of ms, and the seconds of the rooflines.

At last whether the corrected one took a number from these rows.
"""

KERNELS: tuple[tuple[str, str, SecondsOf, bool], ...] = (
    ("gemm", "matrix products", _gemm, True),
    ("generation_attention", "decode attention", _decode_attention, False),
    ("context_attention", "prompt attention", _prompt_attention, False),
    ("allreduce", "all-reduce", _all_reduce, True),
)


def _kernels(data: Path) -> Iterator[MeasuredBatches]:
    about = sources()["kernels"]
    for file, what, seconds, used in KERNELS:
        rows = pd.read_parquet(data / about["folder"] / f"{file}_bf16.parquet")
        if "backend" in rows:
            rows = rows[rows["backend"] == EAGER]
        for device, name in about["gpus"].items():
            of_device = rows[rows["device"] == device]
            yield about, name, what, of_device, "latency_ms", seconds, used and name == GPU


def _profiled(data: Path) -> Iterator[MeasuredBatches]:
    about = sources()["operators"]
    folder = data / about["folder"]
    rows = pd.read_parquet(folder / "mlp.parquet")
    rows["ms"] = rows[LAYER].sum(axis=1)
    for device, name in about["gpus"].items():
        of_device = rows[rows["device"] == device]
        yield about, name, "matrix products of a layer", of_device, "ms", _layer, False
    rows = pd.read_parquet(folder / "network.parquet").rename(columns={"num_workers": "num_gpus"})
    rows = rows[(rows["op"] == "all_reduce") & (rows["num_gpus"] == rows["devices_per_node"])]
    rows["message_elements"] = rows["size_bytes"] / BYTES_PER_NUMBER
    for network, name in about["networks"].items():
        of_network, what = rows[rows["network"] == network], f"all-reduce, {network}"
        yield about, name, what, of_network, "median_ms", _all_reduce, name == PCIE_GPU
    rows = pd.read_csv(folder / "cpu_overheads_a100.csv.gz")
    rows["ms"] = 1e3 * measured_overheads(rows)
    yield about, GPU, "CPU side of a decode", rows, "ms", _overheads, True
