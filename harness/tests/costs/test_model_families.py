"""Configs of every family against the classes of `transformers`, built without memory."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.costs.model_config import FAMILIES
from harness.costs.model_facts import model_facts

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("configs.json").read_text(encoding="utf-8")
)
SAME_CLASS = {"kimi_k2": "deepseek_v3", "minimax_m1": "minimax", "minimax_text_01": "minimax"}
"""A `model_type` that `transformers` lacks -> the one whose class its configs name."""
BIASES = ("e_score_correction_bias", "expert_bias")
"""Of routers: weights of a checkpoint that the classes keep as buffers."""
WINDOWS = {"sliding_attention", "chunked_attention"}


def test_every_family_has_a_config() -> None:
    assert {config["model_type"] for config in CONFIGS.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_and_windows_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    torch = pytest.importorskip("torch", reason="the reference is not installed")
    config = CONFIGS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    facts = model_facts(str(path))
    kind = SAME_CLASS.get(config["model_type"], config["model_type"])
    if kind not in getattr(transformers, "CONFIG_MAPPING", ()):
        pytest.skip(f"this version of transformers has no {kind}")
    reference = transformers.CONFIG_MAPPING[kind].from_dict(config | {"model_type": kind})
    with torch.device("meta"):
        try:
            model = transformers.AutoModelForCausalLM.from_config(reference)
        except ValueError:  # the text of a model of several parts has no class with an output
            model = transformers.AutoModel.from_config(reference)
            model.output = torch.nn.Linear(facts.hidden_size, facts.vocab_size, bias=False)
    biases = [each for key, each in model.named_buffers() if key.endswith(BIASES)]
    numbers = sum(each.numel() for each in [*model.parameters(), *biases])
    assert facts.parameters == numbers + _read_by_vllm(config)
    # As the class itself would write it, with every key that it knows.
    path.write_text(reference.to_json_string(use_diff=False), encoding="utf-8")
    assert model_facts(str(path)).kinds == facts.kinds
    types = getattr(reference, "layer_types", None) or []
    if WINDOWS & set(types):
        windowed = sum(kind.layers for kind in facts.kinds if kind.mixer.window_tokens)
        assert windowed == sum(each in WINDOWS for each in types)


def _read_by_vllm(config: dict[str, Any]) -> int:
    """Parameters of a checkpoint that vLLM has in memory and the class leaves out."""
    if config["model_type"] != "gemma3n_text":
        return 0
    kept = config["num_key_value_heads"] * config["head_dim"]
    return int(
        config["num_kv_shared_layers"] * (2 * config["hidden_size"] * kept + config["head_dim"])
    )
