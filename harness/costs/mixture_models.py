"""Families of models with routed experts, by the keys of their configs."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.costs.architectures import (
    CHUNKED,
    GRANITE_MULTIPLIERS,
    Fields,
    Sizes,
    patterned,
    routed_experts,
    sizes,
    used_window,
)
from harness.costs.config_reader import ConfigReader
from harness.costs.layer_kinds import Mixer, Mlp


def granite_moe(config: ConfigReader) -> Fields:
    """Granite 3 with experts."""
    config.ignore(GRANITE_MULTIPLIERS)
    size, width = sizes(config), config.whole("intermediate_size")
    mixer = size.attention(bias=config.flag("attention_bias"))
    return size.model(mixer, size.mixture(*routed_experts(config), width), width)


def granite_shared(config: ConfigReader) -> Fields:
    """Granite with experts beside an MLP that every token meets."""
    config.ignore(GRANITE_MULTIPLIERS)
    size, width = sizes(config), config.whole("intermediate_size")
    mixer = size.attention(bias=config.flag("attention_bias"))
    shared = config.whole("shared_intermediate_size", default=0, null=0, least=0)
    mixture = size.mixture(*routed_experts(config, 8, 2), width, shared=shared)
    return size.model(mixer, mixture, width)


def llama4(config: ConfigReader) -> Fields:
    """Llama 4: chunks of attention but for layers without rotation, every n-th layer a mixture."""
    config.ignore("attn_scale attn_temperature_tuning floor_scale for_llm_compressor rope")
    size, width = sizes(config, head_dim=128), config.whole("intermediate_size")
    bias, every = config.flag("attention_bias"), config.whole("no_rope_layer_interval", default=4)
    rotated = config.numbers("no_rope_layers") or [
        int((layer + 1) % every != 0) for layer in range(size.layers)
    ]
    chunk = config.whole("attention_chunk_size", default=8192, null=0)
    mixers = size.windowed(chunk, [each != 0 for each in rotated], kind=CHUNKED, bias=bias)
    step = config.whole("interleave_moe_layer_step", default=1)
    routed = config.numbers("moe_layers") or list(range(step - 1, size.layers, step))
    mixture = size.mixture(*routed_experts(config), width, shared=width)
    dense = size.mlp(config.whole("intermediate_size_mlp", default=16384))
    mlps = [mixture if layer in set(routed) else dense for layer in range(size.layers)]
    return size.model(mixers, mlps, width)


def mixtral(config: ConfigReader) -> Fields:
    """Mixtral: all layers are mixtures."""
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    mixer = size.attention(window=config.window())
    return size.model(mixer, size.mixture(*routed_experts(config, 8, 2), width), width)


def qwen2_moe(config: ConfigReader) -> Fields:
    """Qwen2 with routed experts, and a shared one behind a gate."""
    size = sizes(config, kv_heads=16)
    config.require("use_sliding_window", False)
    config.ignore("sliding_window max_window_layers layer_types")
    mixer = size.attention(qkv_bias=config.flag("qkv_bias", True))
    width = config.whole("moe_intermediate_size")
    shared = config.whole("shared_expert_intermediate_size")
    mixture = size.mixture(*routed_experts(config), width, shared=shared, other=size.hidden)
    return _qwen_mixture(config, size, mixer, mixture, width)


def qwen3_moe(config: ConfigReader) -> Fields:
    """Qwen3 with routed experts."""
    size, bias = sizes(config, kv_heads=4), config.flag("attention_bias")
    config.ignore("max_window_layers")
    config.require("qkv_bias", False)
    config.require("shared_expert_intermediate_size", 0)
    window, width = used_window(config), config.whole("moe_intermediate_size")
    mixer = size.attention(bias=bias, other=2 * size.head_dim, window=window)
    return _qwen_mixture(config, size, mixer, size.mixture(*routed_experts(config), width), width)


def _qwen_mixture(
    config: ConfigReader, size: Sizes, mixer: Mixer, mixture: Mlp, width: int
) -> Fields:
    """Every n-th layer is a mixture, but for those that are said to be dense."""
    step = config.whole("decoder_sparse_step", default=1)
    only = set(config.numbers("mlp_only_layers"))
    dense = size.mlp(config.whole("intermediate_size"))
    routed = [layer not in only and (layer + 1) % step == 0 for layer in range(size.layers)]
    return size.model(mixer, [mixture if each else dense for each in routed], width)


def phi_moe(config: ConfigReader) -> Fields:
    """Phi 3.5 with experts: LayerNorm, perhaps a bias of the output."""
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    mixer = size.attention(bias=config.flag("attention_bias"), window=config.window())
    mixture = size.mixture(*routed_experts(config, 16, 2), width)
    outside = 2 * size.hidden + config.flag("lm_head_bias") * size.vocab
    return size.model(mixer, mixture, width, norms=4, outside=outside)


def gpt_oss(config: ConfigReader) -> Fields:
    """GPT-OSS: windows in every other layer, attention sinks, experts with biases."""
    config.ignore("initial_context_length swiglu_limit swiglu_alpha")
    size = sizes(config, heads=64, kv_heads=8, head_dim=64, context=131072)
    width, bias = config.whole("intermediate_size"), config.flag("attention_bias", True)
    default = [layer % 2 == 0 for layer in range(size.layers)]
    mixers = size.windowed(config.window(128), default, bias=bias, other=size.heads)
    experts, per_token = routed_experts(config, 128, 4)
    biases = experts * (1 + 2 * width + size.hidden)
    return size.model(mixers, size.mixture(experts, per_token, width, other=biases), width)


def olmoe(config: ConfigReader) -> Fields:
    """OLMoE: norms of whole queries and keys."""
    config.ignore("clip_qkv")
    size, width = sizes(config), config.whole("intermediate_size")
    norms = (size.heads + size.kv_heads) * size.head_dim
    mixer = size.attention(bias=config.flag("attention_bias"), other=norms)
    mixture = size.mixture(*routed_experts(config, 64, 8), width)
    return size.model(mixer, mixture, width) | {"norms_across_heads": True}


def qwen3_vl_moe(config: ConfigReader) -> Fields:
    """Qwen3-VL with routed experts, the model of texts."""
    size = sizes(config, kv_heads=16, head_dim=128)
    config.require("sliding_window", 0)
    mixer = size.attention(bias=config.flag("attention_bias"), other=2 * size.head_dim)
    width = config.whole("moe_intermediate_size")
    mixture = size.mixture(*routed_experts(config, 60, 4), width)
    return _qwen_mixture(config, size, mixer, mixture, width)


def minimax_m2(config: ConfigReader) -> Fields:
    """MiniMax M2: all layers attend to all tokens, norms of whole queries and keys, no MTP."""
    config.ignore("use_mtp num_mtp_modules mtp_transformer_layers scoring_func")
    config.ignore("layernorm_full_attention_beta layernorm_linear_attention_beta")
    config.ignore("layernorm_mlp_beta use_routing_bias")
    size = sizes(config, kv_heads=8, head_dim=128)
    config.require("attn_type_list", [1] * size.layers)
    config.require("sliding_window", 0)
    config.require("qk_norm_type", "per_layer")
    width = config.whole("intermediate_size")
    shared = config.whole("shared_intermediate_size", default=0, null=0, least=0)
    experts, per_token = routed_experts(config, 256, 8)
    mixture = size.mixture(experts, per_token, width, shared=shared, other=experts)
    norms = (size.heads + size.kv_heads) * size.head_dim
    found = size.model(size.attention(other=norms), mixture, width)
    return found | {"norms_across_heads": True}


def deepseek_v2(config: ConfigReader) -> Fields:
    """DeepSeek-V2: a latent instead of keys and values, shared experts, first layers dense."""
    return _deepseek(config, dense_layers=0, shared=2)


def deepseek_v3(config: ConfigReader) -> Fields:
    """DeepSeek-V3, R1, and Kimi K2, which has the class of DeepSeek-V3."""
    return _deepseek(config, dense_layers=3, shared=1, corrected=True)


def deepseek_v32(config: ConfigReader) -> Fields:
    """DeepSeek-V3.2 and GLM-5: DeepSeek-V3 with an indexer of the tokens that count."""
    config.ignore("index_topk_freq indexer_rope_interleave layer_types indexer_types")
    return _deepseek(config, dense_layers=3, shared=1, corrected=True, indexed=True)


def glm4_lite(config: ConfigReader) -> Fields:
    """GLM-4.7-Flash: a latent instead of keys and values."""
    return _deepseek(config, dense_layers=1, shared=1, corrected=True)


def mistral4(config: ConfigReader) -> Fields:
    """Mistral Small 4 and Large 3: a latent instead of keys and values."""
    return _deepseek(config, dense_layers=0, shared=1)


def _deepseek(
    config: ConfigReader,
    *,
    dense_layers: int,
    shared: int,
    corrected: bool = False,
    indexed: bool = False,
) -> Fields:
    rotated = config.whole("qk_rope_head_dim", default=64)
    whole = rotated + config.whole("qk_nope_head_dim", default=128)
    config.require("head_dim", rotated, whole)
    config.require("qk_head_dim", whole)
    size = replace(sizes(config, head_dim=rotated), head_dim=rotated)
    mixer = _latent_attention(config, size, rotated)
    if indexed:
        mixer = _with_indexer(config, size, mixer)
    return _after_dense_layers(
        config, size, mixer, dense_layers=dense_layers, shared=shared, corrected=corrected
    )


def _with_indexer(config: ConfigReader, size: Sizes, mixer: Mixer) -> Mixer:
    """A light scorer of tokens that keeps a key of 8 bits, with a scale, of each token."""
    heads = config.whole("index_n_heads", default=64)
    width = config.whole("index_head_dim", default=128)
    most = config.whole("index_topk", default=2048)
    config.note(
        f"sparse attention is counted as attention to all tokens, not to {most:,}; the indexer "
        "counts in weights and KV, not in seconds of attention"
    )
    rank = config.whole("q_lora_rank", default=1536)
    return replace(
        mixer,
        parameters=mixer.parameters + rank * heads * width + size.hidden * (width + heads),
        other_parameters=mixer.other_parameters + 2 * width,
        kept_bytes=width + 4,
    )


def glm4_moe(config: ConfigReader) -> Fields:
    """GLM-4.5 to 4.7: a shared expert, first layers dense, norms of queries and keys in some."""
    size = sizes(config, heads=96, kv_heads=8, vocab=151552, context=131072)
    norms = 2 * size.head_dim if config.flag("use_qk_norm") else 0
    mixer = size.attention(qkv_bias=config.flag("attention_bias"), other=norms)
    return _after_dense_layers(config, size, mixer, dense_layers=1, shared=1, corrected=True)


def solar_open(config: ConfigReader) -> Fields:
    """Solar Open: GLM-4.5 with experts in every layer."""
    size = sizes(config, heads=64, kv_heads=8, head_dim=128, vocab=196608, context=131072)
    config.ignore("intermediate_size first_k_dense_replace")
    mixer = size.attention(bias=config.flag("attention_bias"))
    return _after_dense_layers(config, size, mixer, dense_layers=0, shared=1, corrected=True)


def dots1(config: ConfigReader) -> Fields:
    """dots.llm1: norms of queries and keys, first layers dense; windows where types say so."""
    size = sizes(config)
    config.ignore("max_window_layers")
    bias = config.flag("attention_bias")
    window = config.window(4096)
    mixers = size.windowed(window, [False] * size.layers, bias=bias, other=2 * size.head_dim)
    return _after_dense_layers(config, size, mixers, dense_layers=0, shared=0, corrected=True)


def exaone_moe(config: ConfigReader) -> Fields:
    """K-EXAONE: windows, norms of queries and keys, first layers dense."""
    size = sizes(config)
    default = patterned(config, size.layers, every=4)
    mixers = size.windowed(config.window(4096), default, other=2 * size.head_dim)
    return _after_dense_layers(config, size, mixers, dense_layers=1, shared=1, corrected=True)


def _after_dense_layers(
    config: ConfigReader,
    size: Sizes,
    mixer: Mixer | list[Mixer],
    *,
    dense_layers: int,
    shared: int,
    corrected: bool = False,
) -> Fields:
    """First layers are dense, all others mixtures with shared experts; no MTP.

    A `corrected` router has a bias of each expert.
    """
    config.ignore("ep_size n_group topk_group topk_method scoring_func seq_aux")
    config.ignore("aux_loss_alpha routed_scaling_factor num_nextn_predict_layers num_mtp_layers")
    config.require("moe_layer_freq", 1)
    config.require("mlp_bias", False)
    width = config.whole("moe_intermediate_size")
    shared = config.whole("n_shared_experts", "num_shared_experts", default=shared, null=0, least=0)
    experts, per_token = routed_experts(config)
    mixture = size.mixture(
        experts, per_token, width, shared=shared * width, other=corrected * experts
    )
    first = config.whole("first_k_dense_replace", default=dense_layers, null=0, least=0)
    types = config.value("mlp_layer_types")
    if isinstance(types, list):
        routed = [each == "sparse" for each in types]
    else:
        routed = [layer >= first for layer in range(size.layers)]
    if len(routed) != size.layers:
        raise ValueError(f"{config.path}: mlp_layer_types must name {size.layers} layers")
    dense = mixture if all(routed) else size.mlp(config.whole("intermediate_size"))
    config.ignore("intermediate_size")
    return size.model(mixer, [mixture if each else dense for each in routed], width)


def _latent_attention(config: ConfigReader, size: Sizes, rotated: int) -> Mixer:
    """Keys and values of all heads come of one latent per token, which is what is kept."""
    latent = config.whole("kv_lora_rank", default=512)
    plain = config.whole("qk_nope_head_dim", default=128)
    values = config.whole("v_head_dim", default=128)
    rank = config.whole("q_lora_rank", default=1536, null=0)
    queries = size.heads * (plain + rotated)
    parameters = rank * (size.hidden + queries) if rank else size.hidden * queries
    parameters += size.hidden * (latent + rotated) + latent * size.heads * (plain + values)
    bias = config.flag("attention_bias") * (rank + latent + rotated + size.hidden)
    return Mixer(
        parameters=parameters + size.heads * values * size.hidden,
        other_parameters=rank + latent + bias,
        heads=1,
        kv_heads=1,
        kv_numbers_per_head=latent + rotated,
        attended_width=size.heads * (plain + rotated + values) // 2,
    )


def ernie_moe(config: ConfigReader) -> Fields:
    """ERNIE 4.5 with routed and shared experts between a first and a last layer."""
    config.ignore("moe_capacity moe_norm_min moe_gate moe_use_aux_free use_moe")
    size, bias = sizes(config, kv_heads=4), config.flag("use_bias")
    width = config.whole("moe_intermediate_size")
    experts = config.whole("moe_num_experts", default=64)
    shared = config.whole("moe_num_shared_experts", default=2, null=0, least=0) * width
    per_token = config.whole("moe_k", default=6)
    mixture = size.mixture(experts, per_token, width, shared=shared, other=experts)
    dense = size.mlp(config.whole("intermediate_size"), bias=bias)
    first = config.whole("moe_layer_start_index", default=1, least=0)
    last = config.whole("moe_layer_end_index", default=-1, least=-1)
    last = size.layers - 1 if last == -1 else last
    step = config.whole("moe_layer_interval", default=1)
    config.require("use_bias", False)
    routed = [first <= layer <= last and (layer + 1) % step == 0 for layer in range(size.layers)]
    mlps = [mixture if each else dense for each in routed]
    return size.model(size.attention(), mlps, width, tied=True)


FAMILIES: Mapping[str, Callable[[ConfigReader], Fields]] = {
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": deepseek_v32,
    "dots1": dots1,
    "ernie4_5_moe": ernie_moe,
    "exaone_moe": exaone_moe,
    "glm4_moe": glm4_moe,
    "glm4_moe_lite": glm4_lite,
    "glm_moe_dsa": deepseek_v32,
    "gpt_oss": gpt_oss,
    "granitemoe": granite_moe,
    "granitemoeshared": granite_shared,
    "kimi_k2": deepseek_v3,
    "llama4_text": llama4,
    "minimax_m2": minimax_m2,
    "mistral4": mistral4,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "phimoe": phi_moe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_vl_moe,
    "solar_open": solar_open,
}
"""By `model_type`."""
