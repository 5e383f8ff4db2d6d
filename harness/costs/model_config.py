"""Facts of a model from its Hugging Face `config.json`: a path to one stands for a model's name."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness import inputs
from harness.schema import read_json

Json = Mapping[str, Any]

KEYS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "max_context_tokens": (
        "max_position_embeddings",
        "n_positions",
        "seq_length",
        "max_seq_len",
        "n_ctx",
    ),
}
"""Our fact -> what configs call it; every config has one of each."""

# What a config leaves out has the value of its class, which `model_type` names.
TIED = frozenset(
    ["gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "falcon", "mpt", "gemma", "gemma2"]
)
"""Those that share input and output embeddings where they do not say."""
UNGATED = TIED - {"gemma", "gemma2"} | {"gpt_neox", "gptj", "phi"}
"""Those whose MLP has two matrices; all others' has three."""

UNKNOWN = {
    "kv_lora_rank": "compressed KV",
    "is_encoder_decoder": "an encoder",
    "n_shared_experts": "shared experts",
    "shared_expert_intermediate_size": "shared experts",
    "first_k_dense_replace": "dense layers among mixtures",
    "ssm_state_size": "state-space layers",
    "state_size": "state-space layers",
    "linear_num_value_heads": "linear attention",
}
"""Keys of what the cost model has no words for: weights and KV would be wrong."""


def is_config(name: str) -> bool:
    """Whether a model's name is the path of its config."""
    return name.endswith(".json")


def config_files(models: Iterable[str]) -> dict[str, str]:
    """The configs among names of models, with their sha256."""
    return inputs.digests(Path(name).resolve() for name in models if is_config(name))


def config_facts(name: str) -> dict[str, Any]:
    """The fields of `ModelFacts`, under the resolved path as name.

    `parameters` are counted from the shapes: matrices, embeddings and norms, no biases. Raises
    ValueError with the file, and the key where one is missing or beyond the cost model.
    """
    path = Path(name).resolve()
    config = _text_part(path)
    for key, what in UNKNOWN.items():
        if config.get(key):
            raise ValueError(f"{path}: {key} is {config[key]}, and {what} cannot be costed")
    facts = {fact: _whole(path, config, keys) for fact, keys in KEYS.items()}
    hidden, heads = facts["hidden_size"], facts["attention_heads"]
    kind = config.get("model_type") or ""
    if not isinstance(kind, str):
        raise ValueError(f"{path}: model_type is {kind!r:.60}, it must be a text")
    experts = _whole(path, config, ("num_local_experts", "num_experts"), otherwise=1)
    wide = ("moe_intermediate_size",) if experts > 1 else ()
    facts |= {
        "kv_heads": _kv_heads(path, config, heads),
        "head_dim": _head_dim(path, config, hidden, heads),
        "intermediate_size": _whole(
            path,
            config,
            (*wide, "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"),
            otherwise=4 * hidden,
        ),
        "gated_mlp": kind not in UNGATED,
        "experts": experts,
        "experts_per_token": _whole(path, config, ("num_experts_per_tok",), otherwise=1),
        "embeddings": 1 if _flag(path, config, "tie_word_embeddings", kind in TIED) else 2,
    }
    return {"name": str(path), "source": str(path), **facts}


def _text_part(path: Path) -> Json:
    """What a config says of the model of texts, which may be one part of several."""
    try:
        whole = read_json(path, dict[str, Any])
    except ValueError as error:
        raise ValueError(f"the model's config {error}") from None
    part = whole.get("text_config")
    if not isinstance(part, Mapping | None):
        raise ValueError(f"{path}: text_config is {part!r:.60}, it must be keys with values")
    return whole if part is None else part


def norm_parameters(facts: Mapping[str, Any]) -> int:
    """Two norms a layer and one at the end."""
    return int((2 * facts["layers"] + 1) * facts["hidden_size"])


def _kv_heads(path: Path, config: Json, heads: int) -> int:
    """As many as query heads, unless a config says otherwise."""
    if _flag(path, config, "multi_query") and not _flag(path, config, "new_decoder_architecture"):
        return 1
    if _flag(path, config, "multi_query_attention"):
        return _whole(path, config, ("multi_query_group_num",))
    named = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
    return _whole(path, config, named, otherwise=heads)


def _head_dim(path: Path, config: Json, hidden: int, heads: int) -> int:
    """An equal part of the hidden size, unless a config says otherwise."""
    stated = _whole(path, config, ("head_dim", "kv_channels"), otherwise=0)
    if not stated and hidden % heads:
        raise ValueError(
            f"{path}: {heads} heads cannot share hidden_size {hidden}, nor is head_dim there"
        )
    return stated or hidden // heads


def _flag(path: Path, config: Json, key: str, otherwise: bool = False) -> bool:
    """Whether a config says so; null says nothing."""
    value = config.get(key)
    if not isinstance(value, bool | None):
        raise ValueError(f"{path}: {key} is {value!r:.60}, it must be true or false")
    return otherwise if value is None else value


def _whole(path: Path, config: Json, keys: tuple[str, ...], otherwise: int | None = None) -> int:
    """The first of these keys that is there, a whole number from 1 on."""
    for key in keys:
        value = config.get(key)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"{path}: {key} is {value!r:.60}, it must be a whole number from 1 on"
                )
            return value
    if otherwise is None:
        raise ValueError(f"{path} has none of the keys {', '.join(keys)} of a model's config")
    return otherwise
