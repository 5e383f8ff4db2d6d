"""Families of models with one MLP a layer, by the keys of their configs."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.costs.architectures import (
    FULL,
    GRANITE_MULTIPLIERS,
    SLIDING,
    Architecture,
    Sizes,
    layer_normed,
    older_sizes,
    sizes,
    uniform,
    used_window,
)
from harness.costs.config_reader import ConfigReader


def llama(config: ConfigReader) -> Architecture:
    """Llama 2 and 3, Granite, and models with the class of Llama."""
    size, width = sizes(config), config.whole("intermediate_size")
    bias = config.flag("attention_bias")
    mixer = size.attention(qkv_bias=bias, out_bias=bias)
    mlp = size.mlp(width, gated=True, bias=config.flag("mlp_bias"))
    return uniform(config, size, mixer, mlp, width)


def granite(config: ConfigReader) -> Architecture:
    """Granite 3: Llama with multipliers."""
    config.ignore(*GRANITE_MULTIPLIERS)
    return llama(config)


def mistral(config: ConfigReader) -> Architecture:
    """Mistral: every layer has a window, unless it is null."""
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    window = config.whole("sliding_window", default=4096, null=0, least=0)
    mlp = size.mlp(width, gated=True)
    return uniform(config, size, size.attention(window=window), mlp, width)


def qwen2(config: ConfigReader) -> Architecture:
    """Qwen2 and 2.5: biases of queries, keys and values; late layers may have windows."""
    return _qwen(config, sizes(config, kv_heads=32), qkv_bias=True)


def qwen3(config: ConfigReader) -> Architecture:
    """Qwen3: norms of queries and keys."""
    size, bias = sizes(config, kv_heads=32, head_dim=128), config.flag("attention_bias")
    return _qwen(config, size, qkv_bias=bias, out_bias=bias, other=2 * size.head_dim)


def _qwen(
    config: ConfigReader, size: Sizes, *, qkv_bias: bool, out_bias: bool = False, other: int = 0
) -> Architecture:
    """Dense, with windows from `max_window_layers` on if they are used."""
    width, first = (
        config.whole("intermediate_size"),
        config.whole("max_window_layers", default=28, least=0),
    )
    window = used_window(config)
    default = [SLIDING if window and layer >= first else FULL for layer in range(size.layers)]
    types = config.layer_types(size.layers, (FULL, SLIDING), default)
    mixers = [
        size.attention(
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            other=other,
            window=window if each == SLIDING else 0,
        )
        for each in types
    ]
    return size.model(
        mixers,
        [size.mlp(width, gated=True)] * size.layers,
        norm_parameters=2 * size.hidden,
        width=width,
        tied=config.flag("tie_word_embeddings", False),
    )


def gemma(config: ConfigReader) -> Architecture:
    """Gemma: wide heads, shared embeddings."""
    size = sizes(config, heads=16, kv_heads=16, head_dim=256, vocab=256000, context=8192)
    width, bias = config.whole("intermediate_size"), config.flag("attention_bias")
    mixer = size.attention(qkv_bias=bias, out_bias=bias)
    return uniform(config, size, mixer, size.mlp(width, gated=True), width, tied=True)


def gemma2(config: ConfigReader) -> Architecture:
    """Gemma 2: every other layer has a window; four norms."""
    size = sizes(config, heads=8, kv_heads=4, head_dim=256, vocab=256000, context=8192)
    return _gemma(config, size, every=2)


def gemma3(config: ConfigReader) -> Architecture:
    """Gemma 3: all but every sixth layer have a window; norms of queries and keys."""
    size = sizes(config, heads=8, kv_heads=4, head_dim=256, vocab=262208, context=131072)
    every = config.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _gemma(config, size, every=every, other=2 * size.head_dim)


def _gemma(config: ConfigReader, size: Sizes, *, every: int, other: int = 0) -> Architecture:
    """Windows in all but every n-th layer, four norms."""
    width, bias = config.whole("intermediate_size"), config.flag("attention_bias")
    config.require("use_bidirectional_attention", False)
    window = config.whole("sliding_window", default=4096, null=0, least=0)
    default = [FULL if (layer + 1) % every == 0 else SLIDING for layer in range(size.layers)]
    types = config.layer_types(size.layers, (FULL, SLIDING), default)
    mixers = [
        size.attention(
            qkv_bias=bias, out_bias=bias, other=other, window=window if each == SLIDING else 0
        )
        for each in types
    ]
    return size.model(
        mixers,
        [size.mlp(width, gated=True)] * size.layers,
        norm_parameters=4 * size.hidden,
        width=width,
        tied=config.flag("tie_word_embeddings", True),
    )


def phi(config: ConfigReader) -> Architecture:
    """Phi 1 and 2: biases everywhere, one LayerNorm a layer."""
    size = sizes(config, context=2048)
    width = config.whole("intermediate_size", default=4 * size.hidden, null=4 * size.hidden)
    norms = 4 * size.head_dim if config.flag("qk_layernorm") else 0
    return size.model(
        [size.attention(qkv_bias=True, out_bias=True, other=norms)] * size.layers,
        [size.mlp(width, gated=False, bias=True)] * size.layers,
        norm_parameters=2 * size.hidden,
        width=width,
        tied=config.flag("tie_word_embeddings", False),
        gated=False,
        outside=2 * size.hidden + size.vocab,
    )


def phi3(config: ConfigReader) -> Architecture:
    """Phi 3 and 4: every layer may have a window."""
    size, width = sizes(config), config.whole("intermediate_size")
    config.require("attention_bias", False)
    window = config.whole("sliding_window", default=0, null=0, least=0)
    mlp = size.mlp(width, gated=True)
    return uniform(config, size, size.attention(window=window), mlp, width)


def starcoder2(config: ConfigReader) -> Architecture:
    """StarCoder2: LayerNorm, two matrices, biases."""
    size, width = sizes(config, kv_heads=2), config.whole("intermediate_size")
    config.require("mlp_type", "default")
    config.require("norm_type", "layer_norm")
    bias, window = (
        config.flag("use_bias", True),
        config.whole("sliding_window", default=0, null=0, least=0),
    )
    mixer = size.attention(qkv_bias=bias, out_bias=bias, window=window)
    mlp = size.mlp(width, gated=False, bias=bias)
    return layer_normed(config, size, mixer, mlp, width)


def opt(config: ConfigReader) -> Architecture:
    """OPT: learned positions, two of them unused; two matrices, biases."""
    size = sizes(config)
    config.require("num_key_value_heads", size.heads)
    config.require("head_dim", size.hidden // size.heads)
    width, bias = config.whole("ffn_dim"), config.flag("enable_bias", True)
    norm = 2 * size.hidden if config.flag("layer_norm_elementwise_affine", True) else 0
    has_last = config.flag("do_layer_norm_before", True)
    has_last &= not config.flag("_remove_final_layer_norm")
    embedded = config.whole("word_embed_proj_dim", default=size.hidden)
    projected = 0 if embedded == size.hidden else 2 * size.hidden * embedded
    return size.model(
        [size.attention(qkv_bias=bias, out_bias=bias)] * size.layers,
        [size.mlp(width, gated=False, bias=bias)] * size.layers,
        norm_parameters=2 * norm,
        width=width,
        tied=config.flag("tie_word_embeddings", True),
        gated=False,
        outside=(size.context + 2) * size.hidden + has_last * norm + projected,
        embedding_size=embedded,
    )


def gpt2(config: ConfigReader) -> Architecture:
    """GPT-2: learned positions, two matrices, biases."""
    config.ignore("n_ctx", "summary_activation", "summary_first_dropout", "summary_type")
    config.ignore("summary_proj_to_labels", "summary_use_proj", "scale_attn_weights")
    config.ignore("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn")
    size = older_sizes(
        config,
        {
            "hidden": ("n_embd",),
            "heads": ("n_head",),
            "layers": ("n_layer",),
            "context": ("n_positions",),
        },
    )
    width = config.whole("n_inner", default=4 * size.hidden)
    mixer = size.attention(qkv_bias=True, out_bias=True)
    mlp = size.mlp(width, gated=False, bias=True)
    positions = size.context * size.hidden
    return layer_normed(config, size, mixer, mlp, width, outside=positions)


def gpt_neox(config: ConfigReader) -> Architecture:
    """GPT-NeoX and Pythia: two matrices, biases, two embeddings."""
    config.ignore("use_parallel_residual", "attention_probs_dropout_prob", "hidden_dropout_prob")
    size, width = sizes(config, context=2048), config.whole("intermediate_size")
    bias = config.flag("attention_bias", True)
    mixer = size.attention(qkv_bias=bias, out_bias=bias)
    mlp = size.mlp(width, gated=False, bias=True)
    return layer_normed(config, size, mixer, mlp, width, tied=False)


def bloom(config: ConfigReader) -> Architecture:
    """BLOOM: two matrices of four times the hidden size, a norm of the embeddings, biases."""
    config.ignore("apply_residual_connection_post_layernorm", "slow_but_exact", "skip_bias_add")
    config.ignore("skip_bias_add_qkv", "attention_softmax_in_fp32", "bias_dropout_fusion")
    config.ignore("masked_softmax_fusion", "offset_alibi", "unk_token_id")
    size = older_sizes(
        config,
        {
            "hidden": ("hidden_size", "n_embed"),
            "heads": ("n_head", "num_attention_heads"),
            "layers": ("n_layer", "num_hidden_layers"),
            "context": ("seq_length",),
        },
    )
    width = 4 * size.hidden
    mixer = size.attention(qkv_bias=True, out_bias=True)
    mlp = size.mlp(width, gated=False, bias=True)
    return layer_normed(config, size, mixer, mlp, width, outside=2 * size.hidden)


def mpt(config: ConfigReader) -> Architecture:
    """MPT with ALiBi: two matrices, no biases."""
    config.ignore("embedding_fraction", "logit_scale", "tokenizer_name", "verbose")
    config.ignore("learned_pos_emb")
    attention = config.part("attn_config")
    attention.require("alibi", True)
    attention.require("attn_type", "multihead_attention")
    for key in ("qk_ln", "prefix_lm"):
        attention.require(key, False)
    attention.ignore("alibi_bias_max", "attn_impl", "attn_uses_sequence_id", "clip_qkv")
    attention.ignore("softmax_scale", "attn_pdrop", "is_encoder_decoder", "dtype")
    attention.refuse_unknown("mpt, part attn_config")
    config.require("no_bias", True)
    size = older_sizes(
        config,
        {
            "hidden": ("d_model",),
            "heads": ("n_heads",),
            "layers": ("n_layers",),
            "context": ("max_seq_len",),
        },
    )
    width = config.whole("expansion_ratio", default=4) * size.hidden
    mlp = size.mlp(width, gated=False)
    return uniform(config, size, size.attention(), mlp, width, tied=True, gated=False)


def falcon(config: ConfigReader) -> Architecture:
    """Falcon: one KV head, or groups of heads in the newer ones; attention beside the MLP."""
    config.ignore("alibi", "apply_residual_connection_post_layernorm", "ff_factor")
    size = older_sizes(
        config,
        {
            "hidden": ("hidden_size", "n_embed"),
            "heads": ("num_attention_heads", "n_head"),
            "layers": ("num_hidden_layers", "n_layer"),
            "context": ("max_position_embeddings",),
        },
    )
    config.require("head_dim", size.head_dim)
    stated = config.whole("num_kv_heads", "n_head_kv", default=size.heads)
    grouped, bias = config.flag("new_decoder_architecture"), config.flag("bias")
    shared = config.flag("multi_query", True) and not grouped
    size = replace(size, kv_heads=1 if shared else stated if grouped else size.heads)
    width = config.whole("ffn_hidden_size", default=4 * size.hidden)
    beside = config.whole("num_ln_in_parallel_attn", default=2 if grouped else 1)
    norms = beside if config.flag("parallel_attn", True) else 2
    return size.model(
        [size.attention(qkv_bias=bias, out_bias=bias)] * size.layers,
        [size.mlp(width, gated=False, bias=bias)] * size.layers,
        norm_parameters=2 * norms * size.hidden,
        width=width,
        tied=config.flag("tie_word_embeddings", True),
        gated=False,
        outside=2 * size.hidden,
    )


FAMILIES: Mapping[str, Callable[[ConfigReader], Architecture]] = {
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
