"""Families of models with one MLP a layer, by the keys of their configs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from harness.costs.architectures import (
    GRANITE_MULTIPLIERS,
    Fields,
    Sizes,
    older_sizes,
    sizes,
    used_window,
)
from harness.costs.config_reader import ConfigReader


def llama(config: ConfigReader) -> Fields:
    """Llama 2 and 3, Granite, and models with the class of Llama."""
    size, width = sizes(config), config.whole("intermediate_size")
    mixer = size.attention(bias=config.flag("attention_bias"))
    return size.model(mixer, size.mlp(width, bias=config.flag("mlp_bias")), width)


def granite(config: ConfigReader) -> Fields:
    """Granite 3: Llama with multipliers."""
    config.ignore(GRANITE_MULTIPLIERS)
    return llama(config)


def mistral(config: ConfigReader) -> Fields:
    """Mistral: every layer has a window, unless it is null."""
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    return size.model(size.attention(window=config.window(4096)), size.mlp(width), width)


def qwen2(config: ConfigReader) -> Fields:
    """Qwen2 and 2.5: biases of queries, keys and values; late layers may have windows."""
    return _qwen(config, sizes(config, kv_heads=32), qkv_bias=True)


def qwen3(config: ConfigReader) -> Fields:
    """Qwen3: norms of queries and keys."""
    size, bias = sizes(config, kv_heads=32, head_dim=128), config.flag("attention_bias")
    return _qwen(config, size, bias=bias, other=2 * size.head_dim)


def _qwen(config: ConfigReader, size: Sizes, **attention: Any) -> Fields:
    """Dense, with windows from `max_window_layers` on if they are used."""
    width = config.whole("intermediate_size")
    first = config.whole("max_window_layers", default=28, least=0)
    window = used_window(config)
    default = [window > 0 and layer >= first for layer in range(size.layers)]
    return size.model(size.windowed(window, default, **attention), size.mlp(width), width)


def gemma(config: ConfigReader) -> Fields:
    """Gemma: wide heads, shared embeddings."""
    size = sizes(config, heads=16, kv_heads=16, head_dim=256, vocab=256000, context=8192)
    width, bias = config.whole("intermediate_size"), config.flag("attention_bias")
    return size.model(size.attention(bias=bias), size.mlp(width), width, tied=True)


def gemma2(config: ConfigReader) -> Fields:
    """Gemma 2: every other layer has a window; four norms."""
    size = sizes(config, heads=8, kv_heads=4, head_dim=256, vocab=256000, context=8192)
    return _gemma(config, size, every=2)


def gemma3(config: ConfigReader) -> Fields:
    """Gemma 3: all but every sixth layer have a window; norms of queries and keys."""
    size = sizes(config, heads=8, kv_heads=4, head_dim=256, vocab=262208, context=131072)
    every = config.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _gemma(config, size, every=every, other=2 * size.head_dim)


def _gemma(config: ConfigReader, size: Sizes, *, every: int, other: int = 0) -> Fields:
    """Windows in all but every n-th layer, four norms."""
    width, bias = config.whole("intermediate_size"), config.flag("attention_bias")
    config.require("use_bidirectional_attention", False)
    window = config.window(4096)
    default = [(layer + 1) % every != 0 for layer in range(size.layers)]
    mixers = size.windowed(window, default, bias=bias, other=other)
    return size.model(mixers, size.mlp(width), width, tied=True, norms=4)


def phi(config: ConfigReader) -> Fields:
    """Phi 1 and 2: biases everywhere, one LayerNorm a layer."""
    size = sizes(config, context=2048)
    width = config.whole("intermediate_size", default=4 * size.hidden, null=4 * size.hidden)
    norms = 4 * size.head_dim if config.flag("qk_layernorm") else 0
    mixer, mlp = size.attention(bias=True, other=norms), size.mlp(width, gated=False, bias=True)
    return size.model(mixer, mlp, width, gated=False, outside=2 * size.hidden + size.vocab)


def phi3(config: ConfigReader) -> Fields:
    """Phi 3 and 4: every layer may have a window."""
    size, width = sizes(config), config.whole("intermediate_size")
    config.require("attention_bias", False)
    return size.model(size.attention(window=config.window()), size.mlp(width), width)


def starcoder2(config: ConfigReader) -> Fields:
    """StarCoder2: LayerNorm, two matrices, biases."""
    size, width = sizes(config, kv_heads=2), config.whole("intermediate_size")
    config.require("mlp_type", "default")
    config.require("norm_type", "layer_norm")
    bias = config.flag("use_bias", True)
    mixer = size.attention(bias=bias, window=config.window())
    return size.layer_normed(mixer, size.mlp(width, gated=False, bias=bias), width)


def opt(config: ConfigReader) -> Fields:
    """OPT: learned positions, two of them unused; two matrices, biases."""
    size = sizes(config)
    config.require("num_key_value_heads", size.heads)
    config.require("head_dim", size.hidden // size.heads)
    width, bias = config.whole("ffn_dim"), config.flag("enable_bias", True)
    norms = 2 * config.flag("layer_norm_elementwise_affine", True)
    has_last = config.flag("do_layer_norm_before", True)
    has_last &= not config.flag("_remove_final_layer_norm")
    embedded = config.whole("word_embed_proj_dim", default=size.hidden)
    projected = 0 if embedded == size.hidden else 2 * size.hidden * embedded
    return size.model(
        size.attention(bias=bias),
        size.mlp(width, gated=False, bias=bias),
        width,
        tied=True,
        gated=False,
        norms=2 * norms,
        outside=(size.context + 2 + has_last * norms) * size.hidden + projected,
        embedding_size=embedded,
    )


def gpt2(config: ConfigReader) -> Fields:
    """GPT-2: learned positions, two matrices, biases."""
    config.ignore("n_ctx summary_activation summary_first_dropout summary_type")
    config.ignore("summary_proj_to_labels summary_use_proj scale_attn_weights")
    config.ignore("scale_attn_by_inverse_layer_idx reorder_and_upcast_attn")
    size = older_sizes(config, "n_embd", "n_head", "n_layer", "n_positions")
    width = config.whole("n_inner", default=4 * size.hidden)
    mixer, mlp = size.attention(bias=True), size.mlp(width, gated=False, bias=True)
    return size.layer_normed(mixer, mlp, width, outside=size.context * size.hidden)


def gpt_neox(config: ConfigReader) -> Fields:
    """GPT-NeoX and Pythia: two matrices, biases, two embeddings."""
    config.ignore("use_parallel_residual attention_probs_dropout_prob hidden_dropout_prob")
    size, width = sizes(config, context=2048), config.whole("intermediate_size")
    mixer = size.attention(bias=config.flag("attention_bias", True))
    return size.layer_normed(mixer, size.mlp(width, gated=False, bias=True), width, tied=False)


def bloom(config: ConfigReader) -> Fields:
    """BLOOM: two matrices of four times the hidden size, a norm of the embeddings, biases."""
    config.ignore("apply_residual_connection_post_layernorm slow_but_exact skip_bias_add")
    config.ignore("skip_bias_add_qkv attention_softmax_in_fp32 bias_dropout_fusion")
    config.ignore("masked_softmax_fusion offset_alibi unk_token_id")
    size = older_sizes(
        config,
        "hidden_size n_embed",
        "n_head num_attention_heads",
        "n_layer num_hidden_layers",
        "seq_length",
    )
    width = 4 * size.hidden
    mixer, mlp = size.attention(bias=True), size.mlp(width, gated=False, bias=True)
    return size.layer_normed(mixer, mlp, width, outside=2 * size.hidden)


def mpt(config: ConfigReader) -> Fields:
    """MPT with ALiBi: two matrices, no biases."""
    config.ignore("embedding_fraction logit_scale tokenizer_name verbose learned_pos_emb")
    attention = config.part("attn_config")
    attention.require("alibi", True)
    attention.require("attn_type", "multihead_attention")
    for key in ("qk_ln", "prefix_lm"):
        attention.require(key, False)
    attention.ignore("alibi_bias_max attn_impl attn_uses_sequence_id clip_qkv")
    attention.ignore("softmax_scale attn_pdrop is_encoder_decoder dtype")
    attention.refuse_unknown("mpt, part attn_config")
    config.require("no_bias", True)
    size = older_sizes(config, "d_model", "n_heads", "n_layers", "max_seq_len")
    width = config.whole("expansion_ratio", default=4) * size.hidden
    return size.model(size.attention(), size.mlp(width, gated=False), width, tied=True, gated=False)


def falcon(config: ConfigReader) -> Fields:
    """Falcon: one KV head, or groups of heads in the newer ones; attention beside the MLP."""
    config.ignore("alibi apply_residual_connection_post_layernorm ff_factor")
    size = older_sizes(
        config,
        "hidden_size n_embed",
        "num_attention_heads n_head",
        "num_hidden_layers n_layer",
        "max_position_embeddings",
    )
    config.require("head_dim", size.head_dim)
    stated = config.whole("num_kv_heads", "n_head_kv", default=size.heads)
    grouped, bias = config.flag("new_decoder_architecture"), config.flag("bias")
    shared = config.flag("multi_query", True) and not grouped
    size = replace(size, kv_heads=1 if shared else stated if grouped else size.heads)
    width = config.whole("ffn_hidden_size", default=4 * size.hidden)
    beside = config.whole("num_ln_in_parallel_attn", default=2 if grouped else 1)
    return size.model(
        size.attention(bias=bias),
        size.mlp(width, gated=False, bias=bias),
        width,
        tied=True,
        gated=False,
        norms=2 * (beside if config.flag("parallel_attn", True) else 2),
        outside=2 * size.hidden,
    )


FAMILIES: Mapping[str, Callable[[ConfigReader], Fields]] = {
    "bloom": bloom,
    "falcon": falcon,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "granite": granite,
    "llama": llama,
    "mistral": mistral,
    "mpt": mpt,
    "opt": opt,
    "phi": phi,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "starcoder2": starcoder2,
}
"""By `model_type`."""
