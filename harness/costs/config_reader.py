"""Keys of a Hugging Face config: read with the class's default, and refused where none is known."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LARGEST = 2**40
MOST_LAYERS = 10_000

_NO_SIZES = """
    architectures model_type _name_or_path name_or_path transformers_version auto_map bos_token_id
    eos_token_id pad_token_id sep_token_id cls_token_id unk_token_id decoder_start_token_id
    initializer_range initializer_factor init_std init_device init_config pretraining_tp use_cache
    attention_dropout dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop emb_pdrop
    activation_dropout residual_dropout embedding_dropout classifier_dropout layerdrop hidden_act
    hidden_activation activation_function activation rms_norm_eps layer_norm_eps
    layer_norm_epsilon norm_epsilon norm_eps norm_type rope_theta rope_scaling rope_parameters
    rope_local_base_freq rope_interleave rotary_pct rotary_emb_base rotary_dim
    partial_rotary_factor original_max_position_embeddings output_attentions output_hidden_states
    return_dict id2label label2id problem_type prefix task_specific_params finetuning_task
    gradient_checkpointing chunk_size_feed_forward is_decoder num_return_sequences max_length
    min_length do_sample temperature top_k top_p num_beams repetition_penalty torchscript
    use_return_dict cross_attention_hidden_size tokenizer_class _attn_implementation
    attn_implementation _attn_implementation_autoset unsloth_fixed unsloth_version
    output_router_logits router_aux_loss_coef router_z_loss_coef router_jitter_noise
    input_jitter_noise norm_topk_prob attn_logit_softcapping final_logit_softcapping
    query_pre_attn_scalar cache_implementation max_sequence_length use_mrope
    attention_softmax_in_fp32 scale_attention_softmax_in_fp32 scale_attn_weights output_scores
    return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens bad_words_ids
    diversity_penalty encoder_no_repeat_ngram_size no_repeat_ngram_size length_penalty
    early_stopping num_beam_groups typical_p pruned_heads tf_legacy_loss use_bfloat16
    tie_encoder_decoder max_new_tokens rope_type use_qk_norm ignore_keys_at_rope_validation
    base_model_tp_plan base_model_pp_plan
"""

NO_SIZES = frozenset(_NO_SIZES.split())
"""Keys that change neither sizes nor which tokens are kept, in any family."""

_OF_SIZES = re.compile(
    "hidden|size|dim|width|num_|^n_|head|layer|expert|window|rank|attn|attention|kv|spars|mlp|moe"
    "|ffn|vocab|chunk|state|ssm|mamba|conv|shar|cross|lora|quant|pattern|interval|block|index|gate"
)
"""Names of sizes and of parts of layers."""


class ConfigReader:
    """A config whose keys are read by name; every error names its file.

    `notes` are sentences on what costs leave out of the model.
    """

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self.notes: list[str] = []
        self._values = values
        self._read: set[str] = set()

    def value(self, key: str, default: Any = None) -> Any:
        """What is under a key; the default where it is absent (null is not)."""
        self._read.add(key)
        return self._values.get(key, default)

    def whole(
        self, *keys: str, default: int | None = None, null: int | None = None, least: int = 1
    ) -> int:
        """A whole number under the first of these keys that is there.

        `default` stands in where none is there, `null` (or else `default`) where it is null.
        """
        self._read.update(keys)
        key = next((key for key in keys if self._values.get(key) is not None), None)
        if key is not None:
            value = self._values[key]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value:
                self._refuse_value(key, f"a whole number from {least} on")
            if value > LARGEST:
                self._refuse_value(key, f"at most {LARGEST}")
            return int(value)
        is_null = any(name in self._values for name in keys)
        found = null if is_null and null is not None else default
        if found is None:
            raise ValueError(f"{self.path} has none of the keys {', '.join(keys)}")
        return found

    def note(self, sentence: str) -> None:
        """Keep a sentence on what costs leave out of the model."""
        self.notes.append(sentence)

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether a config says so; null says nothing."""
        value = self.value(key)
        if not isinstance(value, bool | None):
            self._refuse_value(key, "true or false")
        return default if value is None else bool(value)

    def word(self, key: str, default: str, allowed: Sequence[str]) -> str:
        """One of the allowed texts."""
        value = self.value(key)
        if value is not None and value not in allowed:
            self._refuse_value(key, f"one of {', '.join(allowed)}")
        return default if value is None else str(value)

    def part(self, key: str) -> "ConfigReader":
        """Keys with values under a key; none where it is absent."""
        value = self.value(key) or {}
        if not isinstance(value, Mapping):
            self._refuse_value(key, "keys with values")
        return ConfigReader(self.path, value)

    def numbers(self, key: str) -> list[int]:
        """A list of whole numbers; empty where there is none."""
        value = self.value(key) or []
        if not isinstance(value, list) or any(type(each) is not int for each in value):
            self._refuse_value(key, "a list of whole numbers")
        return list(value)

    def layers(self, *keys: str) -> int:
        """The number of layers."""
        count = self.whole(*keys)
        if count > MOST_LAYERS:
            raise ValueError(f"{self.path}: {count} layers, at most {MOST_LAYERS} can be costed")
        return count

    def layer_types(self, layers: int, allowed: Sequence[str], default: list[str]) -> list[str]:
        """The type of each layer, one of the allowed ones."""
        value = self.value("layer_types")
        if value is None:
            return default
        if not isinstance(value, list) or len(value) != layers:
            self._refuse_value("layer_types", f"a list of the types of {layers} layers")
        for each in value:
            if each not in allowed:
                raise ValueError(
                    f"{self.path}: layer_types holds {each!r:.60}, it must be one of "
                    f"{', '.join(allowed)}"
                )
        return list(value)

    def require(self, key: str, *allowed: Any) -> None:
        """Refuse a value beyond these; what is absent or null passes."""
        value = self.value(key)
        if value is not None and value not in allowed:
            said = ", ".join(repr(each).lower() for each in allowed)
            self._refuse_value(key, f"{said}; others cannot be costed")

    def window(self, default: int = 0) -> int:
        """The tokens of a sliding window; 0 is none."""
        return self.whole("sliding_window", default=default, null=0, least=0)

    def ignore(self, keys: str) -> None:
        """Keys, in one text, that change neither sizes nor which tokens are kept."""
        self._read.update(keys.split())

    def refuse_unknown(self, family: str, *, sizes_alone: bool = False) -> list[str]:
        """The keys that were not read, where there may be any.

        Raises ValueError for a key that says something and was not read; with `sizes_alone` only
        where it is close to one that is read or its name is that of a size or part of a layer.
        """
        unread = [
            key
            for key, value in self._values.items()
            if value is not None and key not in self._read and key not in NO_SIZES
        ]
        for key in unread:
            close = difflib.get_close_matches(key, self._read, n=1, cutoff=0.7)
            is_off = sizes_alone and not self._values[key]
            if not is_off and (not sizes_alone or close or _OF_SIZES.search(key.lower())):
                meant = f"; closest: {close[0]}" if close else ""
                raise ValueError(
                    f"{self.path}: the key {key} is not known for model_type {family}{meant}; it "
                    "may change sizes of weights or KV"
                )
        return unread

    def _refuse_value(self, key: str, allowed: str) -> None:
        raise ValueError(f"{self.path}: {key} is {self._values[key]!r:.60}, it must be {allowed}")
