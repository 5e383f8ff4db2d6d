"""Tables of kernel seconds, one file a GPU, from latencies of vLLM's own kernels.

What is kept of the measurements (ai-dynamo/aiconfigurator, `silicon/` of the data): matrix products
on a grid of rows and sizes; attention as lines, since costs of an iteration are linear in tokens;
routed experts of the shapes that were measured, and a formula for other shapes; all-reduces inside
a CUDA graph. Seconds never fall with more rows, since a batch can be padded.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from harness.costs.gpu_facts import GpuFacts, gpu_facts
from harness.costs.kernels import WEIGHT_BYTES, flops_rate
from harness.fitting.stored import rounded

Floats = NDArray[np.float64]

FOLDER = "kernels"
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
    [128, 256, 512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 12288]
    + [16384, 65536]
)
"""Of a matrix: columns of the output and of the input that are kept."""
ROWS = 2.0 ** np.arange(15)
"""Tokens of a matrix product that are kept."""
BATCHES = 2.0 ** np.arange(11)
"""Requests of a decode that are kept."""
EXPERT_TOKENS = 2.0 ** np.arange(15)
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
BEYOND_CACHE_BYTES = 4e8
"""Three times the largest cache of these GPUs, 126 MB of a B200."""
UNUSED_EXPERTS = {("h100_sxm", "fp8"), ("h200_sxm", "fp8")}
"""3 to 6 times as slow as the same experts in blocks of fp8, which vLLM's models have."""


