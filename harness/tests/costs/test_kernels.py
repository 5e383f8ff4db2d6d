"""Kernels of tables and of formulas, by values that were worked out from the measurements."""

from dataclasses import replace

import numpy as np
import pytest

from harness.costs.engine_kinds import ENGINES, engine_kind
from harness.costs.gpu_facts import GpuFacts, gpu_facts
from harness.costs.kernels import Kernels, read_formulas, read_table, table_path
from harness.costs.layer_kinds import Mixer

H100 = gpu_facts("H100-80G")
FOUR = Kernels(H100, tensor_parallel=4)
BATCHES = np.array([1.0, 8.0, 64.0])
LLAMA_70B = Mixer(
    parameters=1, heads=64, kv_heads=8, kv_numbers_per_head=256, attended_width=64 * 128
)


@pytest.mark.parametrize(
    ("n", "k", "us"),
    [
        (2560, 8192, (14.13, 14.13, 16.65)),
        (8192, 2048, (10.70, 10.83, 11.29)),
        (8192, 7168, (25.47, 26.46, 27.63)),
        (12288, 8192, (40.22, 40.69, 42.99)),
        (14336, 8192, (45.20, 45.87, 48.32)),
        (16384, 8192, (50.01, 50.88, 53.48)),
    ],
)
def test_matrix_products_of_a_layer(n: int, k: int, us: tuple[float, ...]) -> None:
    """Llama-3.1-70B in fp8 on four H100; 14336 columns lie between two sizes of the table."""
    assert 1e6 * FOUR.gemm_s("fp8", n, k, BATCHES) == pytest.approx(us, abs=0.011)


def test_a_product_beyond_the_table_goes_by_its_size() -> None:
    """So do logits that are wider than the widest matrix, and more tokens than were measured."""
    widest = FOUR.gemm_s("bf16", 65536, 8192, BATCHES)
    assert FOUR.gemm_s("bf16", 131072, 8192, BATCHES) == pytest.approx(2 * widest)
    most = FOUR.gemm_s("bf16", 8192, 8192, np.array([16384.0, 32768.0]))
    assert most[1] == pytest.approx(2 * most[0])
    least = FOUR.gemm_s("bf16", 128, 128, BATCHES)
    assert FOUR.gemm_s("bf16", 16, 128, BATCHES) == pytest.approx(least)


def test_all_reduces_of_hidden_states() -> None:
    """16,384 bytes a token; beyond the largest message by its size, and none on one GPU."""
    us = 1e6 * FOUR.all_reduce_s(16384 * BATCHES)
    assert us == pytest.approx((4.90, 7.18, 18.60), abs=0.011)
    path = table_path(H100)
    assert path is not None
    most = read_table(path).all_reduce["4"].bytes[-1]
    last, twice = FOUR.all_reduce_s(np.array([1.0, 2.0]) * most)
    assert twice == pytest.approx(2 * last)
    assert not Kernels(H100, 1).all_reduce_s(BATCHES).any()


def test_attention_of_a_decode() -> None:
    """1,024 tokens each; a line over the context is within 7% of what was measured there."""
    base_s, per_token_s = FOUR.decode_s(LLAMA_70B, 2, BATCHES)
    us = 1e6 * (base_s + per_token_s * 1024 * BATCHES)
    assert us == pytest.approx((12.60, 15.74, 37.35), rel=0.07)
    assert FOUR.basis == "kernels of H100-80G"


@pytest.mark.parametrize(("number_bytes", "us"), [(1, 191.9), (2, 255.6)])
def test_attention_of_long_contexts_reads_fewer_bytes_of_8_bits(
    number_bytes: int, us: float
) -> None:
    """64 requests of 4,096 tokens on one H200, as measured."""
    kernels = Kernels(gpu_facts("H200-141G"), 1)
    base_s, per_token_s = kernels.decode_s(LLAMA_70B, number_bytes, np.array([64.0]))
    assert 1e6 * (base_s + 64 * 4096 * per_token_s) == pytest.approx([us], rel=0.05)


