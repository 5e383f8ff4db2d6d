"""Facts read off the class of a model are those that its family has by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.config.schema import fits
from harness.costs import built_facts, model_config
from harness.costs.model_facts import ModelFacts, model_facts

pytest.importorskip("transformers", reason="the classes of models are not installed")

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("configs.json").read_text(encoding="utf-8")
)
SMALL: dict[str, Any] = CONFIGS["olmoe"] | {"max_position_embeddings": 4096}


def _sizes(facts: ModelFacts) -> tuple[object, ...]:
    return (
        facts.parameters,
        facts.layers,
        facts.kv_bytes(10_000),
        facts.matmul_parameters,
        facts.attended_width,
        facts.embeddings,
        (facts.experts, facts.experts_per_token),
        facts.gated_mlp,
        facts.expert_parameters,
    )


@pytest.mark.parametrize(
    "name",
    [
        "DeepSeek-V2-Lite",
        "Llama-3.1-8B",
        "Llama-4-Maverick",
        "mpt-7b",
        "Mixtral-8x7B",
        "gemma-3-27b",
        "falcon-40b",
        "nemotron",
        "phi-2",
    ],
)
def test_the_class_has_the_sizes_of_the_family(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    built = built_facts.built_facts(path, config) | {"name": str(path), "stated": []}
    assert _sizes(fits(built, ModelFacts, "built")) == _sizes(model_facts(str(path)))


def test_a_family_that_is_not_known_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(built_facts, "STORED", tmp_path / "model_facts")
    families = {key: value for key, value in model_config.FAMILIES.items() if key != "olmoe"}
    monkeypatch.setattr(model_config, "FAMILIES", families)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8")
    with pytest.raises(ValueError, match=r"model_type is 'olmoe', whose layers are not known"):
        model_facts(str(path))
    monkeypatch.setattr("sys.argv", ["built_facts", str(path)])
    built_facts.main()
    facts = model_facts(str(path))
    assert f"{facts.parameters:,} parameters: " in capsys.readouterr().out
    assert (facts.experts, facts.max_context_tokens) == (8, 4096)
    assert "layers are those of the class" in facts.assumptions[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Qwen3-Next-80B", "layers with 'linear_attn' are not modelled"),
        ("gemma-3n-E4B", "layers with 'altup' are not modelled"),
        ("DeepSeek-V3.2", "attention of .* is not modelled"),
        ("Kimi-K2", "transformers has no class of the model_type 'kimi_k2'"),
    ],
)
def test_what_the_shapes_do_not_tell_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        built_facts.built_facts(Path("config.json"), CONFIGS[name])
