"""A Hugging Face config says of a model what the list of models says of the known ones."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness import inputs
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_config import config_files
from harness.costs.model_facts import load_models, model_facts
from harness.interface.entities import ServiceId
from harness.paths import ROOT

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


@pytest.mark.parametrize("name", ["tiny", "small", "m100"])
def test_our_own_configs_give_the_facts_that_are_stored(name: str) -> None:
    path = OWN / name / "config.json"
    told, stored = asdict(model_facts(str(path))), asdict(load_models()[name])
    for differs in ("name", "source", "max_context_tokens"):
        told.pop(differs), stored.pop(differs)
    assert told == stored


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": (
        "opt-1.3b",
        {
            "model_type": "opt",
            "hidden_size": 2048,
            "ffn_dim": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
        },
    ),
    "mpt": (
        "mpt-7b-chat",
        {
            "model_type": "mpt",
            "d_model": 4096,
            "n_heads": 32,
            "n_layers": 32,
            "vocab_size": 50432,
            "max_seq_len": 2048,
        },
    ),
    "mixtral": (
        "Mixtral-8x7B-v0.1",
        {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
        },
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_are_read_by_their_own_words(
    family: str, written: Callable[[object], str]
) -> None:
    """The number of parameters is the published one but for biases and learned positions."""
    name, config = FAMILIES[family]
    told, stored = asdict(model_facts(written(config))), asdict(load_models()[name])
    assert told["parameters"] == pytest.approx(stored["parameters"], rel=5e-3)
    for differs in ("name", "source", "parameters", "same_architecture_as"):
        told.pop(differs), stored.pop(differs)
    assert told == stored


def test_costs_are_those_of_the_roofline_and_say_so(written: Callable[[object], str]) -> None:
    name = model_facts(written(LLAMA)).name
    costs = ProfileCosts(
        gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS
    )
    assert costs.label(name, 1) == "roofline"
    assert costs.kv_blocks(ServiceId(name), 1) > 1000
    assert costs.load_s(ServiceId(name), 1) > 0


def test_a_config_is_known_by_its_path_and_content(written: Callable[[object], str]) -> None:
    path = written(LLAMA)
    assert config_files(["m100", path]) == inputs.digests([Path(path)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "has none of the keys hidden_size, n_embd, d_model of a model's"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, it must be a whole number"),
        ({"vocab_size": "many"}, "vocab_size is 'many', it must be a whole number"),
        ({"kv_lora_rank": 512}, "kv_lora_rank is 512, and compressed KV cannot be costed"),
        ({"n_shared_experts": 2}, "n_shared_experts is 2, and shared experts cannot be costed"),
        ({"text_config": 5}, "text_config is 5, it must be keys with values"),
        ({"head_dim": 0}, "head_dim is 0, it must be a whole number from 1 on"),
        (
            {"num_attention_heads": 8192},
            "8192 heads cannot share hidden_size 4096, nor is head_dim",
        ),
        ({"num_key_value_heads": 5}, "5 kv_heads cannot share 32 heads"),
        (
            {"num_local_experts": 4, "num_experts_per_tok": 9},
            "experts_per_token is more than the 4",
        ),
        ({"hidden_size": 32 * 10**30}, "hidden_size=3200.*: it must be less than or equal to 461"),
        ({"vocab_size": 2**60}, "parameters=.*: it must be less than or equal to 461"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', it must be true or false"),
        ({"model_type": [1]}, r"model_type is \[1\], it must be a text"),
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


def test_a_part_that_is_null_is_none(written: Callable[[object], str]) -> None:
    path = written(LLAMA | {"text_config": None, "tie_word_embeddings": None})
    assert (model_facts(path).layers, model_facts(path).embeddings) == (32, 2)