def test_more_kv_heads_than_in_the_table_are_so_many_times_a_smaller_shape() -> None:
    """32 heads with a KV head each are four times 8, as four times the requests."""
    small = replace(LLAMA_70B, heads=8, kv_heads=8)
    large = replace(small, heads=32, kv_heads=32)
    one = Kernels(H100, 1)
    base_s, per_token_s = one.decode_s(small, 2, 4 * BATCHES)
    assert one.decode_s(large, 2, BATCHES)[0] == pytest.approx(base_s)
    assert one.decode_s(large, 2, BATCHES)[1] == pytest.approx(4 * per_token_s)
    few, many = one.prompt_s(small, 2), one.prompt_s(large, 2)
    assert many == pytest.approx((few[0], 4 * few[1], 4 * few[2]))
    assert not one.notes


def test_a_window_has_a_shape_of_its_own_or_else_none() -> None:
    """A window that was not measured has the kernels without one."""
    known, unknown = replace(LLAMA_70B, window_tokens=128), replace(LLAMA_70B, window_tokens=512)
    assert FOUR.has_window(known, 2)
    assert not FOUR.has_window(unknown, 2)
    plain, windowed = FOUR.decode_s(LLAMA_70B, 2, BATCHES), FOUR.decode_s(known, 2, BATCHES)
    assert (windowed[1] < 0.1 * plain[1])[-1]
    assert np.array_equal(FOUR.decode_s(unknown, 2, BATCHES), plain)


def test_experts_of_a_table() -> None:
    """As the table has them; beyond its tokens by their number."""
    tokens = np.array([1.0, 64.0, 16384.0, 32768.0])
    us = 1e6 * FOUR.experts_s("fp8_block", 3072, 1536, 256, 8, tokens)
    path = table_path(H100)
    assert path is not None
    line = read_table(path).experts_us["fp8_block"]["3072/1536/256/8"]["4/1"]
    assert us == pytest.approx((line[0], line[6], line[14], 2 * line[14]))
    assert not FOUR.notes


def test_mxfp4_experts_of_a_b200_multiply_activations_of_8_bits() -> None:
    """A shape that was not measured so follows the formula of these, not the table of 16 bits."""
    kernels = Kernels(gpu_facts("B200-180G"), 4)
    kernels.experts_s("mxfp4", 2880, 2880, 128, 4, BATCHES)
    first, second = kernels.notes
    assert first == "experts multiply activations of 8 bits, as vLLM's recipe sets it"
    assert second.startswith("experts of mxfp4_mxfp8 weights by a formula")


@pytest.mark.parametrize("gpu", [H100, gpu_facts("V100-16G")])
def test_what_is_in_no_table_follows_a_formula_and_says_so(gpu: GpuFacts) -> None:
    kernels = Kernels(gpu, 16)
    odd = replace(LLAMA_70B, kv_numbers_per_head=2 * 77)
    tokens = np.array([1.0, 4096.0])
    found = [
        kernels.gemm_s("int8", 4096, 4096, tokens),
        kernels.decode_s(odd, 2, tokens)[0],
        np.array(kernels.prompt_s(odd, 2))[[0, 2]],
        kernels.experts_s("int4", 1111, 768, 128, 8, tokens),
        kernels.all_reduce_s(8192 * tokens),
    ]
    assert all((seconds > 0).all() for seconds in found)
    said = list(kernels.notes)
    assert [each.split(" by a formula")[0] for each in said] == [
        "matrix products of int8 weights",
        "decode attention, heads of 77 with KV of 16 bits",
        "prompt attention, heads of 77 with KV of 16 bits",
        "experts of int4 weights",
        "all-reduces of 16 GPUs",
    ]
    assert f"a median error of {read_formulas().gemm.error:.0%}" in said[0]
    assert kernels.is_roofline == (gpu is not H100)


def test_a_formula_is_a_launch_and_reading_where_little_is_computed() -> None:
    formula = read_formulas().gemm
    (seconds,) = Kernels(H100, 1, has_table=False).gemm_s("bf16", 8192, 8192, np.ones(1))
    read_s = formula.read * 2 * 8192**2 / H100.memory_bytes_per_s
    assert seconds == pytest.approx(1e-6 * formula.launch_us + read_s, rel=1e-3)


@pytest.mark.parametrize("name", sorted(path.stem for path in ENGINES.glob("*.json")))
def test_every_kind_of_engine_is_read(name: str) -> None:
    assert engine_kind(name).name == name
