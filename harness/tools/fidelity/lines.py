"""Lines of the fidelity table: what was predicted, by what, and how far off.

Of whole iterations: stored profiles on rows they had not seen, shares of the SMs, the rooflines. Of
single operators: what the parts of both rooflines say of kernels measured apart; small kernels,
whose time is their launch, are left out (`least_ms`).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from harness.config.paths import PROFILES
from harness.costs.gpu_facts import GpuFacts, gpu_facts
from harness.costs.iteration import MAX_REQUESTS
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import BYTES_PER_NUMBER
from harness.costs.profiles import read_profiles
from harness.costs.roofline import Calibration, at_size, read_calibration
from harness.interface.entities import ServiceId, Work
from harness.tools.fitting.iteration_rows import (
    ALL_SMS,
    MeasuredSource,
    by_pair,
    iteration_rows,
    measured_sources,
    raw_rows,
)
from harness.tools.fitting.operator_rates import (
    EAGER,
    GPU,
    PCIE_GPU,
    calibrated_overheads,
    from_operators,
    measured_overheads,
)
from harness.tools.fitting.roofline_across import (
    FOLDER,
    PHASES,
    Compared,
    compare,
    compare_profiles,
    left_out,
)
from harness.tools.fitting.rows import held_out_seconds, predicted_seconds

HELD_OUT = "measured profile, row held out"
SAME_ROWS = "fitted on the same rows"
ONE_ENGINE = "roofline of one engine"
ACROSS = "roofline, its authors left out"
CORRECTED = "corrected roofline"
UNSEEN_ARCHITECTURE = "roofline, architecture left out"
SIMULATED = "simulated, profile fitted elsewhere"
INNER_SIZES = "held out: the smallest and the largest number of requests never are"
SELECTED = (
    "left out of the slowdown only: which operators to adopt was chosen among about 20 settings by "
    "these errors, so they flatter somewhat"
)
AUTHORS = "its authors' own planner"
LAYER = ["attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms"]

Column: TypeAlias = "pd.Series[float]"
SecondsOf = Callable[[pd.DataFrame, GpuFacts, Calibration], Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Errors are relative to the measured seconds, without sign but for `bias`, their median.

    `seen` says whether the predictor was fitted on these very rows. `low_s` and `high_s` are the
    range of what was measured. None where a number is not known.
    """

    source: str
    gpu: str
    engine: str
    model: str
    tensor_parallel: int | None = None
    what: str
    basis: str
    seen: bool = False
    rows: int
    median_error: float | None
    p95_error: float | None = None
    bias: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    note: str = ""


def line(measured_s: ArrayLike, predicted_s: ArrayLike, **about: Any) -> Line:
    """The line of some rows; `about` are the fields that say what they are."""
    measured = np.asarray(measured_s, np.float64)
    errors = np.asarray(predicted_s, np.float64) / measured - 1.0
    return Line(
        rows=len(measured),
        median_error=float(np.median(np.abs(errors))),
        p95_error=float(np.quantile(np.abs(errors), 0.95)),
        bias=float(np.median(errors)),
        low_s=float(measured.min()),
        high_s=float(measured.max()),
        **about,
    )


