"""Published configs whose sizes other tools have read wrong, and what is right."""

import pytest

from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.interface.entities import ServiceId, Work
from harness.tests.support.cases import CASES, listed

RIGHT = {
    # billions of parameters, GB of weights, KV bytes of a token of a short context
    "deepseek-v3.json": (671.0, 673.0, 70_272),
    "ernie-4.5-21b-a3b.json": (21.8, 43.7, 57_344),
    "gemma-3-27b.json": (27.0, 54.0, 507_904),
    "gemma-3-4b-as-published.json": (3.88, 7.76, 139_264),
    "granite-4.0-h-small.json": (32.2, 64.4, 16_384),
    "llama-3.2-1b.json": (1.236, 2.472, 32_768),
    "llama-4-scout.json": (107.8, 215.5, 196_608),
    "phi-mini-moe.json": (7.65, 15.3, 131_072),
    "qwen3-30b-a3b-fp8.json": (30.5, 31.2, 98_304),
    "qwen3-30b-a3b.json": (30.5, 61.1, 98_304),
}
QWEN = str(CASES / "models" / "qwen3-30b-a3b.json")


def test_every_config_has_its_right_values() -> None:
    assert listed("models") == sorted(RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_sizes_are_those_published(name: str) -> None:
    facts = model_facts(str(CASES / "models" / name))
    billions, weights_gb, token_bytes = RIGHT[name]
    assert facts.parameters / 1e9 == pytest.approx(billions, rel=3e-3)
    assert facts.weight_bytes / 1e9 == pytest.approx(weights_gb, rel=3e-3)
    assert facts.kv_bytes(100) == 100 * token_bytes


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
