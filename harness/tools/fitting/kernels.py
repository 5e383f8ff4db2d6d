"""Tables of kernel seconds, one file a GPU, from latencies of vLLM's own kernels.

What is kept of the measurements (ai-dynamo/aiconfigurator, `silicon/` of the data): matrix products
on a grid of rows and sizes; attention as lines, since costs of an iteration are linear in tokens;
routed experts of the shapes that were measured, and a formula for other shapes; all-reduces inside
a CUDA graph. Seconds never fall with more rows, since a batch can be padded.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from harness.costs.gpu_facts import GpuFacts, gpu_facts
from harness.costs.kernels import WEIGHT_BYTES, flops_rate
from harness.tools.fitting.stored import rounded

Floats = NDArray[np.float64]

SOURCE = (
    "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), kernels of vLLM measured on {device}, {about}"
)
GPUS = {
    "h100_sxm": "H100-80G",
    "h200_sxm": "H200-141G",
    "b200_sxm": "B200-180G",
    "l40s": "L40S-48G",
    "a100_sxm": "A100-80G",
}
"""Folder of the measurements -> the GPU."""

SIZES = np.array(
    [
        *(128, 256, 512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192),
        *(10240, 12288, 16384, 65536),
    ]
)
"""Of a matrix: columns of the output and of the input that are kept."""
ROWS: Floats = 2.0 ** np.arange(15, dtype=np.float64)
"""Tokens of a matrix product that are kept."""
BATCHES: Floats = ROWS[:11]
"""Requests of a decode that are kept."""
EXPERT_TOKENS = ROWS
DECODE_LENGTHS = np.array([256, 512, 1024, 2048, 4096, 8192.0])
"""Context tokens of a request between which attention is a line."""
PROMPT_LENGTHS = (128, 16384)
SKEW = "power_law_1.01"
"""How tokens spread over experts; measured servers are slower than with balanced experts."""
EXPERT_SPLITS = [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 8)]
"""Tensor parallel and expert parallel sizes of routed experts."""
FORMATS = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8",
    "int4_wo": "int4",
}
"""Names of the measurements -> `ModelFacts.linear_format` and `expert_format`."""
KV_BYTES = {"bfloat16": 2, "fp8": 1}
"""Names of the measurements -> bytes of a number of KV."""
MOST_KV_HEADS = 8
"""Of a shape that is kept; one of more KV heads is so many times a smaller one."""
BEYOND_CACHE_BYTES = 4e8
"""Three times the largest cache of these GPUs, 126 MB of a B200."""
UNUSED_EXPERTS = {("h100_sxm", "fp8"), ("h200_sxm", "fp8")}
"""3 to 6 times as slow as the same experts in blocks of fp8, which vLLM's models have."""


def _folder(data: Path, name: str) -> Path:
    return data / "silicon" / "kernels" / name


