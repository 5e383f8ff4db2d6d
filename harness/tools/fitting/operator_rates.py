"""Rates that operators reach on the calibrated GPU type, from measurements of single operators."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.costs.gpu_facts import gpu_facts
from harness.costs.model_facts import BYTES_PER_NUMBER
from harness.costs.roofline import Calibration, at_size

KERNELS = "vllm_kernels"
OPERATORS = "vidur_profiles"

GPU = "A100-80G"
DEVICE = "a100_sxm"
PCIE_GPU = "A100-80G-PCIe"
PCIE_NETWORK = "a100_pairwise_nvlink"
EAGER = "vllm_eager"

LARGE_BYTES = 8 * 2**20  # messages from which on an all-reduce goes at its full rate
SMALL_BATCH = 64  # rows up to which a matrix product takes the time of reading the matrix
MATRIX_SIDES = (2048, 16384)  # of the models' matrices

OVERHEADS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("prepare_inputs_e2e_median",),
    "sample": ("sampler_e2e_median",),
    "other": ("schedule_median", "process_model_outputs_median"),
}
"""Our components of an iteration and the steps, in ms, that another engine was timed by."""


SOURCE = (
    "reading matrices and all-reduces: ai-dynamo/aiconfigurator@095f58a a100_sxm, vLLM 0.14.0; "
    "size of the CPU side and PCIe: microsoft/vidur@7d47513 data/profiling"
)


def from_operators(base: Calibration, data: Path) -> Calibration:
    """The calibration with what operators reach in place of what one engine and machine did."""
    rows = pd.read_csv(data / OPERATORS / "cpu_overheads_a100.csv.gz")
    # the CPU side of a decode of another engine over that of the calibrated one
    ratio = (measured_overheads(rows) / calibrated_overheads(rows, base)).median()
    return replace(
        base,
        memory_efficiency=memory_efficiency(data),
        link_efficiency=link_efficiency(data),
        pcie_efficiency=pcie_efficiency(data),
        overheads=scaled(base.overheads, float(ratio)),
    )


def memory_efficiency(data: Path) -> float:
    """Share of the memory rate at which products of few rows read their matrix."""
    rows = pd.read_parquet(data / KERNELS / "gemm_bf16.parquet")
    rows = rows[
        (rows["device"] == DEVICE)
        & (rows["m"] <= SMALL_BATCH)
        & rows["n"].between(*MATRIX_SIDES)
        & rows["k"].between(*MATRIX_SIDES)
    ]
    rates = BYTES_PER_NUMBER * rows["n"] * rows["k"] / (rows["latency_ms"] / 1e3)
    return float(rates.median()) / gpu_facts(GPU).memory_bytes_per_s


def link_efficiency(data: Path) -> dict[int, float]:
    """Share of the NVLink rate that all-reduces of large messages reach, by number of GPUs."""
    rows = pd.read_parquet(data / KERNELS / "allreduce_bf16.parquet")
    rows = rows.assign(size_bytes=rows["message_elements"] * BYTES_PER_NUMBER)
    rows = rows[
        (rows["device"] == DEVICE)
        & (rows["backend"] == EAGER)
        & (rows["size_bytes"] >= LARGE_BYTES)
    ]
    rates = _ring_rate(rows["size_bytes"], rows["num_gpus"], rows["latency_ms"])
    medians = rates.groupby(rows["num_gpus"]).median() / gpu_facts(GPU).nvlink_bytes_per_s
    return dict(zip(medians.index.tolist(), medians.tolist(), strict=True))


def pcie_efficiency(data: Path) -> float:
    """Share of the PCIe rate that all-reduces of large messages reach beyond an NVLink bridge."""
    rows = pd.read_parquet(data / OPERATORS / "network.parquet")
    rows = rows[
        (rows["network"] == PCIE_NETWORK)
        & (rows["op"] == "all_reduce")
        & (rows["num_workers"] > gpu_facts(PCIE_GPU).nvlink_gpus)
        & (rows["size_bytes"] >= LARGE_BYTES)
    ]
    rates = _ring_rate(rows["size_bytes"], rows["num_workers"], rows["median_ms"])
    return float(rates.median()) / gpu_facts(PCIE_GPU).pcie_bytes_per_s


def _ring_rate(
    message_bytes: "pd.Series[float]", gpus: "pd.Series[float]", ms: "pd.Series[float]"
) -> "pd.Series[float]":
    """Bytes per second that each GPU of a ring sends."""
    return 2.0 * message_bytes * (1.0 - 1.0 / gpus) / (ms / 1e3)


def measured_overheads(rows: pd.DataFrame) -> "pd.Series[float]":
    """Seconds of the CPU side of a decode, by row."""
    return rows[[name for names in OVERHEADS.values() for name in names]].sum(axis=1) / 1e3


def calibrated_overheads(rows: pd.DataFrame, found: Calibration) -> "pd.Series[float]":
    """The same under a calibration, at no context."""
    seconds = pd.Series(0.0, index=rows.index)
    for size in rows["tensor_parallel_degree"].unique():
        of_size = rows["tensor_parallel_degree"] == size
        components = at_size(found.overheads, int(size))["decode"]
        for part in OVERHEADS:
            base_s, at = components[part]["base_s"], rows.loc[of_size, "batch_size"]
            seconds[of_size] += np.interp(at, found.knots_requests, base_s)
    return seconds


def scaled(overheads: Any, ratio: float) -> Any:
    """All components multiplied."""
    if isinstance(overheads, Mapping):
        return {key: scaled(entry, ratio) for key, entry in overheads.items()}
    return tuple(ratio * value for value in overheads)
