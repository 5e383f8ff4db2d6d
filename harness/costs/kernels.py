"""Seconds of the kernels of a forward pass on one GPU of a group: tables, else formulas.

A table is of one GPU (profiles/kernels, made by `harness.tools.fitting.kernels` from vLLM's
kernels). A formula takes a launch, and reading and computing at published rates, each times a
factor fitted to the tables of all GPUs (profiles/kernels/formula.json). `Kernels` takes what is in
the table, and says of everything else that it follows a formula, and how far that is off on what it
had not seen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.config.paths import PROFILES
from harness.config.schema import Count, NotNegative, Schema, Tokens, read_json
from harness.costs.gpu_facts import GpuFacts
from harness.costs.layer_kinds import Mixer

Floats = NDArray[np.float64]

KERNELS = PROFILES / "kernels"
FORMULA = KERNELS / "formula.json"

WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "mxfp4_mxfp8": 0.53125,
    "int4": 0.53125,
}
"""Of a weight with its part of the scales, by format."""
RATES = {
    "fp8": "fp8_flops_per_s",
    "fp8_block": "fp8_flops_per_s",
    "mxfp4_mxfp8": "fp8_flops_per_s",
    "nvfp4": "fp4_flops_per_s",
}
"""Rates of `GpuFacts` by format; other formats, and GPUs without the rate, multiply in 16 bits."""
EIGHT_BITS = "mxfp4_mxfp8"
"""Experts of mxfp4 whose inputs are of 8 bits (VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 of a B200)."""
LATENT_NUMBERS, LATENT_HIDDEN = 576, 7168
"""KV numbers and hidden size of the latent attention that was measured (DeepSeek-V3)."""


class _Decode(Schema):
    """Attention of a decode by batch: microseconds, and picoseconds of each token of context."""

    base_us: tuple[NotNegative, ...]
    per_context_ps: tuple[NotNegative, ...]


class Latent(_Decode):
    """Latent attention with its projections; `prompt` as in `_Table.prompt_attention`."""

    prompt: tuple[NotNegative, ...]


class Formula(Schema):
    """A launch, and factors on the seconds of reading and of computing at published rates.

    Reading and computing overlap in part: together they take the root of the sum of their squares.
    `error` is the median error on shapes, or GPUs, that the fit had not seen.
    """

    launch_us: NotNegative
    read: NotNegative
    compute: NotNegative
    error: NotNegative | None = None

    def seconds(self, read_s: Floats, compute_s: Floats) -> Floats:
        """Of reading and computing, whose seconds at published rates are given."""
        found: Floats = np.hypot(self.read * read_s, self.compute * compute_s)
        return 1e-6 * self.launch_us + found


class _Reduce(Schema):
    bytes: tuple[Count, ...]
    us: tuple[NotNegative, ...]


class _Table(Schema):
    """A file of one GPU.

    Matrix products by format, then by columns of the output and of the input (`sizes`) and `rows`.
    Attention by heads / KV heads / head size / window / bytes of a number of KV: a decode along
    `batches`; of a prompt microseconds, picoseconds of a token, and of `Work.prefill_attended`.
    Experts by format, hidden size / width / experts / experts of a token, and tensor parallel /
    expert parallel size, along `expert_tokens`. Latent attention by heads / format / bytes of a
    number of KV. All-reduces by GPUs.
    """

    gpu: str
    source: str
    sizes: tuple[Count, ...]
    rows: tuple[Count, ...]
    gemm_us: Mapping[str, tuple[tuple[tuple[NotNegative, ...], ...], ...]]
    batches: tuple[Count, ...]
    decode_attention: Mapping[str, _Decode]
    prompt_attention: Mapping[str, tuple[NotNegative, ...]]
    expert_tokens: tuple[Tokens, ...]
    experts_us: Mapping[str, Mapping[str, Mapping[str, tuple[NotNegative, ...]]]]
    experts_formula: Mapping[str, Formula]
    latent_attention: Mapping[str, Latent]
    all_reduce: Mapping[str, _Reduce]


class _Formulas(Schema):
    """The file of formulas for GPUs without a table."""

    source: str
    gemm: Formula
    decode_attention: Formula
    prompt_attention: Formula
    experts: Formula
    all_reduce: Formula


@cache
def read_table(path: Path) -> _Table:
    """A table, whole. Raises ValueError for a bad one."""
    return read_json(path, _Table)


@cache
def _products(path: Path, kind: str) -> Floats:
    """Log microseconds by n, k and tokens."""
    return np.log(np.asarray(read_table(path).gemm_us[kind], np.float64))


@cache
def read_formulas() -> _Formulas:
    """The formulas for what no table has."""
    return read_json(FORMULA, _Formulas)


def flops_rate(gpu: GpuFacts, kind: str) -> float:
    """Dense FLOPs a second at which a GPU multiplies weights of a format."""
    return getattr(gpu, RATES.get(kind, ""), None) or gpu.fp16_flops_per_s


def table_path(gpu: GpuFacts) -> Path | None:
    """The file of a GPU's kernels, or of the GPU whose kernels stand for them; None without one."""
    path = KERNELS / f"{gpu.kernels_of or gpu.name}.json"
    return path if path.is_file() else None