@cache
def sources() -> Mapping[str, Any]:
    """Which data folders are read, and as what."""
    path = Path(__file__).with_name("sources.json")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def logged_lines(data: Path) -> Iterator[Line]:
    """The profiles of the logged engine, by the errors that were found when they were fitted.

    Every fifth number of requests was left out in turn; fitting again would take minutes.
    """
    logged = sources()["logged"]
    profiles = read_profiles(PROFILES / logged["folder"])
    rows = pd.read_parquet(data / logged["file"])
    example = next(iter(profiles.values()))
    about = {"source": logged["name"], "gpu": example.gpu, "engine": example.engine}
    for model, size, pair in by_pair(rows):
        error = profiles[model, size].error
        for phase in PHASES:
            of_phase = pair[pair["is_prefill"] == (phase == "prefill")]
            yield Line(
                **about,
                model=model,
                tensor_parallel=size,
                what=f"{phase} iteration",
                basis=HELD_OUT,
                rows=len(of_phase),
                median_error=error[f"{phase}_median"],
                p95_error=error[f"{phase}_p95"],
                low_s=float(of_phase["iter_s"].min()),
                high_s=float(of_phase["iter_s"].max()),
            )
    # What the roofline said of architectures it was not calibrated on.
    error = read_calibration(PROFILES / logged["folder"]).error
    for what in (*PHASES, "load", "kv_blocks"):
        yield Line(
            **about,
            model="all",
            what=f"{what} iteration" if what in PHASES else what.replace("_", " "),
            basis=UNSEEN_ARCHITECTURE,
            rows=len(profiles),
            median_error=error[f"{what}_median"],
            p95_error=error[f"{what}_p95"],
            note="rows: pairs of model and size",
        )


def measured_lines(data: Path) -> Iterator[Line]:
    """The profiles of `profiles/measured.json`, where there are rows to hold out."""
    for source in measured_sources():
        if not source.folder:
            continue
        profiles = read_profiles(PROFILES / source.folder)
        for model, size, pair in by_pair(iteration_rows(source, data)):
            if seen := source.kind == "coefficients":
                seconds = predicted_seconds(profiles[model, size], pair)
            else:
                kept, seconds = held_out_seconds(pair)
                pair = pair[kept]
            for phase in PHASES:
                chosen = (pair["phase"] == phase).to_numpy()
                if chosen.any():
                    yield line(
                        pair["seconds"].to_numpy()[chosen],
                        seconds[chosen],
                        **_about(source, model, size),
                        what=f"{phase} iteration",
                        basis=SAME_ROWS if seen else HELD_OUT,
                        seen=seen,
                        note=source.note if seen else INNER_SIZES,
                    )


def _about(source: MeasuredSource, model: str, size: int) -> dict[str, Any]:
    """What was measured, of one model on `size` GPUs."""
    about = {"source": source.family, "gpu": source.gpu, "engine": source.engine}
    return about | {"model": model, "tensor_parallel": size}


def share_lines(data: Path) -> Iterator[Line]:
    """One line per model, size and phase over all shares below 1.

    Seconds at all of the SMs are fitted; how much longer a share takes is the median of the very
    rows that it is held against, over lengths of sequence: the line says how far those differ.
    """
    for source in measured_sources():
        if source.folder not in sources()["shares"]:
            continue
        costs = ProfileCosts(
            gpu=source.gpu, profile_dir=source.folder, memory_share=1.0, parts=PARTS
        )
        rows = raw_rows(source, data)
        rows = rows[(rows["sm_percent"] < ALL_SMS) & (rows["batch_size"] <= MAX_REQUESTS)]
        for model, size, pair in by_pair(rows):
            for phase in PHASES:
                predicted_s = [
                    costs.iteration_s(
                        ServiceId(model),
                        size,
                        _work(phase, row["batch_size"], row["seq_len"]),
                        gpu_share=row["sm_percent"] / ALL_SMS,
                    )
                    for row in pair.to_dict("records")
                ]
                yield line(
                    pair[f"{phase}_ms"].to_numpy(np.float64) / 1e3,
                    predicted_s,
                    **_about(source, model, size),
                    what=f"{phase} on a share of the SMs",
                    basis=SAME_ROWS,
                    seen=True,
                )


def _work(phase: str, requests: int, length: int) -> Work:
    tokens = requests * length
    if phase == "decode":
        return Work(decode_requests=requests, context_tokens=tokens, longest_tokens=length)
    return Work(
        prefill_requests=requests,
        prefill_tokens=tokens,
        prefill_padded_tokens=tokens,
        prefill_attended=float(tokens * length),
    )


