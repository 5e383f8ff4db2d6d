"""Facts of a model from its Hugging Face `config.json`: a path to one stands for a model's name.

Only families of `dense_models.py`, `mixture_models.py` and `hybrid_models.py` are accepted.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.config import inputs
from harness.config.schema import read_json
from harness.costs import dense_models, hybrid_models, mixture_models
from harness.costs.built_facts import stored_facts, stored_path
from harness.costs.config_reader import ConfigReader
from harness.costs.context_length import context_tokens
from harness.costs.given_facts import given_facts
from harness.costs.mistral_params import as_config
from harness.costs.model_names import GIVEN, MISTRAL_CONFIG, is_config
from harness.costs.quantization import quantized

Json = dict[str, Any]

FAMILIES = {**dense_models.FAMILIES, **mixture_models.FAMILIES, **hybrid_models.FAMILIES}

SAME_LAYERS = {
    "minimax_m1": "minimax",
    "minimax_text_01": "minimax",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
}
"""A `model_type` -> the family whose layers it has."""

GENERATES = ("CausalLM", "LMHeadModel", "ConditionalGeneration")
"""How the architectures of models that generate text end."""

TEXT_PARTS = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Models of several parts -> the `model_type` of their `text_config`, where that leaves it out."""

NOT_MODELLED = {
    "chatglm": "layers of ChatGLM's own code",
    "deepseek_v4": "compressed and hashed attention",
    "falcon_mamba": "state-space layers of Mamba 1 without attention",
    "gemma4": "layers of heads of two sizes that share keys and values",
    "gemma4_text": "layers of heads of two sizes that share keys and values",
    "jamba": "state-space layers of Mamba 1",
    "kimi_linear": "linear-attention layers of Kimi (KDA)",
    "mamba": "state-space layers of Mamba 1 without attention",
    "mamba2": "state-space layers without attention",
    "mllama": "layers of cross-attention to images",
    "recurrent_gemma": "recurrent layers (RG-LRU)",
    "rwkv": "recurrent layers of RWKV",
    "t5": "an encoder beside the decoder",
    "whisper": "an encoder of sound beside the decoder",
    "xlstm": "recurrent layers of xLSTM",
    "zamba": "attention layers that share weights among state-space layers",
    "zamba2": "attention layers that share weights among state-space layers",
}
"""What some other models consist of."""

BESIDE_TEXT = "vision_config audio_config vision_tower video_config"
BUILT = "python -m harness.costs.built_facts CONFIG reads them off its class (make setup-models)"
BY_HAND = "facts can be given by hand, as in scenarios/models/by-hand/facts.yaml"

QUANTIZATION = "hf_quant_config.json"
"""Where NVIDIA Model Optimizer writes the quantization that a config.json does not have."""


def config_files(models: Iterable[str]) -> dict[str, str]:
    """The configs among names of models and what is read beside them, with their sha256."""
    configs = [Path(os.path.abspath(name)) for name in models if is_config(name)]
    beside = [path.with_name(QUANTIZATION) for path in configs]
    beside += [stored_path(read_json(path, dict[str, Any])) for path in configs if _is_json(path)]
    return inputs.digests([*configs, *(path for path in beside if path.is_file())])


def config_facts(path: Path) -> dict[str, Any]:
    """The fields of `ModelFacts`, by an absolute path. ValueError with file and key."""
    if path.suffix in GIVEN:
        return given_facts(path)
    try:
        whole = read_json(path, dict[str, Any])
    except ValueError as error:
        raise ValueError(f"the model's config {error}") from None
    if path.name == MISTRAL_CONFIG and "model_type" not in whole:
        whole = as_config(path, whole)
    text, stated = _text_part(path, whole)
    built = stored_facts(text)
    kind, family = ("", "") if built else _family(path, text)
    config = ConfigReader(path, text)
    _require_generation(path, text)
    config.require("is_encoder_decoder", False)
    config.require("add_cross_attention", False)
    sizes = built or FAMILIES[family](config)
    sizes["max_context_tokens"] = context_tokens(config, family, sizes["max_context_tokens"])
    dtype = config.value("torch_dtype") or config.value("dtype")
    rates, more = quantized(
        ConfigReader(path, _with_quantization(path, text)), dtype, sizes["layers"], sizes["experts"]
    )
    config.ignore("quantization_config compression_config")
    if built:
        config.note("layers are those of the class in transformers (built_facts)")
    elif unread := config.refuse_unknown(kind, sizes_alone=True):
        config.note(f"keys that say nothing of sizes are not read: {', '.join(unread)}")
    named = {"name": str(path), "source": str(path), "stated": [*stated, *config.notes, *more]}
    return {**sizes, **named, **rates}


def _is_json(path: Path) -> bool:
    return path.suffix not in GIVEN and path.is_file()


def _with_quantization(path: Path, text: Json) -> Json:
    """The config with a `quantization_config` that has another name, or a file of its own."""
    beside = path.with_name(QUANTIZATION)
    if text.get("quantization_config") is None and text.get("compression_config") is not None:
        return {**text, "quantization_config": text["compression_config"]}
    if text.get("quantization_config") is not None or not beside.is_file():
        return text
    found = read_json(beside, dict[str, Any]).get("quantization")
    if not isinstance(found, Mapping):
        raise ValueError(f"{beside} has no part quantization")
    return {**text, "quantization_config": {"quant_method": "modelopt", **found}}


def _text_part(path: Path, whole: Json) -> tuple[Json, list[str]]:
    """What a config says of the model of texts, which may be one part of several."""
    part = whole.get("text_config")
    beside = [key for key in BESIDE_TEXT.split() if whole.get(key)]
    stated = [f"only the model of texts is costed, without {' and '.join(beside)}"]
    if part is None:
        kept = {key: value for key, value in whole.items() if key not in beside}
        return kept, stated if beside else []
    if not isinstance(part, Mapping):
        raise ValueError(f"{path}: text_config is {part!r:.60}, it must be keys with values")
    handed = ("torch_dtype", "dtype", "quantization_config", "tie_word_embeddings")
    text = {key: whole[key] for key in handed if key in whole} | dict(part)
    kind = _word(path, whole, "model_type")
    if "model_type" not in text:
        text["model_type"] = TEXT_PARTS.get(kind, kind)
    return text, stated if beside else []


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


def _family(path: Path, config: Json) -> tuple[str, str]:
    """What `model_type` says, and the family of that."""
    kind = _word(path, config, "model_type")
    family = SAME_LAYERS.get(kind, kind)
    if family in FAMILIES:
        return kind, family
    if kind in NOT_MODELLED:
        why = f"which is not modelled: {NOT_MODELLED[kind]}"
    else:
        close = difflib.get_close_matches(kind, [*FAMILIES, *SAME_LAYERS], n=3, cutoff=0.6)
        meant = f" (closest: {', '.join(close)})" if close else ""
        why = f"whose layers are not known{meant}; {BUILT}"
    raise ValueError(f"{path}: model_type is {kind!r:.60}, {why}; {BY_HAND}")


def _word(path: Path, config: Json, key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{path}: {key} is {value!r:.60}, it must be a text")
    return value