def kernel_files(data: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and content of the file of each GPU."""
    for folder, gpu in GPUS.items():
        yield f"{gpu}.json", kernel_file(data / "silicon" / "kernels" / folder, gpu_facts(gpu))


def kernel_file(folder: Path, gpu: GpuFacts) -> Mapping[str, Any]:
    """What is kept of one GPU. Seconds are in microseconds, slopes in picoseconds."""
    products = pd.read_parquet(folder / "gemm_perf.parquet")
    experts, formula = _experts(folder, gpu)
    about = products.iloc[0]
    return {
        "gpu": gpu.name,
        "source": SOURCE.format(device=about["device"], about=f"version {about['version']}"),
        "sizes": SIZES.tolist(),
        "rows": ROWS.astype(int).tolist(),
        "gemm_us": _products(products),
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


def _rising(values: Floats) -> Floats:
    """No entry is more than a later one."""
    found: Floats = np.minimum.accumulate(values[::-1])[::-1]
    return found


def _products(rows: pd.DataFrame) -> dict[str, Any]:
    """Microseconds of m x n x k by format, n and k."""
    table = rows.groupby(["gemm_dtype", "n", "k", "m"])["latency"].min()
    found: dict[str, Any] = {}
    for kind in rows["gemm_dtype"].unique():
        grid = np.empty((len(SIZES), len(SIZES), len(ROWS)))
        for i, n in enumerate(SIZES):
            for j, k in enumerate(SIZES):
                here = (n, k) if (kind, n, k) in table.index else (n, SIZES[j - 1])
                line = table[kind, here[0], here[1]]
                most = line.index.to_numpy(float)
                at = np.interp(ROWS, most, _rising(line.to_numpy()))
                at *= np.maximum(1.0, ROWS / most[-1])
                grid[i, j] = at * (k / here[1])
        found[FORMATS[kind]] = grid
    if "fp8_block" in found:
        # Kernels of few rows were timed with their launch by the host.
        found["fp8_block"] = np.minimum(found["fp8_block"], found["bf16"])
    return {kind: _us(grid) for kind, grid in found.items()}


def _line(columns: Floats, seconds: Floats) -> Floats:
    """Coefficients, none below 0, with the least relative squares."""
    found, _ = nnls(columns / seconds[:, None], np.ones(len(seconds)))
    return np.asarray(found, np.float64)


def _shapes(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a shape of attention: heads / KV heads / head size / window / bytes of KV."""
    rows = rows.assign(window=rows["window_size"] if "window_size" in rows else 0)
    keys = ["num_heads", "num_key_value_heads", "head_dim", "window", "kv_cache_dtype"]
    for (heads, kv_heads, size, window, kv), some in rows.groupby(keys):
        if heads % kv_heads == 0:
            number_bytes = {"bfloat16": 2, "fp8": 1}[str(kv)]
            yield f"{heads}/{kv_heads}/{size}/{window}/{number_bytes}", some


def _decodes(folder: Path) -> Iterator[tuple[str, Any]]:
    """By shape microseconds of a batch and picoseconds for each token of context in it."""
    for shape, rows in _shapes(pd.read_parquet(folder / "generation_attention_perf.parquet")):
        _, kv_heads, size, window, number_bytes = map(int, shape.split("/"))
        if kv_heads <= 8:
            token_bytes = 0.0 if window else 2.0 * kv_heads * size * number_bytes
            yield shape, _decode_lines(rows, "step", offset=1, token_bytes=token_bytes)


def _decode_lines(
    rows: pd.DataFrame, length: str, *, offset: int, token_bytes: float = 0.0
) -> dict[str, Any]:
    """Lines of seconds over context, one a batch size, from a grid of both."""
    grid = rows.pivot_table(index="batch_size", columns=length, values="latency")
    lengths = grid.columns.to_numpy(float) + offset
    values = grid.to_numpy().copy()
    for column in range(1, values.shape[1]):  # what had no room goes by its length
        longer = values[:, column - 1] * lengths[column] / lengths[column - 1]
        values[:, column] = np.where(np.isnan(values[:, column]), longer, values[:, column])
    batches = grid.index.to_numpy(float)
    if token_bytes:
        values = _from_memory(values, batches[:, None] * lengths, token_bytes)
    at = np.array([np.interp(DECODE_LENGTHS, lengths, row) for row in values])
    coefficients = []
    for batch in BATCHES:
        seconds = np.array([np.interp(batch, batches, column) for column in at.T])
        columns = np.c_[np.ones(len(DECODE_LENGTHS)), DECODE_LENGTHS * batch]
        coefficients.append(_line(columns, seconds))
    base, slope = np.array(coefficients).T
    return {"base_us": _us(base), "per_context_ps": rounded(1e9 * slope, 4)}


def _from_memory(values: Floats, tokens: Floats, token_bytes: float) -> Floats:
    """Seconds as they are when the KV is read from memory.

    Repeated on one layer, a kernel finds KV of up to the size of the cache there; an iteration
    reads the KV of all layers. So the rate of batches far beyond any cache holds for all.
    """
    launch = values[:, :1]
    beyond = tokens * token_bytes >= BEYOND_CACHE_BYTES
    if not beyond.any():
        return values
    rate = float(np.median(((values - launch) / tokens)[beyond]))
    return np.maximum(values, launch + rate * tokens)


def _prompts(folder: Path) -> Iterator[tuple[str, Any]]:
    """By shape microseconds of a prompt, picoseconds of a token and of `Work.prefill_attended`."""
    for shape, rows in _shapes(pd.read_parquet(folder / "context_attention_perf.parquet")):
        if int(shape.split("/")[1]) <= 8:
            first = rows[rows["batch_size"] == rows["batch_size"].min()]
            yield shape, _prompt_line(first)


def _prompt_line(rows: pd.DataFrame) -> list[float]:
    rows = rows[rows["isl"].between(*PROMPT_LENGTHS)]
    tokens = rows["isl"].to_numpy(float)
    columns = np.c_[np.ones(len(tokens)), tokens, tokens**2]
    base, per_token, per_attended = _line(columns, rows["latency"].to_numpy())
    found: list[float] = rounded([1e3 * base, 1e9 * per_token, 1e9 * per_attended], 4)
    return found


def _latent(folder: Path) -> Iterator[tuple[str, Any]]:
    """The same of DeepSeek's latent attention with its projections: heads / format / KV bytes."""
    if not (folder / "mla_generation_module_perf.parquet").is_file():
        return
    keys = ["num_heads", "gemm_type", "kv_cache_dtype"]
    decodes = pd.read_parquet(folder / "mla_generation_module_perf.parquet").groupby(keys)
    prompts = dict(list(pd.read_parquet(folder / "mla_context_module_perf.parquet").groupby(keys)))
    for key, rows in decodes:
        heads, kind, kv = key
        asked = prompts[key]
        alone = asked[asked["batch_size"] == 1].groupby("isl", as_index=False)["latency"].min()
        shape = f"{heads}/{FORMATS[kind]}/{ {'bfloat16': 2, 'fp8': 1}[kv] }"
        yield (
            shape,
            {
                **_decode_lines(rows, "step", offset=0),
                "prompt": _prompt_line(alone),
            },
        )


def _experts(folder: Path, gpu: GpuFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Microseconds by format, shape and split, and the formulas of other shapes by format."""
    found: dict[str, Any] = {}
    rows = _expert_rows(folder, gpu)
    for (kind, shape, split), line in rows.groupby(["kind", "shape", "split"]):
        found.setdefault(kind, {}).setdefault(shape, {})[split] = _us(line["ms"].to_numpy())
    return found, {kind: _formula(some, "shape") for kind, some in rows.groupby("kind")}


def _expert_rows(folder: Path, gpu: GpuFacts) -> pd.DataFrame:
    """Milliseconds of every format, shape and split; of reading and computing beside them."""
    rows = pd.read_parquet(folder / "moe_perf.parquet")
    rows = rows[(rows["distribution"] == SKEW) & rows["moe_dtype"].isin(FORMATS)]
    keys = ["moe_dtype", "hidden_size", "inter_size", "num_experts", "topk"]
    found = []
    for (kind, *shape), of_shape in rows.groupby(keys):
        if (folder.name, kind) in UNUSED_EXPERTS:
            continue
        named = {"kind": FORMATS[kind], "shape": "/".join(map(str, shape))}
        for (tp, ep), ms in _splits(of_shape).items():
            work = _expert_work(gpu, FORMATS[kind], *shape, tp, ep)
            at = {"split": f"{tp}/{ep}", "tokens": EXPERT_TOKENS, "ms": ms}
            found.append(pd.DataFrame(named | at | work))
    return pd.concat(found, ignore_index=True)


def _splits(rows: pd.DataFrame) -> dict[tuple[int, int], Floats]:
    """Milliseconds of the experts of one shape along `EXPERT_TOKENS`, by split."""
    found: dict[tuple[int, int], Floats] = {}
    for tp, ep in EXPERT_SPLITS:
        some = rows[(rows["moe_tp_size"] == tp) & (rows["moe_ep_size"] == ep)]
        if len(some):
            line = some.groupby("num_tokens")["latency"].min()
            most = line.index.to_numpy(float)
            at = np.interp(EXPERT_TOKENS, most, _rising(line.to_numpy()))
            found[tp, ep] = at * np.maximum(1.0, EXPERT_TOKENS / most[-1])
        elif ep == 1 and (tp // 2, 1) in found and (tp // 4, 1) in found:
            # Beyond the measured sizes another halving saves as much as the last one did.
            found[tp, ep] = found[tp // 2, 1] ** 2 / found[tp // 4, 1]
    return found


def _expert_work(
    gpu: GpuFacts,
    kind: str,
    hidden: int,
    inter: int,
    experts: int,
    per_token: int,
    tp: int,
    ep: int,
) -> dict[str, Floats]:
    """Milliseconds of reading touched experts and of computing, at published rates."""
    touched = experts / ep * (1.0 - (1.0 - per_token / experts) ** EXPERT_TOKENS)
    numbers = 3.0 * hidden * inter / tp
    read_bytes = touched * numbers * WEIGHT_BYTES[kind]
    flops = 2.0 * EXPERT_TOKENS * per_token / ep * numbers
    compute = 1e3 * flops / flops_rate(gpu, kind)
    return {"read": 1e3 * read_bytes / gpu.memory_bytes_per_s, "compute": compute}


def _formula(rows: pd.DataFrame, by: str) -> dict[str, Any]:
    """Launch, reading and computing of rows, with the median error where one of `by` is left out.

    `ms`, `read` and `compute` are milliseconds, the last two at published rates.
    """

    def fitted(some: pd.DataFrame) -> Floats:
        def errors(x: Floats) -> Floats:
            guess = x[0] * 1e-3 + np.hypot(x[1] * some["read"], x[2] * some["compute"])
            return np.asarray(np.log(guess / some["ms"]), np.float64)

        start, bounds = [5.0, 1.2, 1.5], ([0.1, 0.5, 0.0], [1e3, 20.0, 50.0])
        found = least_squares(errors, start, bounds=bounds, loss="soft_l1", f_scale=0.1)
        return np.asarray(found.x, np.float64)

    names, off = rows[by].unique(), []
    for name in names if len(names) > 1 else ():
        x, out = fitted(rows[rows[by] != name]), rows[rows[by] == name]
        guess = x[0] * 1e-3 + np.hypot(x[1] * out["read"], x[2] * out["compute"])
        off.append((guess / out["ms"] - 1.0).abs())
    launch, read, compute = fitted(rows).tolist()
    error = float(pd.concat(off).median()) if off else None
    found: dict[str, Any] = rounded(
        {"launch_us": launch, "read": read, "compute": compute, "error": error}, 4
    )
    return found


def formula_file(data: Path) -> Mapping[str, Any]:
    """Formulas for GPUs without a table, from those that have one; errors are of one left out."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, gpu_name in GPUS.items():
        folder, gpu = data / "silicon" / "kernels" / name, gpu_facts(gpu_name)
        for part, rows in _formula_rows(folder, gpu):
            parts.setdefault(part, []).append(rows.assign(gpu=gpu_name))
    source = SOURCE.format(device=", ".join(GPUS.values()), about="as formulas")
    found = {part: _formula(pd.concat(rows), "gpu") for part, rows in parts.items()}
    return {"source": source, **found}


def _formula_rows(folder: Path, gpu: GpuFacts) -> Iterator[tuple[str, pd.DataFrame]]:
    """Milliseconds measured, of reading and of computing, by kind of kernel."""
    rows = pd.read_parquet(folder / "gemm_perf.parquet")
    rows = rows[rows["m"].isin(ROWS) & rows["n"].ge(256) & rows["k"].ge(256)]
    kinds = rows["gemm_dtype"].map(FORMATS)
    rows = rows[kinds.isin(["bf16", "fp8", "nvfp4"])].iloc[::7]
    kinds = rows["gemm_dtype"].map(FORMATS)
    weights = rows["n"].astype(float) * rows["k"]
    rate = kinds.map(lambda kind: flops_rate(gpu, kind))
    read = 1e3 * weights * kinds.map(WEIGHT_BYTES) / gpu.memory_bytes_per_s
    compute = 1e3 * 2.0 * rows["m"] * weights / rate
    yield "gemm", pd.DataFrame({"ms": rows["latency"], "read": read, "compute": compute})
    for part, file in (("decode_attention", "generation"), ("prompt_attention", "context")):
        rows = pd.read_parquet(folder / f"{file}_attention_perf.parquet")
        if "window_size" in rows:
            rows = rows[rows["window_size"] == 0]
        rows = rows[(rows["kv_cache_dtype"] == "bfloat16") & (rows["head_dim"] == 128)]
        rows = rows[rows["num_key_value_heads"] <= 8]
        heads = rows["num_heads"].astype(float)
        if part == "decode_attention":
            tokens = rows["batch_size"] * (rows["step"] + 1.0)
            numbers = 2.0 * rows["num_key_value_heads"] * rows["head_dim"]
            read = 1e3 * 2.0 * tokens * numbers / gpu.memory_bytes_per_s
            yield part, pd.DataFrame({"ms": rows["latency"], "read": read, "compute": 0.0})
        else:
            rows = rows[rows["batch_size"] == rows["batch_size"].min()]
            flops = 2.0 * rows["num_heads"] * rows["head_dim"] * rows["isl"].astype(float) ** 2
            compute = 1e3 * flops / gpu.fp16_flops_per_s
            yield part, pd.DataFrame({"ms": rows["latency"], "read": 0.0, "compute": compute})
    yield "experts", _expert_rows(folder, gpu)
    if gpu.nvlink_gpus >= 8:
        rows = pd.read_parquet(folder / "custom_allreduce_perf.parquet")
        rows = rows[rows["backend"] == "vllm_graph"]
        sent = 2.0 * (rows["num_gpus"] - 1) / rows["num_gpus"] * rows["message_size"]
        read = 1e3 * sent / gpu.nvlink_bytes_per_s
        yield "all_reduce", pd.DataFrame({"ms": rows["latency"], "read": read, "compute": 0.0})


def _all_reduces(folder: Path) -> dict[str, Any]:
    """Bytes and microseconds by number of GPUs, inside a CUDA graph."""
    rows = pd.read_parquet(folder / "custom_allreduce_perf.parquet")
    rows = rows[rows["backend"] == "vllm_graph"].sort_values("message_size")
    return {
        str(gpus): {
            "bytes": some["message_size"].tolist(),
            "us": _us(_rising(some["latency"].to_numpy())),
        }
        for gpus, some in rows.groupby("num_gpus")
    }