def tables() -> list[str]:
    """The GPUs of which there are tables."""
    return sorted(path.stem for path in KERNELS.glob("*.json") if path != FORMULA)


@dataclass(frozen=True)
class Kernels:
    """Seconds of kernels on one GPU of a group of `tensor_parallel`.

    `expert_parallel` says whether a GPU holds whole experts, or a part of each; without `has_table`
    all follow formulas. `roofline` allows formulas for what the table of the GPU lacks. `notes`
    says in sentences what was not taken as it was measured, and of each whether a formula fitted
    to other GPUs stands for it.
    """

    gpu: GpuFacts
    tensor_parallel: int
    expert_parallel: bool = False
    has_table: bool = True
    roofline: bool = True
    notes: dict[str, bool] = field(default_factory=dict)

    @property
    def _path(self) -> Path | None:
        return table_path(self.gpu) if self.has_table else None

    @property
    def basis(self) -> str:
        """What the seconds follow."""
        if self.is_roofline:
            return f"formulas of kernels (roofline) of {self.gpu.name}"
        return f"kernels of {self.gpu.kernels_of or self.gpu.name}"

    @property
    def is_roofline(self) -> bool:
        """Whether there is no table, so that everything follows formulas."""
        return self._path is None

    @property
    def lacks_kernels(self) -> bool:
        """Whether anything so far followed a formula that was fitted to other GPUs."""
        return self.is_roofline or any(self.notes.values())

    @property
    def source(self) -> str:
        """Of the table, or of the formulas."""
        return read_formulas().source if self._path is None else read_table(self._path).source

    def _formula(
        self, what: str, error: float | None, *, of_gpu: bool = False, there: Iterable[str] = ()
    ) -> None:
        """Note a formula, one fitted to the table of this GPU or to all of them.

        Raises ValueError where formulas are not allowed, with what is `there` in the table.
        """
        if not (of_gpu or self.roofline):
            known = f" but of {', '.join(sorted(there))}" if there else ""
            raise ValueError(
                f"{self.gpu.name} has no kernels of {what}{known}; hardware.roofline=true takes a "
                "formula in their place"
            )
        off = "an error that is not known" if error is None else f"a median error of {error:.0%}"
        self.notes[f"{what} by a formula ({off})"] = not of_gpu

    def stand_in(self, what: str) -> None:
        """Note that one product stands for the projections of what was not measured."""
        self._formula(what, None)

    def gemm_s(self, kind: str, n: float, k: float, tokens: Floats) -> Floats:
        """Of `tokens` rows of k numbers by a matrix of k x n weights of a format."""
        if self._path is not None and kind in read_table(self._path).gemm_us:
            return _product_s(self._path, kind, n, k, tokens)
        formula = read_formulas().gemm
        there = () if self._path is None else read_table(self._path).gemm_us
        self._formula(f"matrix products of {kind} weights", formula.error, there=there)
        read_s = n * k * WEIGHT_BYTES[kind] / self.gpu.memory_bytes_per_s
        compute_s = 2.0 * n * k * tokens / flops_rate(self.gpu, kind)
        return formula.seconds(read_s + 0.0 * tokens, compute_s)

    def decode_s(self, mixer: Mixer, kv_bytes: int, requests: Floats) -> tuple[Floats, Floats]:
        """Of attention of a decode: seconds of the batch, and of each token of its context."""
        found = self._shape("decode_attention", mixer, kv_bytes)
        if found is not None:
            table, shape, times = found
            entry = table.decode_attention[shape]
            at, batches = requests * times, np.asarray(table.batches, np.float64)
            base_us = np.interp(at, batches, entry.base_us)
            base_us *= np.maximum(1.0, at / batches[-1])
            slope_ps = np.interp(at, batches, entry.per_context_ps)
            return 1e-6 * base_us, 1e-12 * slope_ps * times
        formula = read_formulas().decode_attention
        self._formula(f"decode attention, {_kv(mixer, kv_bytes)}", formula.error)
        _, kv_heads = self._heads(mixer)
        numbers = kv_heads * mixer.kv_numbers_per_head
        slope_s = formula.read * kv_bytes * numbers / self.gpu.memory_bytes_per_s
        return 1e-6 * formula.launch_us + 0.0 * requests, slope_s + 0.0 * requests

    def state_s(self, state_bytes: int, requests: Floats) -> Floats:
        """Of reading and writing the state of a layer for each request of a decode.

        At the rate at which attention reads KV, by the formula of decode attention.
        """
        each_bytes = 2.0 * state_bytes / self.tensor_parallel
        factor = read_formulas().decode_attention.read
        found: Floats = factor * each_bytes / self.gpu.memory_bytes_per_s * requests
        return found

    def prompt_s(self, mixer: Mixer, kv_bytes: int) -> tuple[float, float, float]:
        """Of attention of a prompt: its seconds, of a token, and of `Work.prefill_attended`."""
        found = self._shape("prompt_attention", mixer, kv_bytes)
        if found is not None:
            table, shape, times = found
            base, per_token, per_attended = table.prompt_attention[shape]
            return 1e-6 * base, 1e-12 * per_token * times, 1e-12 * per_attended * times
        formula = read_formulas().prompt_attention
        self._formula(f"prompt attention, {_kv(mixer, kv_bytes)}", formula.error)
        flops = 2.0 * mixer.attended_width / self.tensor_parallel
        return 1e-6 * formula.launch_us, 0.0, formula.compute * flops / self.gpu.fp16_flops_per_s

    def _heads(self, mixer: Mixer) -> tuple[int, int]:
        """Heads and KV heads of one GPU."""
        kv_heads = mixer.kv_heads_per_gpu(self.tensor_parallel)
        return max(kv_heads, mixer.heads // self.tensor_parallel), kv_heads

    def has_window(self, mixer: Mixer, kv_bytes: int) -> bool:
        """Whether the table has a mixer's window; else its kernels are those without one."""
        found = self._shape("decode_attention", mixer, kv_bytes)
        return found is not None and found[1].split("/")[3] == str(mixer.window_tokens)

    def _shape(self, part: str, mixer: Mixer, kv_bytes: int) -> tuple[_Table, str, float] | None:
        """The table, the shape in it that stands for a mixer, and how many of these the mixer is.

        A shape of fewer KV heads, each with as many heads, stands for so many requests of its own;
        where there is none of as many heads to a KV head, one of a few more.
        """
        if self._path is None or mixer.kv_numbers_per_head % 2:
            return None
        table = read_table(self._path)
        known = getattr(table, part)
        heads, kv_heads = self._heads(mixer)
        each = -(-heads // kv_heads)
        divisors = [size for size in range(kv_heads, 0, -1) if kv_heads % size == 0]
        for more, window in product(range(each, 2 * each + 1), (mixer.window_tokens, 0)):
            for fewer in divisors:
                rest = f"{mixer.kv_numbers_per_head // 2}/{window}/{kv_bytes}"
                shape = f"{more * fewer}/{fewer}/{rest}"
                if shape in known:
                    if more > each:
                        said = f"attention of {each} heads to a KV head as of {more}"
                        self.notes[said] = False
                    return table, shape, kv_heads / fewer
        return None

    def latent(self, kind: str, kv_bytes: int, heads: int) -> Latent | None:
        """Latent attention with its projections, of so many heads on a GPU; None if no table."""
        if self._path is None:
            return None
        return read_table(self._path).latent_attention.get(f"{heads}/{kind}/{kv_bytes}")

    def latent_s(self, entry: Latent, requests: Floats) -> tuple[Floats, Floats]:
        """As `decode_s`, projections of the batch included."""
        assert self._path is not None
        batches = np.asarray(read_table(self._path).batches, np.float64)
        base_us = np.interp(requests, batches, entry.base_us)
        return 1e-6 * base_us, 1e-12 * np.interp(requests, batches, entry.per_context_ps)

    def experts_s(
        self, kind: str, hidden: int, inter: int, experts: int, per_token: int, tokens: Floats
    ) -> Floats:
        """Of the routed experts of a layer, for `tokens` of the whole group."""
        tp = 1 if self.expert_parallel else self.tensor_parallel
        ep = self.tensor_parallel if self.expert_parallel else 1
        shape, split = f"{hidden}/{inter}/{experts}/{per_token}", f"{tp}/{ep}"
        table = None if self._path is None else read_table(self._path)
        if kind == "mxfp4" and table is not None and EIGHT_BITS in table.experts_formula:
            kind = EIGHT_BITS
            self.notes["experts multiply activations of 8 bits, as vLLM's recipe sets it"] = False
        if table is not None and split in table.experts_us.get(kind, {}).get(shape, {}):
            line, at = table.experts_us[kind][shape][split], table.expert_tokens
            us = np.interp(tokens, at, line) * np.maximum(1.0, tokens / at[-1])
            return np.asarray(1e-6 * us, np.float64)
        own = None if table is None else table.experts_formula.get(kind)
        formula = own or read_formulas().experts
        there = () if table is None else table.experts_formula
        what = f"experts of {kind} weights"
        self._formula(what, formula.error, of_gpu=own is not None, there=there)
        touched = experts / ep * (1.0 - (1.0 - per_token / experts) ** tokens)
        numbers = 3.0 * hidden * inter / tp
        read_s = touched * numbers * WEIGHT_BYTES[kind] / self.gpu.memory_bytes_per_s
        return formula.seconds(
            read_s, 2.0 * tokens * per_token / ep * numbers / flops_rate(self.gpu, kind)
        )

    def all_reduce_s(self, message_bytes: Floats) -> Floats:
        """Of adding up so many bytes over the group."""
        gpus = self.tensor_parallel
        if gpus == 1:
            return 0.0 * message_bytes
        table = None if self._path is None else read_table(self._path)
        if table is not None and str(gpus) in table.all_reduce and self._is_joined:
            entry = table.all_reduce[str(gpus)]
            us = np.interp(message_bytes, entry.bytes, entry.us)
            us *= np.maximum(1.0, message_bytes / entry.bytes[-1])
            return np.asarray(1e-6 * us, np.float64)
        formula = read_formulas().all_reduce
        self._formula(f"all-reduces of {gpus} GPUs", formula.error, of_gpu=True)
        facts = self.gpu
        rate = facts.nvlink_bytes_per_s if gpus <= facts.nvlink_gpus else facts.pcie_bytes_per_s
        sent_s = 2.0 * (gpus - 1) / gpus * message_bytes / rate
        return 1e-6 * formula.launch_us + formula.read * sent_s

    @property
    def _is_joined(self) -> bool:
        """Whether the links are those that were measured: NVLink of the GPU of the table itself.

        What joins GPUs over PCIe depends on the machine: the L40S that were measured add up eight
        parts at 1 GB/s.
        """
        own = not self.gpu.kernels_of or self.gpu.kernels_links
        return own and self.tensor_parallel <= self.gpu.nvlink_gpus


def _kv(mixer: Mixer, kv_bytes: int) -> str:
    """What of a mixer a table may lack."""
    return f"heads of {mixer.kv_numbers_per_head // 2} with KV of {8 * kv_bytes} bits"


def _product_s(path: Path, kind: str, n: float, k: float, tokens: Floats) -> Floats:
    """Linear in tokens, log-linear in n and k between the sizes; beyond them by the size."""
    table, grid = read_table(path), _products(path, kind)
    sizes = np.asarray(table.sizes, np.float64)
    total = np.zeros(len(tokens))
    rows = np.asarray(table.rows, np.float64)
    for i, n_part in _beside(sizes, n):
        for j, k_part in _beside(sizes, k):
            line = np.interp(tokens, rows, np.exp(grid[i, j]))
            line *= np.maximum(1.0, tokens / rows[-1])
            total += n_part * k_part * np.log(line)
    beyond = max(1.0, n / sizes[-1]) * max(1.0, k / sizes[-1])
    seconds: Floats = 1e-6 * np.exp(total) * beyond
    return seconds


def _beside(sizes: Floats, size: float) -> list[tuple[int, float]]:
    """The sizes around one and their shares in it, by logarithm."""
    at = int(np.clip(np.searchsorted(sizes, size), 1, len(sizes) - 1))
    low, high = sizes[at - 1], sizes[at]
    part = float(np.clip(np.log(size / low) / np.log(high / low), 0.0, 1.0))
    return [(place, share) for place, share in ((at - 1, 1.0 - part), (at, part)) if share]
