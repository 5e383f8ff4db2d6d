from dataclasses import replace

import numpy as np
import pytest

from harness.config.paths import PROFILES
from harness.costs.gpu_facts import gpu_facts
from harness.costs.iteration import expand, iteration_seconds
from harness.costs.model_facts import model_facts
from harness.costs.profiles import read_profiles
from harness.costs.roofline import (
    allreduce_bytes_per_token,
    compute_s_per_token,
    context_s_per_token,
    floor_s,
    read_calibration,
    roofline_kv_blocks,
    roofline_profile,
    touched_bytes,
)
from harness.tools.fitting.roofline import batch_seconds, calibrate

FOLDER = PROFILES / "a100_80g_vllm_0_3"
CALIBRATION = read_calibration(FOLDER)
IDEAL = replace(
    CALIBRATION,
    memory_efficiency=1.0,
    flops_efficiency=1.0,
    kv_efficiency=1.0,
    launch_s_per_layer={1: 0.0},
)
A100 = gpu_facts("A100-80G")
LLAMA = model_facts("Llama-2-7b-hf")
MIXTRAL = model_facts("Mixtral-8x7B-v0.1")


def test_published_rates_by_hand() -> None:
    """13.48 GB at 2.039 TB/s: 6.61 ms; 12.95 GFLOP at 312 TFLOP/s: 41.5 us; 512 KiB: 257 ns."""
    assert floor_s(LLAMA, A100, 1, IDEAL, np.ones(1))[0] == pytest.approx(6.6096e-3, rel=1e-4)
    assert compute_s_per_token(LLAMA, A100, 1, IDEAL) == pytest.approx(41.513e-6, rel=1e-4)
    assert context_s_per_token(LLAMA, A100, 1, IDEAL) == pytest.approx(257.13e-9, rel=1e-4)


def test_launching_bounds_a_small_part_of_the_weights() -> None:
    slow = replace(IDEAL, launch_s_per_layer={1: 1e-3})
    assert floor_s(LLAMA, A100, 1, slow, np.ones(1))[0] == pytest.approx(32e-3)


def test_ring_all_reduce_bytes() -> None:
    """Two all-reduces a layer of 4096 numbers of 2 bytes; a ring of 2 sends each once."""
    assert allreduce_bytes_per_token(LLAMA, 2) == 2 * 32 * 4096 * 2
    assert allreduce_bytes_per_token(LLAMA, 4) == 1.5 * allreduce_bytes_per_token(LLAMA, 2)
    assert allreduce_bytes_per_token(LLAMA, 1) == 0.0


def test_a_mixture_reads_the_experts_it_hits() -> None:
    one, many = touched_bytes(MIXTRAL, np.array([1.0, 1e6]))
    assert many == MIXTRAL.weight_bytes
    unused = 6 * 32 * MIXTRAL.expert_parameters * 2
    assert one == pytest.approx(MIXTRAL.weight_bytes - unused)


def test_faster_gpus_are_faster_and_more_memory_holds_more() -> None:
    seconds, blocks = [], []
    for name in ("V100-16G", "A100-40G", "A100-80G", "H100-80G", "H200-141G"):
        gpu = gpu_facts(name)
        table = expand(roofline_profile(LLAMA, gpu, 1, CALIBRATION), ("forward",))
        seconds.append(iteration_seconds(table, 0, 0, 0, 0.0, 128, 128 * 500, 500))
        blocks.append(roofline_kv_blocks(LLAMA, gpu, 1, CALIBRATION, 0.9))
    assert seconds == sorted(seconds, reverse=True)
    assert blocks == sorted(blocks)
    assert blocks[0] == 0
    assert blocks[1] > 1000


def test_long_prompts_cost_their_computation() -> None:
    """Far beyond the ridge one more token adds its FLOPs; reading the weights is hidden."""
    table = expand(roofline_profile(LLAMA, A100, 1, CALIBRATION), ("forward",))
    more = [iteration_seconds(table, 1, s, s, 0.0, 0, 0, 0) for s in (6000, 7000)]
    per_token_s = compute_s_per_token(LLAMA, A100, 1, CALIBRATION)
    assert more[1] - more[0] == pytest.approx(1000 * per_token_s, rel=0.01)


def test_the_stored_error_bar_is_within_its_aim() -> None:
    """Left-out architectures; half of the batches within these."""
    assert CALIBRATION.error["decode_median"] < 0.08
    assert CALIBRATION.error["prefill_median"] < 0.15
    assert CALIBRATION.error["kv_blocks_median"] < 0.02
    assert CALIBRATION.error["load_median"] < 0.25


def test_a_left_out_model_is_predicted() -> None:
    """Without any 7B Llama, the roofline still predicts its iterations."""
    profiles = read_profiles(FOLDER)
    seen = calibrate(
        profile for (name, _), profile in profiles.items() if model_facts(name).layers != 32
    )
    measured = batch_seconds(profiles["Llama-2-7b-chat-hf", 1])
    guessed = batch_seconds(roofline_profile(LLAMA, A100, 1, seen))
    for phase, limit in (("decode", 0.15), ("prefill", 0.25)):
        assert np.median(np.abs(guessed[phase] / measured[phase] - 1)) < limit


def test_prefill_and_decode_of_one_iteration_read_each_expert_once() -> None:
    """64 decodes and a chunk of 2048 both hit all of 8 experts; 2 decodes and 1 token hit 2."""
    reading = replace(IDEAL, request_share=0.0)
    table = expand(roofline_profile(MIXTRAL, A100, 1, reading), ("forward",))
    chunk = (1, 2048, 2048, 0.0)
    alone_s = iteration_seconds(table, *chunk, 0, 0, 0)
    decodes_s = iteration_seconds(table, 0, 0, 0, 0.0, 64, 0, 0)
    weights_s = MIXTRAL.weight_bytes / A100.memory_bytes_per_s
    both_s = iteration_seconds(table, *chunk, 64, 0, 0)
    assert alone_s + decodes_s - both_s == pytest.approx(weights_s, rel=1e-4)
    one_s = floor_s(MIXTRAL, A100, 1, IDEAL, np.ones(1))[0]
    few_s = iteration_seconds(table, 1, 1, 1, 0.0, 2, 0, 0)
    apart_s = iteration_seconds(table, 1, 1, 1, 0.0, 0, 0, 0)
    apart_s += iteration_seconds(table, 0, 0, 0, 0.0, 2, 0, 0)
    assert apart_s - few_s == pytest.approx(one_s, rel=1e-3)
