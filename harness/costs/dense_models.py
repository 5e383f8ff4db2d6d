"""Families of models with one MLP a layer, by the keys of their configs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from harness.costs.architectures import (
    GRANITE_MULTIPLIERS,
    Fields,
    Sizes,
    older_sizes,
    patterned,
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


def ministral3(config: ConfigReader) -> Fields:
    """Ministral 3: Mistral without windows."""
    size, width = sizes(config, kv_heads=8, head_dim=128), config.whole("intermediate_size")
    return size.model(size.attention(window=config.window()), size.mlp(width), width)


def qwen2(config: ConfigReader) -> Fields:
    """Qwen2 and 2.5: biases of queries, keys and values; late layers may have windows."""
    return _qwen(config, sizes(config, kv_heads=32), qkv_bias=True)


def qwen3(config: ConfigReader) -> Fields:
    """Qwen3: norms of queries and keys."""
    size, bias = sizes(config, kv_heads=32, head_dim=128), config.flag("attention_bias")
    return _qwen(config, size, bias=bias, other=2 * size.head_dim)


def _qwen(config: ConfigReader, size: Sizes, **attention: Any) -> Fields:
    """Dense, with windows from `max_window_layers` on if they are used."""
    if config.value("dual_chunk_attention_config"):
        config.note("dual chunk attention is counted as attention to all tokens")
    width = config.whole("intermediate_size")
    first = config.whole("max_window_layers", default=28, least=0)
    window = used_window(config)
    default = [window > 0 and layer >= first for layer in range(size.layers)]
    return size.model(size.windowed(window, default, **attention), size.mlp(width), width)


def smollm3(config: ConfigReader) -> Fields:
    """SmolLM3: Llama with layers without rotation, and windows if they are used."""
    config.ignore("no_rope_layers no_rope_layer_interval max_window_layers")
    size, width = sizes(config, heads=16, kv_heads=4), config.whole("intermediate_size")
    window, bias = used_window(config, default=0), config.flag("attention_bias")
    mixers = size.windowed(window, [window > 0] * size.layers, bias=bias)
    mlp = size.mlp(width, bias=config.flag("mlp_bias"))
    return size.model(mixers, mlp, width, tied=True)


def ernie(config: ConfigReader) -> Fields:
    """ERNIE 4.5 without experts, and Arcee's and Seed's likes of Llama have a flag of biases."""
    size, bias = sizes(config, kv_heads=2, head_dim=128), config.flag("use_bias")
    width = config.whole("intermediate_size")
    return size.model(size.attention(bias=bias), size.mlp(width, bias=bias), width, tied=True)


def arcee(config: ConfigReader) -> Fields:
    """Arcee and Nemotron 4: two matrices, squared ReLU."""
    return _squared(config, norms=2)


def nemotron(config: ConfigReader) -> Fields:
    """Nemotron 4 and Minitron: two matrices, LayerNorm."""
    return _squared(config, norms=4)


def _squared(config: ConfigReader, *, norms: int) -> Fields:
    size, width = sizes(config), config.whole("intermediate_size")
    mixer = size.attention(bias=config.flag("attention_bias"))
    mlp = size.mlp(width, gated=False, bias=config.flag("mlp_bias"))
    outside = norms // 2 * size.hidden
    return size.model(mixer, mlp, width, gated=False, norms=norms, outside=outside)


def apertus(config: ConfigReader) -> Fields:
    """Apertus: two matrices with a learned activation, norms of queries and keys."""
    size, width = sizes(config), config.whole("intermediate_size")
    config.require("mlp_bias", False)
    bias = config.flag("attention_bias")
    mixer = size.attention(bias=bias, other=2 * size.head_dim)
    mlp = replace(size.mlp(width, gated=False), other_parameters=2)
    return size.model(mixer, mlp, width, gated=False)


def seed_oss(config: ConfigReader) -> Fields:
    """Seed-OSS: biases of queries, keys and values."""
    size, width = sizes(config, kv_heads=8, head_dim=128), config.whole("intermediate_size")
    config.require("attention_out_bias", False)
    mixer = size.attention(qkv_bias=config.flag("attention_bias", True))
    return size.model(mixer, size.mlp(width, bias=config.flag("mlp_bias")), width)


def hunyuan(config: ConfigReader) -> Fields:
    """Hunyuan without experts: norms of queries and keys."""
    size, width = sizes(config), config.whole("intermediate_size")
    config.ignore("eod_token_id use_cla cla_share_factor attention_head_dim pad_id")
    config.require("use_cla", False)
    mixer = size.attention(bias=config.flag("attention_bias"), other=2 * size.head_dim)
    return size.model(mixer, size.mlp(width), width)


def olmo(config: ConfigReader) -> Fields:
    """OLMo: norms without parameters."""
    size, width = sizes(config), config.whole("intermediate_size")
    config.ignore("clip_qkv")
    mixer = size.attention(bias=config.flag("attention_bias"))
    return size.model(mixer, size.mlp(width), width, norms=0, outside=0)


def olmo2(config: ConfigReader) -> Fields:
    """OLMo 2: norms of whole queries and keys, behind attention and MLP."""
    size, width = sizes(config), config.whole("intermediate_size")
    norms = (size.heads + size.kv_heads) * size.head_dim
    mixer = size.attention(bias=config.flag("attention_bias"), other=norms)
    return size.model(mixer, size.mlp(width), width) | {"norms_across_heads": True}


def olmo3(config: ConfigReader) -> Fields:
    """OLMo 3: OLMo 2 with windows in all but every fourth layer."""
    size, width = sizes(config), config.whole("intermediate_size")
    norms = (size.heads + size.kv_heads) * size.head_dim
    default = [(layer + 1) % 4 != 0 for layer in range(size.layers)]
    bias = config.flag("attention_bias")
    mixers = size.windowed(config.window(4096), default, bias=bias, other=norms)
    return size.model(mixers, size.mlp(width), width) | {"norms_across_heads": True}


def exaone4(config: ConfigReader) -> Fields:
    """EXAONE 4: norms of queries and keys, windows by a pattern as LLLG or of every n-th layer."""
    size, width = sizes(config), config.whole("intermediate_size")
    window, default = config.window(4096), patterned(config, size.layers, every=4)
    mixers = size.windowed(window, default, other=2 * size.head_dim)
    return size.model(mixers, size.mlp(width), width)


def glm(config: ConfigReader) -> Fields:
    """GLM-4 of 9B: biases of queries, keys and values."""
    return _glm(config, norms=2)


def glm4(config: ConfigReader) -> Fields:
    """GLM-4-0414: GLM with two norms more."""
    return _glm(config, norms=4)


def _glm(config: ConfigReader, *, norms: int) -> Fields:
    size = sizes(config, kv_heads=2, head_dim=128, vocab=151552, context=131072)
    width = config.whole("intermediate_size")
    mixer = size.attention(qkv_bias=config.flag("attention_bias", True))
    return size.model(mixer, size.mlp(width), width, norms=norms)


def stablelm(config: ConfigReader) -> Fields:
    """StableLM 2: LayerNorm, perhaps norms of each head."""
    size, width = sizes(config), config.whole("intermediate_size")
    is_parallel = config.flag("use_parallel_residual")
    norms = (size.heads + size.kv_heads) * size.head_dim if config.flag("qk_layernorm") else 0
    mixer = size.attention(qkv_bias=config.flag("use_qkv_bias"), other=norms)
    norms = 2 if is_parallel else 4
    return size.model(mixer, size.mlp(width), width, norms=norms, outside=2 * size.hidden)


def cohere(config: ConfigReader) -> Fields:
    """Command R: one norm a layer, perhaps norms of each head."""
    config.ignore("logit_scale")
    size, width = sizes(config), config.whole("intermediate_size")
    norms = (size.heads + size.kv_heads) * size.head_dim if config.flag("use_qk_norm") else 0
    mixer = size.attention(bias=config.flag("attention_bias"), other=norms)
    return size.model(mixer, size.mlp(width), width, tied=True, norms=1)


def cohere2(config: ConfigReader) -> Fields:
    """Command R7B and A: one norm a layer, windows in all but every fourth."""
    config.ignore("logit_scale cache_implementation order_of_interleaved_layers rotary_pct")
    config.ignore("position_embedding_type use_gated_activation use_embedding_sharing")
    config.ignore("use_parallel_block use_parallel_embedding use_qk_norm layer_switch")
    size, width = sizes(config), config.whole("intermediate_size")
    default = patterned(config, size.layers, every=4)
    mixers = size.windowed(config.window(4096), default, bias=config.flag("attention_bias"))
    return size.model(mixers, size.mlp(width), width, tied=True, norms=1)


def gemma3n(config: ConfigReader) -> Fields:
    """Gemma 3n, the model of texts: late layers read the KV of earlier ones, embeddings a layer."""
    config.ignore("altup_active_idx altup_coef_clip altup_correct_scale altup_lr_multiplier")
    config.ignore("activation_sparsity_pattern final_logit_softcapping")
    size = sizes(config, heads=8, kv_heads=2, head_dim=256, vocab=262400, context=32768)
    widths = config.value("intermediate_size")
    widths = set(widths) if isinstance(widths, list) else {config.whole("intermediate_size")}
    if len(widths) != 1:
        raise ValueError(f"{config.path}: MLPs of {len(widths)} widths are not modelled")
    (width,) = widths
    config.require("attention_bias", False)
    default = [(layer + 1) % 5 != 0 for layer in range(size.layers)]
    shared = config.whole("num_kv_shared_layers", default=15, least=0)
    window = config.window(512)
    own = size.windowed(window, default, other=2 * size.head_dim)
    late = [replace(each, shares_kv=True) for each in own]
    mixers = own[: size.layers - shared] + late[size.layers - shared :]
    inputs, rank = (
        config.whole("altup_num_inputs", default=4),
        config.whole("laurel_rank", default=64),
    )
    beside = config.whole("hidden_size_per_layer_input", default=256)
    mlp = size.mlp(width)
    mlp = replace(
        mlp,
        dense_parameters=mlp.dense_parameters + 2 * size.hidden * (rank + beside),
        other_parameters=(4 + inputs) * size.hidden + inputs**2 * (1 + inputs),
    )
    config.note("the further hidden states of AltUp are counted in weights, not in seconds")
    tables = config.whole("vocab_size_per_layer_input", default=262144) + size.hidden
    outside = size.hidden + size.layers * beside * tables + beside
    outside += 2 * (inputs - 1) * size.hidden**2
    return size.model(mixers, mlp, width, tied=True, norms=4, outside=outside)


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
    for key in ("attention_bias", "mlp_bias", "lm_head_bias"):
        config.require(key, False)
    config.require("full_attn_mod", 1)
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
    "apertus": apertus,
    "arcee": arcee,
    "bloom": bloom,
    "cohere": cohere,
    "cohere2": cohere2,
    "ernie4_5": ernie,
    "exaone4": exaone4,
    "falcon": falcon,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma3n_text": gemma3n,
    "glm": glm,
    "glm4": glm4,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "granite": granite,
    "hunyuan_v1_dense": hunyuan,
    "llama": llama,
    "ministral3": ministral3,
    "mistral": mistral,
    "mpt": mpt,
    "nemotron": nemotron,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "opt": opt,
    "phi": phi,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "seed_oss": seed_oss,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
}
"""By `model_type`."""
