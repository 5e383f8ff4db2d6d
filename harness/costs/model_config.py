"""Facts of a model from its Hugging Face `config.json`: a path to one stands for a model's name.

Only families of `dense_models.py` and `mixture_models.py`, and keys that they know, are accepted.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.config import inputs
from harness.config.schema import read_json
from harness.costs import dense_models, mixture_models
from harness.costs.config_reader import ConfigReader
from harness.costs.quantization import quantized

Json = Mapping[str, Any]

FAMILIES = {**dense_models.FAMILIES, **mixture_models.FAMILIES}

GENERATES = ("CausalLM", "LMHeadModel", "ConditionalGeneration")
"""How the architectures of models that generate text end."""

TEXT_PARTS = {"gemma3": "gemma3_text", "kimi_k25": "kimi_k2", "llama4": "llama4_text"}
"""Models of several parts -> the `model_type` of their `text_config`."""


QUANTIZATION = "hf_quant_config.json"
"""Where NVIDIA Model Optimizer writes the quantization that a config.json does not have."""


def is_config(name: str) -> bool:
    """Whether a model's name is the path of its config."""
    return name.endswith(".json")


def config_files(models: Iterable[str]) -> dict[str, str]:
    """The configs among names of models and what is read beside them, with their sha256."""
    configs = [Path(name).resolve() for name in models if is_config(name)]
    beside = [path.with_name(QUANTIZATION) for path in configs]
    return inputs.digests([*configs, *(path for path in beside if path.is_file())])


def config_facts(name: str) -> dict[str, Any]:
    """The fields of `ModelFacts`, by the resolved path. ValueError with file and key."""
    path = Path(name).resolve()
    try:
        whole = read_json(path, dict[str, Any])
    except ValueError as error:
        raise ValueError(f"the model's config {error}") from None
    text, stated = _text_part(path, whole)
    family = _family(path, text)
    config = ConfigReader(path, text)
    _require_generation(path, text)
    config.require("is_encoder_decoder", False)
    config.require("add_cross_attention", False)
    sizes = FAMILIES[family](config)
    dtype = config.value("torch_dtype") or config.value("dtype")
    rates, more = quantized(
        ConfigReader(path, _with_quantization(path, text)), dtype, sizes["layers"], sizes["experts"]
    )
    config.ignore("quantization_config")
    config.refuse_unknown(family)
    named = {"name": str(path), "source": str(path), "stated": [*stated, *more]}
    return {**named, **rates, **sizes}


def _with_quantization(path: Path, text: Json) -> Json:
    """The config with a `quantization_config` that a file beside it has."""
    beside = path.with_name(QUANTIZATION)
    if text.get("quantization_config") is not None or not beside.is_file():
        return text
    found = read_json(beside, dict[str, Any]).get("quantization")
    if not isinstance(found, Mapping):
        raise ValueError(f"{beside} has no part quantization")
    return {**text, "quantization_config": {"quant_method": "modelopt", **found}}


def _text_part(path: Path, whole: Json) -> tuple[Json, list[str]]:
    """What a config says of the model of texts, which may be one part of several."""
    kind = _word(path, whole, "model_type")
    part = whole.get("text_config")
    if kind not in TEXT_PARTS or part is None:
        return whole, []
    if not isinstance(part, Mapping):
        raise ValueError(f"{path}: text_config is {part!r:.60}, it must be keys with values")
    outer = ConfigReader(path, whole)
    outer.ignore("text_config vision_config torch_dtype dtype quantization_config")
    outer.ignore("image_token_index image_token_id boi_token_index boi_token_id eoi_token_index")
    outer.ignore("eoi_token_id mm_tokens_per_image tie_word_embeddings ignore_index")
    outer.ignore("media_placeholder_token_id use_unified_vision_chunk video_placeholder")
    outer.refuse_unknown(kind)
    handed = ("torch_dtype", "dtype", "quantization_config", "tie_word_embeddings")
    text = {key: whole[key] for key in handed if key in whole} | dict(part)
    text.setdefault("model_type", TEXT_PARTS[kind])
    images = ["vision_config is left out: only the model of texts is costed"]
    return text, images if whole.get("vision_config") else []


def _require_generation(path: Path, config: Json) -> None:
    """Refuse a model without an output over the vocabulary, as one that classifies."""
    named = config.get("architectures") or []
    if not isinstance(named, list):
        raise ValueError(f"{path}: architectures is {named!r:.60}, it must be a list")
    for each in named:
        if not isinstance(each, str) or not each.endswith(GENERATES):
            raise ValueError(
                f"{path}: architectures holds {each!r:.60}, which generates no text; supported "
                f"are those that end in {', '.join(GENERATES)}"
            )


def _family(path: Path, config: Json) -> str:
    """The family, which `model_type` names."""
    kind = _word(path, config, "model_type")
    if kind not in FAMILIES:
        raise ValueError(
            f"{path}: model_type is {kind!r:.60}, which cannot be costed; supported: "
            f"{', '.join(sorted({*FAMILIES, *TEXT_PARTS}))}"
        )
    return kind


def _word(path: Path, config: Json, key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{path}: {key} is {value!r:.60}, it must be a text")
    return value
