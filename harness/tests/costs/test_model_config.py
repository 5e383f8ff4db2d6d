"""A Hugging Face config says of a model what the list of models says of the known ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config import inputs
from harness.config.paths import ROOT
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_config import config_files
from harness.costs.model_facts import ModelFacts, load_models, model_facts
from harness.interface.entities import ServiceId

OWN = ROOT / "scenarios" / "models"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[object], str]:
    def write(config: object) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return str(path)

    return write


def _costed(facts: ModelFacts) -> tuple[object, ...]:
    """What costs follow from, but for norms, biases and learned positions."""
    return (
        facts.layers,
        facts.hidden_size,
        facts.attention_heads,
        facts.vocab_size,
        facts.embeddings,
        facts.kv_bytes_per_token,
        facts.matmul_parameters,
        facts.layer_parameters,
        facts.attended_width,
        facts.expert_parameters,
        (facts.experts, facts.experts_per_token),
    )


@pytest.mark.parametrize("name", ["tiny", "small", "m100"])
def test_our_own_configs_give_the_facts_that_are_stored(name: str) -> None:
    told, stored = model_facts(str(OWN / name / "config.json")), load_models()[name]
    assert (_costed(told), told.parameters) == (_costed(stored), stored.parameters)


def test_a_config_is_known_by_its_path_and_content(written: Callable[[object], str]) -> None:
    path = written(LLAMA)
    assert config_files(["m100", path]) == inputs.digests([Path(path)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "has none of the keys hidden_size"),
        ({"num_hidden_layers": 10**6}, "1000000 layers, at most 10000 can be costed"),
        ({"kv_lora_rank": 512}, "kv_lora_rank is not known for model_type llama; it may"),
        ({"num_key_value_head": 8}, "num_key_value_head is not .*; closest: num_key_value_heads"),
        ({"model_type": "t5"}, "model_type is 't5', which is not modelled: an encoder beside"),
        ({"model_type": "qwen9"}, r"whose layers are not known \(closest: qwen.*given by hand, as"),
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling of type 'spiral' is not modelled"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "which generates no text"),
        ({"quantization_config": {"quant_method": "gguf"}}, "quant_method is 'gguf', it must be"),
        (
            {"quantization_config": {"quant_method": "fp8", "rotated": 1}},
            "the key rotated is not known for model_type fp8, part quantization_config",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "ignored_layers": ["x.q_proj"]}},
            "ignored_layers holds 'x.q_proj'; only embeddings",
        ),
        (
            {"num_attention_heads": 8192},
            "8192 heads cannot share hidden_size 4096, nor is head_dim",
        ),
        ({"num_key_value_heads": 5}, "5 kv_heads cannot share 32 heads"),
        (
            {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 9},
            "experts_per_token is more than the 4",
        ),
        ({"hidden_size": 32 * 10**30}, "hidden_size is 3200.*, it must be at most 109951"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', it must be true or false"),
    ],
)
def test_a_config_that_cannot_be_costed_is_one_sentence(
    change: dict[str, object], said: str, written: Callable[[object], str]
) -> None:
    path = written(LLAMA | change)
    with pytest.raises(ValueError, match=said) as raised:
        model_facts(path)
    assert str(raised.value).startswith(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, ": No such file"),
        ("[1]", r": \[1\]: it must be an object"),
        ("{", " line 1 is not JSON: Expecting"),
        ("[" * 100_000, " is nested too deeply"),
        ('{"text_config": ' + "[" * 500 + "]" * 500 + "}", ": .*recursion limit exceeded"),
        ('{"hidden_size": 1, "hidden_size": 2}', ": the key hidden_size is there twice"),
        ('{"hidden_size": ' + "9" * 5000 + "}", ": Exceeds the limit"),
    ],
    ids=["absent", "list", "open", "deep", "less deep", "twice", "long"],
)
def test_what_is_no_config_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=f"^the model's config {path}{said}") as raised:
        model_facts(str(path))
    assert "\n" not in str(raised.value)


MIXTURE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
EMBEDDINGS = 2 * 151936 * 2048
ROUTED = 48 * 128 * 3 * 2048 * 768
ATTENTION = 48 * 2 * 2048 * 128 * (32 + 4)


@pytest.mark.parametrize(
    ("quantization", "linear", "routed", "formats"),
    [
        (
            {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
            1.000244,
            1.000244,
            "fp8_block fp8_block",
        ),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 1.0, 1.0, "fp8 fp8"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            0.51953,
            0.51953,
            "int4 int4",
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True},
            1.0,
            1.0,
            "int8 int8",
        ),
        (
            {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head", "x.self_attn"]},
            2.0,
            0.53125,
            "bf16 mxfp4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8}}},
                "kv_cache_scheme": {"num_bits": 8},
            },
            1.0,
            1.0,
            "int8 int8",
        ),
        (
            {
                "producer": {"name": "modelopt", "version": "0.31.0"},
                "config_groups": {},
                "ignore": ["lm_head", "model.layers.0.mlp.gate"],
                "quant_algo": "NVFP4",
                "kv_cache_scheme": "FP8",
            },
            0.5625,
            0.5625,
            "nvfp4 nvfp4",
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": [
                    "lm_head",
                    *(f"model.layers.{layer}.self_attn*" for layer in range(48)),
                ],
            },
            2.0,
            0.5625,
            "bf16 nvfp4",
        ),
    ],
    ids=lambda it: it.get("quant_method") if isinstance(it, dict) else "",
)
def test_linear_layers_are_quantized_and_embeddings_are_not(
    quantization: dict[str, Any],
    linear: float,
    routed: float,
    formats: str,
    written: Callable[[object], str],
) -> None:
    facts = model_facts(written(MIXTURE | {"quantization_config": quantization}))
    other = facts.parameters - ROUTED - ATTENTION
    assert EMBEDDINGS < other < 1.05 * EMBEDDINGS
    assert facts.weight_bytes == pytest.approx(
        2 * other + linear * ATTENTION + routed * ROUTED, rel=1e-5
    )
    halved = "kv_cache_scheme" in quantization
    assert facts.kv_bytes_per_token == 2 * 48 * 4 * 128 * (1 if halved else 2)
    assert f"{facts.linear_format} {facts.expert_format}" == formats
    assert f"take {routed:.4g} bytes" in facts.assumptions[-1]
    assert (linear != routed) == ("weights of routed experts" in facts.assumptions[-1])


@pytest.mark.parametrize(
    ("weights", "number_format", "weight_bytes"),
    [
        ({"type": "float", "num_bits": 8, "strategy": "channel"}, "fp8", 1.0),
        ({"type": "float", "num_bits": 8, "strategy": "block"}, "fp8_block", 1.0),
        (
            {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16},
            "nvfp4",
            0.5625,
        ),
        (
            {"type": "float", "num_bits": 4, "strategy": "group", "group_size": 32},
            "mxfp4",
            0.53125,
        ),
        (
            {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 128},
            "int4",
            0.515625,
        ),
    ],
)
def test_formats_of_compressed_tensors(
    weights: dict[str, Any],
    number_format: str,
    weight_bytes: float,
    written: Callable[[object], str],
) -> None:
    group = {"targets": ["Linear"], "weights": weights}
    quantization = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    facts = model_facts(written(LLAMA | {"quantization_config": quantization}))
    assert (facts.linear_format, facts.linear_bytes) == (number_format, weight_bytes)


def test_a_part_of_the_attention_cannot_stay_in_16_bits(written: Callable[[object], str]) -> None:
    modules = [f"model.layers.{layer}.self_attn*" for layer in range(47)]
    for config, ignored in ((MIXTURE, modules), (LLAMA, ["re:.*self_attn.*"])):
        part = {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ignored}
        with pytest.raises(ValueError, match="or in a mixture the attention of all layers"):
            model_facts(written(config | {"quantization_config": part}))


def test_a_quantization_beside_the_config_is_read(written: Callable[[object], str]) -> None:
    path = written(LLAMA)
    beside = Path(path).with_name("hf_quant_config.json")
    part = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": part}))
    facts = model_facts(path)
    assert (facts.linear_format, facts.kv_number_bytes) == ("fp8", 1)
    assert set(config_files([path])) == set(inputs.digests([Path(path), beside]))


@pytest.mark.parametrize(
    ("name", "billions", "kv_bytes_per_token", "formats"),
    [
        ("deepseek-v3", 671.0, 70_272, "fp8_block fp8_block"),
        ("gpt-oss-120b", 116.8, 38_016, "bf16 mxfp4"),
        ("kimi-k2.5-int4", 1026.4, 70_272, "bf16 int4"),
        ("kimi-k2.5-nvfp4", 1026.4, 35_136, "bf16 nvfp4"),
        ("llama-3.1-70b", 70.6, 327_680, "bf16 bf16"),
        ("llama-3.1-70b-fp8", 70.6, 327_680, "fp8 fp8"),
        ("llama-3.1-70b-nvfp4", 70.6, 163_840, "nvfp4 nvfp4"),
        ("llama-3.1-8b-fp8", 8.0, 131_072, "fp8 fp8"),
        ("minimax-m2.5", 228.7, 253_952, "fp8_block fp8_block"),
        ("minimax-m2.5-nvfp4", 228.7, 126_976, "bf16 nvfp4"),
        ("qwen3-235b-a22b-fp8", 235.1, 192_512, "fp8_block fp8_block"),
        ("qwen3-32b", 32.8, 262_144, "bf16 bf16"),
        ("qwen3-32b-fp8", 32.8, 262_144, "fp8_block fp8_block"),
    ],
)
def test_published_configs(
    name: str, billions: float, kv_bytes_per_token: int, formats: str
) -> None:
    facts = model_facts(str(OWN / name / "config.json"))
    assert facts.parameters / 1e9 == pytest.approx(billions, abs=0.05)
    assert facts.kv_bytes_per_token == kv_bytes_per_token
    assert f"{facts.linear_format} {facts.expert_format}" == formats


def test_windows_cap_the_kv_of_a_request(written: Callable[[object], str]) -> None:
    """2 of 12 layers keep everything; a token of a layer takes 2 x 4 heads x 32 x 2 bytes."""
    config = {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 8},
        "text_config": LLAMA
        | {
            "model_type": "gemma3_text",
            "num_hidden_layers": 12,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "sliding_window": 1024,
        },
    }
    facts = model_facts(written(config))
    assert facts.kv_bytes(1000) == 512 * 12 * 1000
    assert facts.kv_bytes(30_000) == 512 * (2 * 30_000 + 10 * 1024)
    assert facts.kv_bytes_per_token == 512 * (2 + 10 / 4)
    assert facts.attended_width == 32 * 32 * (2 + 10 * 0.25 * 1.75)
    settings: dict[str, Any] = {
        "gpu": "H100-80G",
        "profile_dir": "roofline",
        "memory_share": 0.9,
        "parts": PARTS,
    }
    name = ServiceId(facts.name)
    short, long = (
        ProfileCosts(**settings, window_at_tokens=tokens) for tokens in (1024, 10 * 1024)
    )
    assert long.kv_blocks(name, 1) == pytest.approx(4 * short.kv_blocks(name, 1), rel=1e-3)
    assert "as in requests of 10,240 tokens" in long.label(name, 1)
    assert "without vision_config" in facts.assumptions[0]
    assert "10 of 12 layers keep KV of the last 1,024 tokens" in facts.assumptions[1]


def test_a_latent_is_kept_once_on_every_gpu(written: Callable[[object], str]) -> None:
    config = LLAMA | {
        "model_type": "deepseek_v3",
        "num_key_value_heads": 32,
        "moe_intermediate_size": 512,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    facts = model_facts(written(config))
    assert facts.kv_bytes_per_token == facts.kv_bytes_per_gpu(8) == 32 * (512 + 64) * 2
    assert facts.layer_attended_width == 32 * (128 + 64 + 128) // 2


def test_state_space_layers_keep_a_state_and_no_kv(written: Callable[[object], str]) -> None:
    config = LLAMA | {
        "model_type": "granitemoehybrid",
        "layer_types": ["mamba", "attention"] * 16,
        "mamba_d_state": 64,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
    }
    facts = model_facts(written(config))
    assert facts.kv_bytes_per_token == 2 * 2 * 16 * 4096
    costs = ProfileCosts(gpu="H100-80G", profile_dir="roofline", memory_share=0.9, parts=PARTS)
    assert costs.label(facts.name, 1).startswith("roofline; the state of 16 layers without KV")
    assert facts.state_bytes == 2 * 16 * (8192 * 64 + 3 * (8192 + 2 * 64))
    assert "the state of 16 layers without KV, 17.6 MB a request" in facts.assumptions[0]


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16_384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 4096),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, 4096),
        ({"rope_scaling": YARN}, 8192),
        ({"rope_parameters": YARN | {"rope_theta": 10_000.0}}, 8192),
        ({"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"}}, 4096),
        ({"rope_parameters": {"full_attention": YARN, "sliding_attention": YARN}}, 8192),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, 8192),
        ({"model_max_length": 2000}, 2000),
        ({"max_sequence_length": 1000}, 1000),
        ({"rope_scaling": {"type": "linear", "factor": None}}, 4096),
    ],
)
def test_the_context_follows_the_rotation(
    change: dict[str, object], tokens: int, written: Callable[[object], str]
) -> None:
    assert model_facts(written(LLAMA | change)).max_context_tokens == tokens


def test_keys_that_say_nothing_of_sizes_are_left_unread_and_said(
    written: Callable[[object], str],
) -> None:
    odd = {"is_llama_config": True, "transformers.js_config": {"a": 1}, "image_token_id": 5}
    off = {"lm_head_bias": False, "num_memory_heads": 0}
    said = model_facts(written(LLAMA | odd | off)).assumptions[0]
    assert said.endswith(f": {', '.join([*odd, *off])}")