def roofline_lines(data: Path) -> Iterator[Line]:
    """The roofline of the logged engine on what others measured; the corrected one on everything.

    Its slowdown comes from other authors only, and the operators it rests on are no rows of these;
    but which operators to adopt was chosen by these errors (`SELECTED`).
    """
    folder = PROFILES / sources()["logged"]["folder"]
    calibration = read_calibration(folder)
    for pair in compare(data, calibration):
        yield _roofline_line(pair, ONE_ENGINE, {})
    operators = from_operators(calibration, data)
    pairs = compare_profiles(read_profiles(folder).values(), operators) + compare(data, operators)
    judged_by = left_out(pairs)
    for pair in pairs:
        yield _roofline_line(pair, ACROSS, judged_by[pair.family])


def _roofline_line(pair: Compared, basis: str, slowdown: Mapping[str, Mapping[int, float]]) -> Line:
    logged = sources()["logged"]
    notes = {source.engine: source.note for source in measured_sources()}
    measured = pair.engine in notes
    of_rows = notes[pair.engine] if measured else "batches of the profile"
    return line(
        pair.measured_s,
        pair.measured_s * (1.0 + pair.errors(slowdown)),
        source=pair.family if measured else logged["name"],
        **{it: getattr(pair, it) for it in ("gpu", "engine", "model", "tensor_parallel")},
        what=f"{pair.phase} iteration",
        basis=basis,
        note="; ".join(note for note in (of_rows, SELECTED if basis == ACROSS else "") if note),
    )


def operator_lines(data: Path) -> Iterator[Line]:
    """Lines of both collections of kernel measurements."""
    for basis, folder in ((ONE_ENGINE, sources()["logged"]["folder"]), (CORRECTED, FOLDER)):
        found = read_calibration(PROFILES / folder)
        for about, gpu, what, measured, seconds, used in (*_kernels(data), *_profiled(data)):
            large = measured[measured["ms"] >= about["least_ms"]]
            rows = large.select_dtypes("number").astype(np.float64)
            yield line(
                rows["ms"] / 1e3,
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
    width = rows["num_kv_heads"] * rows["head_dim"]
    tokens = rows["batch_size"] * rows["context_len"]
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


MeasuredBatches: TypeAlias = tuple[Any, str, str, pd.DataFrame, SecondsOf, bool]
"""About the source, GPU, what, rows with their `ms`, and the seconds of the rooflines.

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
        rows = rows.rename(columns={"latency_ms": "ms"})
        if "backend" in rows:
            rows = rows[rows["backend"] == EAGER]
        for device, name in about["gpus"].items():
            of_device = rows[rows["device"] == device]
            yield about, name, what, of_device, seconds, used and name == GPU


def _profiled(data: Path) -> Iterator[MeasuredBatches]:
    about = sources()["operators"]
    folder = data / about["folder"]
    rows = pd.read_parquet(folder / "mlp.parquet")
    rows["ms"] = rows[LAYER].sum(axis=1)
    for device, name in about["gpus"].items():
        of_device = rows[rows["device"] == device]
        yield about, name, "matrix products of a layer", of_device, _layer, False
    names = {"num_workers": "num_gpus", "median_ms": "ms"}
    rows = pd.read_parquet(folder / "network.parquet").rename(columns=names)
    rows = rows[(rows["op"] == "all_reduce") & (rows["num_gpus"] == rows["devices_per_node"])]
    rows["message_elements"] = rows["size_bytes"] / BYTES_PER_NUMBER
    for network, name in about["networks"].items():
        of_network, what = rows[rows["network"] == network], f"all-reduce, {network}"
        yield about, name, what, of_network, _all_reduce, name == PCIE_GPU
    rows = pd.read_csv(folder / "cpu_overheads_a100.csv.gz")
    rows["ms"] = 1e3 * measured_overheads(rows)
    yield about, GPU, "CPU side of a decode", rows, _overheads, True