def kernel_files(data: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and content of the file of each GPU."""
    for folder, gpu in GPUS.items():
        yield f"{gpu}.json", kernel_file(_folder(data, folder), gpu_facts(gpu))


def kernel_file(folder: Path, gpu: GpuFacts) -> Mapping[str, Any]:
    """What is kept of one GPU: seconds in microseconds, slopes in picoseconds."""
    products = pd.read_parquet(folder / "gemm_perf.parquet")
    experts, formula = _experts(folder, gpu)
    about = products.iloc[0]
    return {
        "gpu": gpu.name,
        "source": SOURCE.format(device=about["device"], about=f"version {about['version']}"),
        "sizes": SIZES.tolist(),
        "rows": ROWS.astype(int).tolist(),
        "gemm_us": _products(products, gpu),
        "batches": BATCHES.astype(int).tolist(),
        "decode_attention": dict(_decodes(folder)),
        "prompt_attention": dict(_prompts(folder)),
        "expert_tokens": EXPERT_TOKENS.astype(int).tolist(),
        "experts_us": experts,
        "experts_formula": formula,
        "latent_attention": dict(_latent(folder)),
        "all_reduce": _all_reduces(folder),
    }


def _us(ms: Floats | float) -> Any:
    return rounded(1e3 * np.asarray(ms), 4)


def _rising(values: NDArray[Any]) -> Floats:
    """Each entry, or the least of the later ones."""
    return np.asarray(np.minimum.accumulate(values[::-1], axis=0)[::-1], np.float64)


def _products(rows: pd.DataFrame, gpu: GpuFacts) -> dict[str, Any]:
    """Microseconds of m x n x k by format, n and k.

    Repeated alone, a matrix of the size of the cache is found there; an iteration reads it.
    """
    table = rows.groupby(["gemm_dtype", "n", "k", "m"])["latency"].min()
    found: dict[str, Any] = {}
    for kind in rows["gemm_dtype"].unique():
        grid = np.empty((len(SIZES), len(SIZES), len(ROWS)))
        for i, n in enumerate(SIZES):
            for j, k in enumerate(SIZES):
                # The largest matrix was not measured: it goes by the one before it.
                measured_k = k if (kind, n, k) in table.index else SIZES[j - 1]
                line = _at(ROWS, table[kind, n, measured_k])
                grid[i, j] = line * (k / measured_k)
        weight_bytes = np.outer(SIZES, SIZES)[:, :, None] * WEIGHT_BYTES[FORMATS[kind]]
        found[FORMATS[kind]] = np.maximum(grid, 1e3 * weight_bytes / gpu.memory_bytes_per_s)
    if "fp8_block" in found:
        # Kernels of few rows were timed with their launch by the host.
        found["fp8_block"] = np.minimum(found["fp8_block"], found["bf16"])
    return {kind: _us(grid) for kind, grid in found.items()}


def _at(rows: Floats, line: "pd.Series[float]") -> Floats:
    """Milliseconds by rows at other rows, never falling; beyond the last by their number."""
    measured = line.index.to_numpy(float)
    found = np.interp(rows, measured, _rising(line.to_numpy()))
    return np.asarray(found * np.maximum(1.0, rows / measured[-1]), np.float64)


def _line(columns: Floats, seconds: Floats) -> Floats:
    """Coefficients, none below 0, with the least relative squares."""
    found, _ = nnls(columns / seconds[:, None], np.ones(len(seconds)))
    return np.asarray(found, np.float64)


def _shapes(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a shape of attention: heads / KV heads / head size / window / bytes of KV."""
    rows = rows.assign(window=rows.get("window_size", 0))
    keys = ["num_heads", "num_key_value_heads", "head_dim", "window", "kv_cache_dtype"]
    for key, some in rows[rows["num_key_value_heads"] <= MOST_KV_HEADS].groupby(keys):
        heads, kv_heads, size, window, kv = map(str, key)
        if int(heads) % int(kv_heads) == 0:
            yield f"{heads}/{kv_heads}/{size}/{window}/{KV_BYTES[kv]}", some


def _decodes(folder: Path) -> Iterator[tuple[str, Any]]:
    """By shape microseconds of a batch and picoseconds for each token of context in it."""
    for shape, rows in _shapes(pd.read_parquet(folder / "generation_attention_perf.parquet")):
        _, kv_heads, size, window, number_bytes = map(int, shape.split("/"))
        token_bytes = 0.0 if window else 2.0 * kv_heads * size * number_bytes
        yield shape, _decode_lines(rows, more_tokens=1, token_bytes=token_bytes)


def _decode_lines(
    rows: pd.DataFrame, *, more_tokens: int, token_bytes: float = 0.0
) -> dict[str, Any]:
    """Lines of seconds over context, one a batch size, from a grid of both.

    A request has `step` tokens of context, and `more_tokens`. With `token_bytes`, those of a
    token's KV, what was read from a cache counts as read from memory.
    """
    grid = rows.groupby(["batch_size", "step"])["latency"].mean().unstack()
    lengths = grid.columns.to_numpy(float) + more_tokens
    batches = grid.index.to_numpy(float)
    values = _rising(np.array([_filled(row, lengths) for row in grid.to_numpy()]))
    if token_bytes:
        tokens = batches[:, None] * lengths
        beyond = grid.notna().to_numpy() & (tokens * token_bytes >= BEYOND_CACHE_BYTES)
        values = _from_memory(values, tokens, beyond)
    at = np.array([np.interp(DECODE_LENGTHS, lengths, row) for row in values])
    coefficients = []
    for batch in BATCHES:
        seconds = np.array([np.interp(batch, batches, column) for column in at.T])
        columns = np.c_[np.ones(len(DECODE_LENGTHS)), DECODE_LENGTHS * batch]
        coefficients.append(_line(columns, seconds))
    base, slope = np.array(coefficients).T
    return {"base_us": _us(base), "per_context_ps": rounded(1e9 * slope, 4)}


def _filled(row: Floats, lengths: Floats) -> Floats:
    """Seconds by length with those of lengths that had no room: on the line of the others."""
    known = np.flatnonzero(~np.isnan(row))
    first, last = known[0], known[-1]
    slope = max(0.0, (row[last] - row[first]) / max(1.0, lengths[last] - lengths[first]))
    line = row[last] + slope * (lengths - lengths[last])
    return np.asarray(np.where(np.isnan(row), line, row), np.float64)


def _from_memory(values: Floats, tokens: Floats, beyond: NDArray[np.bool_]) -> Floats:
    """Seconds as they are when the KV is read from memory.

    Repeated on one layer, a kernel finds KV of up to the size of the cache there; an iteration
    reads the KV of all layers. So the rate of what was measured `beyond` any cache holds for all.
    """
    launch = values[:, :1]
    if not beyond.any():
        return values
    rate = float(np.median(((values - launch) / tokens)[beyond]))
    return np.maximum(values, launch + rate * tokens)


def _prompts(folder: Path) -> Iterator[tuple[str, Any]]:
    """By shape microseconds of a prompt, picoseconds of a token and of `Work.prefill_attended`."""
    for shape, rows in _shapes(pd.read_parquet(folder / "context_attention_perf.parquet")):
        yield shape, _prompt_line(rows[rows["batch_size"] == rows["batch_size"].min()])


def _prompt_line(rows: pd.DataFrame) -> list[float]:
    rows = rows[rows["isl"].between(*PROMPT_LENGTHS)]
    tokens = rows["isl"].to_numpy(float)
    columns = np.c_[np.ones(len(tokens)), tokens, tokens**2]
    base, per_token, per_attended = _line(columns, rows["latency"].to_numpy())
    found: list[float] = rounded([1e3 * base, 1e9 * per_token, 1e9 * per_attended], 4)
    return found


def _latent(folder: Path) -> Iterator[tuple[str, Any]]:
    """The same of DeepSeek's latent attention with its projections: heads / format / KV bytes."""
    decodes = folder / "mla_generation_module_perf.parquet"
    if not decodes.is_file():
        return
    keys = ["num_heads", "gemm_type", "kv_cache_dtype"]
    prompts = dict(iter(pd.read_parquet(folder / "mla_context_module_perf.parquet").groupby(keys)))
    for key, rows in pd.read_parquet(decodes).groupby(keys):
        of_shape = prompts[key]
        alone = of_shape[of_shape["batch_size"] == 1][["isl", "latency"]]
        prompt = _prompt_line(alone.groupby("isl", as_index=False).min())
        heads, kind, kv = map(str, key)
        shape = f"{heads}/{FORMATS[kind]}/{KV_BYTES[kv]}"
        yield shape, {**_decode_lines(rows, more_tokens=0), "prompt": prompt}


def _experts(folder: Path, gpu: GpuFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Microseconds by format, shape and split, and the formulas of other shapes by format."""
    found: dict[str, Any] = {}
    rows = _expert_rows(folder, gpu)
    for key, line in rows.groupby(["kind", "shape", "split"]):
        kind, shape, split = map(str, key)
        found.setdefault(kind, {}).setdefault(shape, {})[split] = _us(line["ms"].to_numpy())
    return found, {str(kind): _formula(some, "shape") for kind, some in rows.groupby("kind")}


@cache
def _expert_rows(folder: Path, gpu: GpuFacts) -> pd.DataFrame:
    """Milliseconds of every format, shape and split; of reading and computing beside them."""
    rows = pd.read_parquet(folder / "moe_perf.parquet")
    rows = rows[(rows["distribution"] == SKEW) & rows["moe_dtype"].isin(FORMATS)]
    keys = ["moe_dtype", "hidden_size", "inter_size", "num_experts", "topk"]
    found = []
    for key, of_shape in rows.groupby(keys):
        name, *shape = map(str, key)
        if (folder.name, name) in UNUSED_EXPERTS:
            continue
        for (tp, ep), ms in _splits(of_shape).items():
            named = {"kind": FORMATS[name], "shape": "/".join(shape), "split": f"{tp}/{ep}"}
            work = _expert_work(gpu, FORMATS[name], [int(size) for size in shape], tp, ep)
            found.append(pd.DataFrame({**named, "ms": ms, **work}))
    return pd.concat(found, ignore_index=True)


def _splits(rows: pd.DataFrame) -> dict[tuple[int, int], Floats]:
    """Milliseconds of the experts of one shape along `EXPERT_TOKENS`, by split."""
    found: dict[tuple[int, int], Floats] = {}
    for tp, ep in EXPERT_SPLITS:
        some = rows[(rows["moe_tp_size"] == tp) & (rows["moe_ep_size"] == ep)]
        if len(some):
            found[tp, ep] = _at(EXPERT_TOKENS, some.groupby("num_tokens")["latency"].min())
        elif ep == 1 and (tp // 2, 1) in found and (tp // 4, 1) in found:
            # Beyond the measured sizes another halving saves as much as the last one did.
            found[tp, ep] = _rising(found[tp // 2, 1] ** 2 / found[tp // 4, 1])
    return found


def _expert_work(gpu: GpuFacts, kind: str, shape: list[int], tp: int, ep: int) -> dict[str, Floats]:
    """Milliseconds of reading touched experts and of computing, at published rates."""
    hidden, inter, experts, per_token = shape
    touched = experts / ep * (1.0 - (1.0 - per_token / experts) ** EXPERT_TOKENS)
    numbers = 3.0 * hidden * inter / tp
    read_bytes = touched * numbers * WEIGHT_BYTES[kind]
    flops = 2.0 * EXPERT_TOKENS * per_token / ep * numbers
    return {
        "read": np.asarray(1e3 * read_bytes / gpu.memory_bytes_per_s, np.float64),
        "compute": np.asarray(1e3 * flops / flops_rate(gpu, kind), np.float64),
    }


def _formula(rows: pd.DataFrame, by: str) -> dict[str, Any]:
    """Launch, reading and computing of rows, with the median error where one of `by` is left out.

    `ms`, `read` and `compute` are milliseconds, the last two at published rates. A factor on what
    no row has is 0.
    """
    table = rows[["ms", "read", "compute"]].to_numpy(np.float64)
    groups, names = pd.factorize(rows[by])
    off = [
        np.abs(_guess(_fitted(table[groups != each]), table[groups == each]) - 1.0)
        for each in (range(len(names)) if len(names) > 1 else ())
    ]
    launch, read, compute = (_fitted(table) * np.append(1.0, table[:, 1:].any(axis=0))).tolist()
    error = float(np.median(np.concatenate(off))) if off else None
    found: dict[str, Any] = rounded(
        {"launch_us": launch, "read": read, "compute": compute, "error": error}, 4
    )
    return found


def _guess(x: Floats, table: Floats) -> Floats:
    """Milliseconds of a formula over the measured ones; columns are ms, read and compute."""
    ms, read, compute = table.T
    return np.asarray((1e-3 * x[0] + np.hypot(x[1] * read, x[2] * compute)) / ms, np.float64)


def _fitted(table: Floats) -> Floats:
    """Microseconds of a launch, and factors on reading and computing, by relative errors."""
    found = least_squares(
        lambda x: np.log(_guess(x, table)),
        [5.0, 1.2, 1.5],
        bounds=([0.1, 0.5, 0.0], [1e3, 20.0, 50.0]),
        loss="soft_l1",
        f_scale=0.1,
    )
    return np.asarray(found.x, np.float64)


def formula_file(data: Path) -> Mapping[str, Any]:
    """Formulas for GPUs without a table, from those that have one; errors are of one left out."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, gpu_name in GPUS.items():
        for part, rows in _formula_rows(_folder(data, name), gpu_facts(gpu_name)):
            parts.setdefault(part, []).append(rows.assign(gpu=gpu_name))
    source = SOURCE.format(device=", ".join(GPUS.values()), about="as formulas")
    found = {part: _formula(pd.concat(rows), "gpu") for part, rows in parts.items()}
    return {"source": source, **found}


def _formula_rows(folder: Path, gpu: GpuFacts) -> Iterator[tuple[str, pd.DataFrame]]:
    """Milliseconds measured, of reading and of computing, by kind of kernel."""
    yield "gemm", _product_rows(folder, gpu)
    rows = _plain_attention(folder / "generation_attention_perf.parquet")
    tokens = rows["batch_size"] * (rows["step"] + 1.0)
    kv_bytes = 2.0 * tokens * 2.0 * rows["num_key_value_heads"] * rows["head_dim"]
    read = 1e3 * kv_bytes / gpu.memory_bytes_per_s
    yield "decode_attention", pd.DataFrame({"ms": rows["latency"], "read": read, "compute": 0.0})
    rows = _plain_attention(folder / "context_attention_perf.parquet")
    rows = rows[rows["batch_size"] == rows["batch_size"].min()]
    flops = 2.0 * rows["num_heads"] * rows["head_dim"] * rows["isl"].astype(float) ** 2
    compute = 1e3 * flops / gpu.fp16_flops_per_s
    yield "prompt_attention", pd.DataFrame({"ms": rows["latency"], "read": 0.0, "compute": compute})
    yield "experts", _expert_rows(folder, gpu)
    if gpu.nvlink_gpus >= 8:
        rows = _in_graphs(folder)
        sent = 2.0 * (rows["num_gpus"] - 1) / rows["num_gpus"] * rows["message_size"]
        read = 1e3 * sent / gpu.nvlink_bytes_per_s
        yield "all_reduce", pd.DataFrame({"ms": rows["latency"], "read": read, "compute": 0.0})


def _product_rows(folder: Path, gpu: GpuFacts) -> pd.DataFrame:
    """Every seventh matrix product, enough for three numbers, of formats with their own rate."""
    rows = pd.read_parquet(folder / "gemm_perf.parquet")
    rows = rows.assign(kind=rows["gemm_dtype"].map(FORMATS))
    rows = rows[rows["m"].isin(ROWS) & rows["n"].ge(256) & rows["k"].ge(256)]
    rows = rows[rows["kind"].isin(["bf16", "fp8", "nvfp4"])].iloc[::7]
    weights = rows["n"].astype(float) * rows["k"]
    read = 1e3 * weights * rows["kind"].map(WEIGHT_BYTES) / gpu.memory_bytes_per_s
    flops_per_s = rows["kind"].map(lambda kind: flops_rate(gpu, kind))
    compute = 1e3 * 2.0 * rows["m"] * weights / flops_per_s
    return pd.DataFrame({"ms": rows["latency"], "read": read, "compute": compute})


def _plain_attention(path: Path) -> pd.DataFrame:
    """Rows of heads of 128 numbers in 16 bits, without windows."""
    rows = pd.read_parquet(path)
    if "window_size" in rows:
        rows = rows[rows["window_size"] == 0]
    rows = rows[(rows["kv_cache_dtype"] == "bfloat16") & (rows["head_dim"] == 128)]
    return rows[rows["num_key_value_heads"] <= MOST_KV_HEADS]


def _in_graphs(folder: Path) -> pd.DataFrame:
    """All-reduces inside a CUDA graph."""
    rows = pd.read_parquet(folder / "custom_allreduce_perf.parquet")
    return rows[rows["backend"] == "vllm_graph"].sort_values("message_size")


def _all_reduces(folder: Path) -> dict[str, Any]:
    """Bytes and microseconds by number of GPUs, inside a CUDA graph."""
    return {
        str(gpus): {
            "bytes": some["message_size"].tolist(),
            "us": _us(_rising(some["latency"].to_numpy())),
        }
        for gpus, some in _in_graphs(folder).groupby("num_gpus")
    }
