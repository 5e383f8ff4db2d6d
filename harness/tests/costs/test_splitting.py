"""Which models can be split over GPUs, and what is said where one does not fit."""

import re
from dataclasses import replace

import pytest

from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import ModelFacts, model_facts
from harness.costs.splitting import unsplit_because
from harness.costs.states import block_tokens, most_running, state_blocks
from harness.interface.entities import ServiceId
from harness.tests.support.cases import CASES


def _facts(name: str) -> ModelFacts:
    return model_facts(str(CASES / "models" / f"{name}.json"))


def _costs(gpu: str = "H100-80G", **settings: object) -> ProfileCosts:
    return ProfileCosts(
        gpu=gpu,
        profile_dir="roofline",
        memory_share=0.9,
        parts=PARTS,
        engine="vllm-async",
        roofline=True,
        **settings,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("name", "gpus", "said"),
    [
        ("qwen2.5-0.5b", 4, r"its 14 attention heads cannot be split over 4 GPUs \(1, 2 can be\)"),
        ("phi-4-mini-as-published", 3, "its 8 KV heads cannot be split over 3 GPUs"),
        ("qwen2.5-7b-awq", 4, ""),
        ("llama3.1-8b-w4a16-ct", 8, ""),
        ("qwen3-30b-a3b-fp8", 8, ""),  # vLLM makes blocks of experts smaller
        ("falcon-h1-7b", 4, ""),  # 2 KV heads, each on two GPUs
        ("falcon-h1-7b", 3, "its 2 KV heads cannot be split over 3 GPUs"),
        ("qwen3-next-80b-a3b", 8, ""),
        ("deepseek-v3.2", 8, ""),
    ],
)
def test_heads_and_widths_are_split_as_by_vllm(name: str, gpus: int, said: str) -> None:
    assert re.fullmatch(f"(?:its )?{said}.*" if said else "", unsplit_because(_facts(name), gpus))


def test_a_width_that_does_not_divide_is_refused() -> None:
    facts = model_facts("opt-13b")
    said = unsplit_because(replace(facts, intermediate_size=20_482), 4)
    assert said.startswith("its MLP of 20,482 units cannot be split over 4 GPUs")
    grouped = replace(facts, weight_group=128, linear_format="int4", intermediate_size=18_944)
    assert unsplit_because(grouped, 4) == ""
    assert "in blocks of 128 weights a scale, cannot be split" in unsplit_because(grouped, 8)


def test_a_model_that_does_not_fit_says_where_it_does() -> None:
    costs, model = _costs(), ServiceId(_facts("qwen3-next-80b-a3b").name)
    assert costs.kv_blocks(model, 1) == costs.kv_blocks(model, 2) == 0
    tokens = costs.kv_blocks(model, 4) * costs.block_tokens(model)
    said = costs.unfit_because(model, 1)
    assert said.endswith(
        f"4 GPUs leave KV of {tokens:,} tokens: system.placement.tensor_parallel=4 "
        "hardware.gpu_count=4 (compare: --tensor-parallel 4)"
    )
    assert len(said) < 240


@pytest.mark.parametrize(
    ("name", "tokens", "blocks"),
    [
        # a page of 528 tokens x 4,096 B holds 2,147,840 B; 9 groups of 4 layers beside one of 4
        ("granite-4.0-h-small", 528, 9.0),
        ("falcon-h1-7b", 1568, 1.0),  # as many layers of each
        ("nemotron-nano-9b-v2", 1312, 7.0),  # 27 layers in groups of 4
        ("qwen3-next-80b-a3b", 544, 3.0),
        ("minimax-m1", 512, 7.0),
        ("qwen3-8b", None, 0.0),
    ],
)
def test_states_take_pages_as_in_vllm(name: str, tokens: int | None, blocks: float) -> None:
    assert block_tokens(_facts(name)) == tokens
    assert state_blocks(_facts(name), tokens or 16) == blocks


def test_running_requests_hold_states_and_kv() -> None:
    """Blocks for 110 of Granite on an H100; a long request has to fit beside the states."""
    facts, costs = _facts("granite-4.0-h-small"), _costs()
    model = ServiceId(facts.name)
    blocks = costs.kv_blocks(model, 1)
    assert 1000 < blocks < 1150  # of 8.65 MB, in 9.5 GB
    assert costs.most_running(model, 1, 300, 600) == blocks // 10
    assert most_running(facts, 1100, 528, 300, 528 * 650) == 50
    assert most_running(facts, 1100, 528, 300, 528 * 2000) == 1
    assert most_running(_facts("qwen3-8b"), 1100, 16, 300, 600) is None
    held = _costs(state_requests=blocks // 10)
    assert held.kv_blocks(model, 1) == blocks - 9 * (blocks // 10)
    assert f"for {blocks // 10} running requests" in held.label(model, 1)


def test_limits_of_the_run_take_memory() -> None:
    model = ServiceId(_facts("llama3.3-70b-fp8-dynamic").name)
    default, own = _costs("H200-141G"), _costs("H200-141G", limits=(65_536, 256))
    assert default.kv_blocks(model, 1) == _costs("H200-141G", limits=(8192, 1024)).kv_blocks(
        model, 1
    )
    assert own.kv_blocks(model, 1) < 0.95 * default.kv_blocks(model, 1)
    assert "at limits of 65,536 tokens and 256 requests" in own.label(model, 1)
