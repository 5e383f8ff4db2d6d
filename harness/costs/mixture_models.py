"""Families of models with routed experts, by the keys of their configs."""

from collections.abc import Callable, Mapping

from harness.costs.architectures import (
    CHUNKED,
    FULL,
    GRANITE_MULTIPLIERS,
    Fields,
    Sizes,
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


def granite_hybrid(config: ConfigReader) -> Fields:
    """Granite 4: state-space layers with a few of attention, experts beside a shared MLP."""
    config.ignore(GRANITE_MULTIPLIERS)
    config.ignore("position_embedding_type normalization_function init_method mamba_chunk_size")
    config.ignore("time_step_limit time_step_min time_step_max time_step_floor")
    size, width = sizes(config), config.whole("intermediate_size")
    attention = size.attention(bias=config.flag("attention_bias"))
    state_space = _mamba2(config, size)
    names = {"mamba": state_space, "linear_attention": state_space}
    names |= {"attention": attention, FULL: attention}
    types = config.layer_types(size.layers, tuple(names), ["mamba"] * size.layers)
    experts, per_token = routed_experts(config, least=0)
    shared = config.whole("shared_intermediate_size", default=1024)
    mixture = size.mixture(experts, per_token, width, shared=shared)
    return size.model(
        [names[each] for each in types], mixture if experts else size.mlp(shared), width
    )


def _mamba2(config: ConfigReader, size: Sizes) -> Mixer:
    """A state-space mixer of Mamba 2: projections, a convolution, a gated norm, and its state."""
    inner = config.whole("mamba_expand", default=2) * size.hidden
    heads = config.whole("mamba_n_heads", default=128)
    states = config.whole("mamba_d_state", default=256)
    convolved = inner + 2 * config.whole("mamba_n_groups", default=1) * states
    kernel = config.whole("mamba_d_conv", default=4)
    is_auto = config.value("mamba_d_head") == "auto"
    if not is_auto and config.whole("mamba_d_head", default=64) * heads != inner:
        raise ValueError(f"{config.path}: mamba_n_heads x mamba_d_head is not {inner}")
    projected = inner + convolved + heads
    other = convolved * (kernel + config.flag("mamba_conv_bias", True)) + 3 * heads + inner
    other += config.flag("mamba_proj_bias") * (projected + size.hidden)
    return Mixer(
        parameters=size.hidden * (projected + inner),
        other_parameters=other,
        state_numbers=inner * states + convolved * (kernel - 1),
    )


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
    mixture = size.mixture(*routed_experts(config, 256, 8), width, shared=shared)
    norms = (size.heads + size.kv_heads) * size.head_dim
    found = size.model(size.attention(other=norms), mixture, width)
    return found | {"norms_across_heads": True}


def deepseek_v2(config: ConfigReader) -> Fields:
    """DeepSeek-V2: a latent instead of keys and values, shared experts, first layers dense."""
    return _deepseek(config, dense_layers=0, shared=2)


def deepseek_v3(config: ConfigReader) -> Fields:
    """DeepSeek-V3, R1, and Kimi K2, which has the class of DeepSeek-V3."""
    return _deepseek(config, dense_layers=3, shared=1)


def _deepseek(config: ConfigReader, *, dense_layers: int, shared: int) -> Fields:
    rotated = config.whole("qk_rope_head_dim", default=64)
    config.require("head_dim", rotated)
    config.require("qk_head_dim", rotated + config.whole("qk_nope_head_dim", default=128))
    size = sizes(config, head_dim=rotated)
    mixer = _latent_attention(config, size, rotated)
    return _after_dense_layers(config, size, mixer, dense_layers=dense_layers, shared=shared)


def glm4_moe(config: ConfigReader) -> Fields:
    """GLM-4.5 to 4.7: a shared expert, first layers dense, norms of queries and keys in some."""
    size = sizes(config, heads=96, kv_heads=8, vocab=151552, context=131072)
    norms = 2 * size.head_dim if config.flag("use_qk_norm") else 0
    mixer = size.attention(qkv_bias=config.flag("attention_bias"), other=norms)
    return _after_dense_layers(config, size, mixer, dense_layers=1, shared=1)


def _after_dense_layers(
    config: ConfigReader, size: Sizes, mixer: Mixer, *, dense_layers: int, shared: int
) -> Fields:
    """First layers are dense, all others mixtures with shared experts; no MTP."""
    config.ignore("ep_size n_group topk_group topk_method scoring_func seq_aux")
    config.ignore("aux_loss_alpha routed_scaling_factor num_nextn_predict_layers num_mtp_layers")
    config.require("moe_layer_freq", 1)
    config.require("mlp_bias", False)
    width = config.whole("moe_intermediate_size")
    shared = config.whole("n_shared_experts", default=shared, null=0, least=0)
    mixture = size.mixture(*routed_experts(config), width, shared=shared * width)
    dense = size.mlp(config.whole("intermediate_size"))
    first = config.whole("first_k_dense_replace", default=dense_layers, least=0)
    mlps = [dense if layer < first else mixture for layer in range(size.layers)]
    return size.model(mixer, mlps, width)


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
    "ernie4_5_moe": ernie_moe,
    "glm4_moe": glm4_moe,
    "gpt_oss": gpt_oss,
    "granitemoe": granite_moe,
    "granitemoehybrid": granite_hybrid,
    "kimi_k2": deepseek_v3,
    "llama4_text": llama4,
    "minimax_m2": minimax_m2,
    "mixtral": mixtral,
    "phimoe": phi_moe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
}
"""By `model_type`."""
