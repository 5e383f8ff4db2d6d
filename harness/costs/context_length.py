"""Tokens of a model's context by the keys of its config, as vLLM derives `max_model_len`.

Follows `_get_and_verify_max_len` of vLLM's `config/model.py`. YaRN counts as up to vLLM 0.11: a
multiple of the length before it. Later releases take `max_position_embeddings` as it is.
"""

from collections.abc import Mapping
from typing import Any

from harness.costs.config_reader import ConfigReader

LENGTHS = (
    "max_position_embeddings n_positions max_seq_len seq_length model_max_length "
    "max_target_positions max_sequence_length max_seq_length seq_len"
)
"""Keys that vLLM reads."""
MULTIPLIED = ("linear", "dynamic")
YARN = ("yarn", "deepseek_yarn")
UNCHANGED = (
    "default",
    "mrope",
    "su",
    "longrope",
    "llama3",
    "deepseek_llama_scaling",
    "proportional",
)
PRE_SCALED = ("gemma3_text", "gemma3n_text", "gemma4_text")
"""Families whose stated length has the scaling in it."""
ORIGINAL = "original_max_position_embeddings"


def context_tokens(config: ConfigReader, family: str, tokens: int) -> int:
    """The context, where the family reads `tokens` from the config.

    Raises ValueError for a kind of scaled rotation that is not known.
    """
    lengths = {key: config.value(key) for key in LENGTHS.split()}
    stated = [one for one in lengths.values() if type(one) is int and one > 0]
    tokens = min([tokens, *stated])
    if isinstance(lengths["model_max_length"], int) and lengths["model_max_length"] > 0:
        tokens = lengths["model_max_length"]
    if family in PRE_SCALED:
        return tokens
    found = [_scaled(config, part, tokens) for part in _rotations(config)]
    return min(found, default=tokens)


def _rotations(config: ConfigReader) -> list[Mapping[str, Any]]:
    """What is said of the rotation, of all layers or of each type of layer."""
    key = "rope_parameters" if config.value("rope_parameters") else "rope_scaling"
    part = config.value(key) or {}
    if not isinstance(part, Mapping):
        raise ValueError(f"{config.path}: {key} is {part!r:.60}, it must be keys with values")
    nested = [one for one in part.values() if isinstance(one, Mapping)]
    return nested or [part]


def _scaled(config: ConfigReader, part: Mapping[str, Any], tokens: int) -> int:
    """The context under one rotation."""
    kind = part.get("rope_type") or part.get("type") or "default"
    factor = part.get("factor")
    factor = 1.0 if factor is None else factor
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6:
        raise ValueError(f"{config.path}: rope_scaling has the factor {factor!r:.60}")
    if kind in UNCHANGED:
        original = config.value(ORIGINAL) or part.get(ORIGINAL)
        if kind in ("su", "longrope") and isinstance(original, int) and original < tokens:
            config.note(
                f"vLLM serves contexts of {original:,} tokens by default and up to {tokens:,} with "
                "max_model_len, which is counted here"
            )
        return tokens
    if kind in YARN:
        original = part.get(ORIGINAL, tokens)
        if type(original) is not int or original < 1:
            raise ValueError(f"{config.path}: rope_scaling has {ORIGINAL} {original!r:.60}")
        return int(original * factor)
    if kind not in MULTIPLIED:
        raise ValueError(
            f"{config.path}: rope_scaling of type {kind!r:.60} is not modelled; known: "
            f"{', '.join((*MULTIPLIED, *YARN, *UNCHANGED))}"
        )
    return int(tokens * factor)
