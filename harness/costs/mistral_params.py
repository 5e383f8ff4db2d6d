"""Mistral's own `params.json` in the keys of a Hugging Face config."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
}
OPTIONAL = {
    "head_dim": "head_dim",
    "rope_theta": "rope_theta",
    "norm_eps": "rms_norm_eps",
    "sliding_window": "sliding_window",
    "tied_embeddings": "tie_word_embeddings",
    "vision_encoder": "vision_config",
    "model_type": "model_type",
}
CONTEXTS = ("max_position_embeddings", "max_seq_len")
DEFAULT_CONTEXT = 128_000
"""What vLLM takes where neither is there."""
NO_SIZES = ("causal", "model_parallel", "use_biases", "multimodal", "images", "ragged_attention")


def as_config(path: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    """The config. Raises ValueError for missing sizes and for parts that are not known."""
    for key in SIZES:
        if params.get(key) is None:
            raise ValueError(f"{path} has no {key}: give the path of the model's config.json")
    names = {**SIZES, **OPTIONAL}
    config = {names[key]: value for key, value in params.items() if key in names}
    found = [params[key] for key in CONTEXTS if params.get(key) is not None]
    config["max_position_embeddings"] = found[0] if found else DEFAULT_CONTEXT
    config.setdefault("sliding_window", None)
    left = {key for key, value in params.items() if value} - {*names, *CONTEXTS, *NO_SIZES, "moe"}
    if left:
        raise ValueError(
            f"{path}: the key {min(left)} is not known in Mistral's own format: give the path of "
            "the model's config.json"
        )
    config["model_type"] = "mistral"
    if isinstance(moe := params.get("moe"), Mapping):
        config["model_type"] = "mixtral"
        config["num_local_experts"] = moe.get("num_experts")
        config["num_experts_per_tok"] = moe.get("num_experts_per_tok")
    return config
