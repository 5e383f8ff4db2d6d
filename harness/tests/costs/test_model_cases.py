"""Published configs whose sizes other tools have read wrong, and what is right."""

import pytest

from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.interface.entities import ServiceId, Work
from harness.tests.support.cases import CASES, listed

RIGHT = {
    # billions of parameters, GB of weights, KV bytes of a token of a short context
    "cohere2-7b.json": (8.028, 16.06, 131_072),
    "deepseek-v3.2.json": (671.9, 674, 78_324),
    "deepseek-v3.json": (671.0, 673.0, 70_272),
    "ernie-4.5-0.3b.json": (0.3607, 0.7215, 18_432),
    "ernie-4.5-21b-a3b.json": (21.8, 43.7, 57_344),
    "exaone-4-32b.json": (32, 64.01, 262_144),
    "falcon-h1-7b.json": (7.586, 15.17, 45_056),
    "gemma-3-27b.json": (27.0, 54.0, 507_904),
    "gemma-3-4b-as-published.json": (3.88, 7.76, 139_264),
    "gemma-3n-e4b-text.json": (6.87, 13.74, 40_960),
    "granite-4.0-h-small.json": (32.2, 64.4, 16_384),
    "granite-4.0-h-tiny.json": (6.939, 13.88, 8_192),
    "kimi-k2.json": (1026, 1029.2, 70_272),
    "llama-3.2-1b.json": (1.236, 2.472, 32_768),
    "llama-4-scout.json": (107.8, 215.5, 196_608),
    "llama2-7b-linear-rope.json": (6.738, 13.48, 524_288),
    "llama3.1-8b-nvfp4-modelopt.json": (8.03, 6.027, 65_536),
    "llama3.1-8b-w4a16-ct.json": (8.03, 5.701, 131_072),
    "llama3.3-70b-fp8-dynamic.json": (70.55, 72.66, 327_680),
    "llama4-step2.json": (32.27, 64.54, 98_304),
    "minimax-m1.json": (456, 912, 40_960),
    "mistral-7b-v0.3-f32.json": (7.248, 14.5, 131_072),
    "mistral-small-3.2.json": (23.57, 47.14, 163_840),
    "modelopt_fp8/config.json": (8.03, 9.081, 65_536),
    "moonlight-16b-a3b.json": (15.96, 31.92, 31_104),
    "nemotron-nano-9b-v2.json": (8.888, 17.78, 16_384),
    "params.json": (23.57, 47.14, 163_840),
    "phi-4-mini-as-published.json": (3.836, 7.672, 131_072),
    "phi-mini-moe.json": (7.65, 15.3, 131_072),
    "qwen2.5-0.5b.json": (0.494, 0.9881, 12_288),
    "qwen2.5-7b-1m.json": (7.616, 15.23, 57_344),
    "qwen2.5-7b-awq.json": (7.616, 5.571, 57_344),
    "qwen3-30b-a3b-fp8.json": (30.5, 31.2, 98_304),
    "qwen3-30b-a3b.json": (30.5, 61.1, 98_304),
    "qwen3-8b-yarn.json": (8.191, 16.38, 147_456),
    "qwen3-8b.json": (8.191, 16.38, 147_456),
    "qwen3-next-80b-a3b.json": (79.67, 159.3, 24_576),
    "qwen3moe-mlp-only-layers.json": (28.27, 56.53, 98_304),
    "smollm2-1.7b-as-published.json": (1.711, 3.423, 196_608),
    "smollm3-3b.json": (3.075, 6.15, 73_728),
}
QWEN = str(CASES / "models" / "qwen3-30b-a3b.json")


def test_every_config_has_its_right_values() -> None:
    assert set(listed("models")) == {name.partition("/")[0] for name in RIGHT}


@pytest.mark.parametrize("name", RIGHT)
def test_sizes_are_those_published(name: str) -> None:
    facts = model_facts(str(CASES / "models" / name))
    billions, weights_gb, token_bytes = RIGHT[name]
    assert facts.parameters / 1e9 == pytest.approx(billions, rel=3e-3)
    assert facts.weight_bytes / 1e9 == pytest.approx(weights_gb, rel=3e-3)
    assert facts.kv_bytes(100) == 100 * token_bytes


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("deepseek-v3.json", 163_840),
        ("gemma-3-4b-as-published.json", 131_072),
        ("llama2-7b-linear-rope.json", 16_384),
        ("params.json", 131_072),
        ("phi-4-mini-as-published.json", 131_072),
        ("qwen2.5-7b-1m.json", 1_010_000),
        ("qwen3-8b-yarn.json", 131_072),
        ("qwen3-8b.json", 40_960),
    ],
)
def test_contexts_are_those_of_vllm(name: str, tokens: int) -> None:
    assert model_facts(str(CASES / "models" / name)).max_context_tokens == tokens


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [
        ("falcon-h1-7b.json", 44 * 2 * (3072 * 256 + 3 * (3072 + 512))),
        ("granite-4.0-h-small.json", 36 * 2 * (8192 * 128 + 3 * (8192 + 256))),
        ("minimax-m1.json", 70 * 2 * 64 * 128 * 128),
        ("nemotron-nano-9b-v2.json", 27 * (4 * 10_240 * 128 + 2 * 3 * (10_240 + 2048))),
        ("qwen3-next-80b-a3b.json", 36 * 2 * (32 * 128 * 128 + 3 * 8192)),
    ],
)
def test_states_of_layers_without_kv(name: str, state_bytes: int) -> None:
    assert model_facts(str(CASES / "models" / name)).state_bytes == state_bytes


def test_sliding_windows_cap_the_kv_of_a_long_context() -> None:
    """10 layers keep 30,400 tokens, 52 keep 1,024; 16 heads of 128 numbers, keys and values."""
    kept = model_facts(str(CASES / "models" / "gemma-3-27b.json")).kv_bytes(30_400)
    assert kept == 2 * 2 * 16 * 128 * (10 * 30_400 + 52 * 1_024)


def _costs() -> ProfileCosts:
    return ProfileCosts(
        gpu="H100-80G", profile_dir="h100_80g_splitwise", memory_share=0.9, parts=PARTS
    )


def _prompt(tokens: int) -> dict[str, float]:
    return {
        "prefill_requests": 1,
        "prefill_tokens": tokens,
        "prefill_padded_tokens": tokens,
        "prefill_attended": float(tokens) ** 2,
    }


def test_attention_is_as_wide_as_its_heads() -> None:
    """32 heads of 128, where hidden_size is 2048: a prompt of 64k tokens on an H100."""
    service = ServiceId(model_facts(QWEN).name)
    seconds = _costs().iteration_s(service, 1, Work(**_prompt(65_536)))  # type: ignore[arg-type]
    assert seconds == pytest.approx(3.863, rel=0.01)


def test_a_mixed_iteration_reads_each_expert_once() -> None:
    """51.0 ms with attention 2048 wide; twice that adds (2048 / 65,536)^2 of 3,863 - 2,212 ms."""
    expected_s = 0.0510 + (3.863 - 2.212) / 32**2
    decodes = {"decode_requests": 64, "context_tokens": 64_000, "longest_tokens": 1000}
    work = Work(**_prompt(2048), **decodes)  # type: ignore[arg-type]
    seconds = _costs().iteration_s(ServiceId(model_facts(QWEN).name), 1, work)
    assert seconds == pytest.approx(expected_s, rel=0.01)
