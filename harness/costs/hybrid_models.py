"""Families of models with state-space or linear-attention layers, by the keys of their configs.

Such a layer keeps a state of fixed size for each running request and no KV. Number formats of
states are those of vLLM's `mamba_utils.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.costs.architectures import (
    FULL,
    GRANITE_MULTIPLIERS,
    Fields,
    Sizes,
    routed_experts,
    sizes,
)
from harness.costs.config_reader import ConfigReader
from harness.costs.layer_kinds import Mixer, Mlp

MAMBA, LINEAR, CONV = "mamba", "linear_attention", "conv"
NUMBER_BYTES = {"auto": 2, "float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes of a number of a state; "auto" is the format of the model."""
NO_MLP, NO_MIXER = Mlp(), Mixer(parameters=0)


def granite_hybrid(config: ConfigReader) -> Fields:
    """Granite 4: state-space layers with a few of attention, experts beside a shared MLP."""
    config.ignore(GRANITE_MULTIPLIERS)
    config.ignore("position_embedding_type normalization_function init_method mamba_chunk_size")
    config.ignore("time_step_limit time_step_min time_step_max time_step_floor layers_block_type")
    size, width = sizes(config), config.whole("intermediate_size")
    attention = size.attention(bias=config.flag("attention_bias"))
    state_space = _granite_mamba2(config, size)
    names = {MAMBA: state_space, LINEAR: state_space}
    names |= {"attention": attention, FULL: attention}
    types = config.layer_types(size.layers, tuple(names), [MAMBA] * size.layers)
    experts, per_token = routed_experts(config, least=0)
    shared = config.whole("shared_intermediate_size", default=1024)
    mixture = size.mixture(experts, per_token, width, shared=shared)
    return size.model(
        [names[each] for each in types], mixture if experts else size.mlp(shared), width
    )


def _granite_mamba2(config: ConfigReader, size: Sizes) -> Mixer:
    inner = config.whole("mamba_expand", default=2) * size.hidden
    heads = config.whole("mamba_n_heads", default=128)
    is_auto = config.value("mamba_d_head") == "auto"
    if not is_auto and config.whole("mamba_d_head", default=64) * heads != inner:
        raise ValueError(f"{config.path}: mamba_n_heads x mamba_d_head is not {inner}")
    return mamba2(
        size.hidden,
        inner=inner,
        heads=heads,
        states=config.whole("mamba_d_state", default=256),
        groups=config.whole("mamba_n_groups", default=1),
        kernel=config.whole("mamba_d_conv", default=4),
        conv_bias=config.flag("mamba_conv_bias", True),
        bias=config.flag("mamba_proj_bias"),
    )


def mamba2(
    hidden: int,
    *,
    inner: int,
    heads: int,
    states: int,
    groups: int,
    kernel: int,
    conv_bias: bool,
    bias: bool,
    normed: bool = True,
    number_bytes: int = 2,
) -> Mixer:
    """A state-space mixer of Mamba 2: projections, a convolution, a gated norm, and its state.

    `number_bytes` are those of a number in the state, beside the 16 bits of the convolution's.
    """
    convolved = inner + 2 * groups * states
    projected = inner + convolved + heads
    other = convolved * (kernel + conv_bias) + 3 * heads + normed * inner
    return Mixer(
        parameters=hidden * (projected + inner),
        other_parameters=other + bias * (projected + hidden),
        state_bytes=number_bytes * inner * states + 2 * convolved * (kernel - 1),
    )


def bamba(config: ConfigReader) -> Fields:
    """Bamba: Granite 4 without experts, attention in the layers of a list."""
    config.ignore("mamba_chunk_size num_logits_to_keep time_step_limit time_step_min time_step_max")
    config.ignore("z_loss_coefficient layer_types")
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    mixer, attended = _granite_mamba2(config, size), set(config.numbers("attn_layer_indices"))
    attention = size.attention(bias=config.flag("attention_bias"))
    mixers = [attention if layer in attended else mixer for layer in range(size.layers)]
    return size.model(mixers, size.mlp(width, bias=config.flag("mlp_bias")), width)


def falcon_h1(config: ConfigReader) -> Fields:
    """Falcon H1: attention and Mamba 2 beside each other in every layer."""
    config.ignore("lm_head_multiplier embedding_multiplier mlp_multipliers key_multiplier")
    config.ignore("attention_out_multiplier attention_in_multiplier ssm_multipliers")
    config.ignore("ssm_in_multiplier ssm_out_multiplier mamba_chunk_size num_logits_to_keep")
    config.ignore("mamba_norm_before_gate time_step_limit time_step_min time_step_max")
    config.ignore("time_step_floor attn_layer_indices mamba_use_mlp mlp_expansion_factor")
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    expand = config.whole("mamba_expand", default=2)
    inner = config.whole("mamba_d_ssm", default=1024, null=expand * size.hidden)
    heads = config.whole("mamba_n_heads", default=128)
    config.require("mamba_d_head", "auto", inner // heads)
    beside = mamba2(
        size.hidden,
        inner=inner,
        heads=heads,
        states=config.whole("mamba_d_state", default=256),
        groups=config.whole("mamba_n_groups", default=1),
        kernel=config.whole("mamba_d_conv", default=4),
        conv_bias=config.flag("mamba_conv_bias", True),
        bias=config.flag("mamba_proj_bias"),
        normed=config.flag("mamba_rms_norm"),
    )
    bias = config.flag("projectors_bias")
    attention = size.attention(bias=config.flag("attention_bias"))
    mixer = replace(
        attention,
        parameters=attention.parameters + beside.parameters,
        other_parameters=attention.other_parameters
        + beside.other_parameters
        + bias * (not config.flag("mamba_proj_bias")) * size.hidden,
        state_bytes=beside.state_bytes,
    )
    return size.model(mixer, size.mlp(width, bias=config.flag("mlp_bias")), width)


NEMOTRON_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Letters of `hybrid_override_pattern`."""


def nemotron_h(config: ConfigReader) -> Fields:
    """Nemotron H, Nano 2 and 3: each layer is a Mamba 2 mixer, attention, an MLP or a mixture."""
    config.ignore("time_step_limit time_step_min time_step_max time_step_floor time_step_rank")
    config.ignore("use_mamba_kernels mamba_hidden_act mlp_hidden_act chunk_size expand")
    config.ignore("residual_in_fp32 rescale_prenorm_residual num_logits_to_keep sliding_window")
    config.ignore("n_group topk_group routed_scaling_factor moe_shared_expert_overlap use_bias")
    config.ignore("mtp_layers_block_type mtp_hybrid_override_pattern num_nextn_predict_layers")
    config.ignore("mamba_num_groups attention_head_dim")
    config.require("mamba_proj_bias", False)
    config.require("use_bias", False)
    config.require("moe_latent_size", 0)
    blocks = _nemotron_blocks(config)
    size = replace(sizes(config, kv_heads=8, head_dim=128), layers=len(blocks))
    width = config.whole("intermediate_size", default=21504)
    mixers = {"attention": size.attention(bias=config.flag("attention_bias"))}
    mixers["mamba"] = mamba2(
        size.hidden,
        inner=config.whole("mamba_num_heads", default=128)
        * config.whole("mamba_head_dim", default=64),
        heads=config.whole("mamba_num_heads", default=128),
        states=config.whole("ssm_state_size", default=128),
        groups=config.whole("n_groups", default=8),
        kernel=config.whole("conv_kernel", default=4),
        conv_bias=config.flag("use_conv_bias", True),
        bias=False,
        number_bytes=NUMBER_BYTES[
            config.word("mamba_ssm_cache_dtype", "float32", tuple(NUMBER_BYTES))
        ],
    )
    mlps = {"mlp": size.mlp(width, gated=False, bias=config.flag("mlp_bias"))}
    if "moe" in blocks:
        mlps["moe"] = _nemotron_mixture(config, size)
    return size.model(
        [mixers.get(each, NO_MIXER) for each in blocks],
        [mlps.get(each, NO_MLP) for each in blocks],
        width,
        gated=False,
        norms=1,
    )


def _nemotron_blocks(config: ConfigReader) -> list[str]:
    """What each layer is, by a text of letters or a list."""
    pattern = config.value("hybrid_override_pattern")
    listed = config.value("layers_block_type")
    config.ignore("num_hidden_layers layer_types")
    if isinstance(listed, list):
        same = {"linear_attention": "mamba", "full_attention": "attention"}
        blocks = [same.get(str(each), str(each)) for each in listed]
    elif isinstance(pattern, str):
        blocks = [NEMOTRON_BLOCKS.get(letter, letter) for letter in pattern]
    else:
        raise ValueError(f"{config.path} has none of the keys hybrid_override_pattern")
    for each in blocks:
        if each not in NEMOTRON_BLOCKS.values():
            raise ValueError(f"{config.path}: a layer {each!r:.60} is not modelled")
    layers = config.whole("num_hidden_layers", default=len(blocks))
    if layers != len(blocks):
        raise ValueError(f"{config.path}: {len(blocks)} layers are named, {layers} are there")
    return blocks


def _nemotron_mixture(config: ConfigReader, size: Sizes) -> Mlp:
    """Experts of two matrices beside shared ones."""
    experts, per_token = routed_experts(config)
    config.ignore("moe_shared_expert_overlap")
    count = config.whole("n_shared_experts", default=1, least=0)
    width = config.whole("moe_intermediate_size")
    shared = config.whole("moe_shared_expert_intermediate_size", default=width)
    return Mlp(
        shared_parameters=2 * size.hidden * shared * count,
        router_parameters=size.hidden * experts,
        experts=experts,
        experts_per_token=per_token,
        expert_parameters=2 * size.hidden * width,
        other_parameters=experts,
    )


def qwen3_next(config: ConfigReader) -> Fields:
    """Qwen3-Next: three gated delta nets to each attention with a gate, and many experts."""
    size = sizes(config, kv_heads=2, head_dim=256)
    mlp = _qwen_mixture(config, size)
    step, only = config.whole("decoder_sparse_step", default=1), config.numbers("mlp_only_layers")
    if step != 1 or only:
        raise ValueError(f"{config.path}: layers of qwen3_next without experts are not modelled")
    return _delta_nets(config, size, mlp, config.whole("moe_intermediate_size"))


def qwen35(config: ConfigReader) -> Fields:
    """Qwen3.5, the model of texts: layers of Qwen3-Next with one MLP."""
    size = sizes(config, kv_heads=4, head_dim=256)
    width = config.whole("intermediate_size")
    return _delta_nets(config, size, size.mlp(width), width)


def qwen35_moe(config: ConfigReader) -> Fields:
    """Qwen3.5 with experts."""
    size = sizes(config, kv_heads=2, head_dim=256)
    mlp = _qwen_mixture(config, size)
    return _delta_nets(config, size, mlp, config.whole("moe_intermediate_size"))


def _qwen_mixture(config: ConfigReader, size: Sizes) -> Mlp:
    config.ignore("intermediate_size")
    width = config.whole("moe_intermediate_size")
    shared = config.whole("shared_expert_intermediate_size")
    return size.mixture(*routed_experts(config), width, shared=shared, other=size.hidden)


def _delta_nets(config: ConfigReader, size: Sizes, mlp: Mlp, width: int) -> Fields:
    """Gated delta nets and gated attention."""
    config.ignore("mtp_num_hidden_layers mtp_use_dedicated_embeddings attn_output_gate")
    bias = config.flag("attention_bias")
    attention = size.attention(bias=bias, other=2 * size.head_dim, gated=True)
    if bias:
        extra = attention.other_parameters + size.heads * size.head_dim
        attention = replace(attention, other_parameters=extra)
    every = config.whole("full_attention_interval", default=4)
    default = [LINEAR if (layer + 1) % every else FULL for layer in range(size.layers)]
    types = config.layer_types(size.layers, (LINEAR, FULL), default)
    mixers = {FULL: attention, LINEAR: _delta_net(config, size)}
    return size.model([mixers[each] for each in types], mlp, width)


def _delta_net(config: ConfigReader, size: Sizes) -> Mixer:
    """Projections of queries, keys, values, gates and decays; a convolution; a norm of heads."""
    key_heads = config.whole("linear_num_key_heads", default=16)
    heads = config.whole("linear_num_value_heads", default=32)
    key_dim = config.whole("linear_key_head_dim", default=128)
    head_dim = config.whole("linear_value_head_dim", default=128)
    kernel = config.whole("linear_conv_kernel_dim", default=4)
    number_bytes = NUMBER_BYTES[config.word("mamba_ssm_dtype", "auto", tuple(NUMBER_BYTES))]
    keys, values = key_heads * key_dim, heads * head_dim
    convolved = 2 * keys + values
    return Mixer(
        parameters=size.hidden * (2 * keys + 2 * values + 2 * heads) + values * size.hidden,
        other_parameters=convolved * kernel + 2 * heads + head_dim,
        state_bytes=number_bytes * heads * head_dim * key_dim + 2 * convolved * (kernel - 1),
    )


def minimax(config: ConfigReader) -> Fields:
    """MiniMax-Text-01 and M1: seven lightning attentions to each attention, experts."""
    config.ignore("block_size full_attn_alpha_factor full_attn_beta_factor mlp_alpha_factor")
    config.ignore("linear_attn_alpha_factor linear_attn_beta_factor mlp_beta_factor postnorm")
    config.ignore("layernorm_full_attention_alpha layernorm_full_attention_beta shared_moe_mode")
    config.ignore("layernorm_linear_attention_alpha layernorm_linear_attention_beta")
    config.ignore("layernorm_mlp_alpha layernorm_mlp_beta rotary_dim")
    config.require("shared_intermediate_size", 0)
    config.require("sliding_window", 0)
    size, width = sizes(config, kv_heads=8), config.whole("intermediate_size")
    wide = size.heads * size.head_dim
    lightning = Mixer(
        parameters=5 * size.hidden * wide,
        other_parameters=wide,
        state_bytes=2 * wide * size.head_dim,
    )
    mixers = {FULL: size.attention(), LINEAR: lightning}
    default = [LINEAR if layer % 2 else FULL for layer in range(size.layers)]
    kinds = config.numbers("attn_type_list")
    if kinds:
        if len(kinds) != size.layers or not set(kinds) <= {0, 1}:
            raise ValueError(f"{config.path}: attn_type_list must be {size.layers} of 0 and 1")
        default = [FULL if each else LINEAR for each in kinds]
    types = config.layer_types(size.layers, (LINEAR, FULL), default)
    mixture = size.mixture(*routed_experts(config, 8, 2), width)
    return size.model([mixers[each] for each in types], mixture, width)


def lfm2(config: ConfigReader) -> Fields:
    """LFM2: short convolutions with a few layers of attention."""
    size = sizes(config, kv_heads=8, vocab=65536, context=128000)
    config.ignore("block_dim block_mlp_init_scale block_out_init_scale block_use_swiglu")
    config.ignore("block_use_xavier_init block_norm_eps conv_dim conv_dim_out conv_use_xavier_init")
    config.ignore("num_heads use_pos_enc block_auto_adjust_ff_dim theta")
    width = config.whole("block_ff_dim", "intermediate_size", default=12288)
    if config.flag("block_auto_adjust_ff_dim", True):
        multiple = config.whole("block_multiple_of", default=256)
        scale = config.value("block_ffn_dim_multiplier", 1.0)
        width = int((1.0 if scale is None else float(scale)) * int(2 * width / 3))
        width = multiple * -(-width // multiple)
    config.ignore("block_multiple_of block_ffn_dim_multiplier intermediate_size")
    return size.model(_convolved(config, size), size.mlp(width), width, tied=True)


def lfm2_moe(config: ConfigReader) -> Fields:
    """LFM2 with experts behind the first layers."""
    size = sizes(config, heads=32, kv_heads=8, vocab=65536, context=128000)
    config.ignore("routed_scaling_factor theta")
    dense = size.mlp(config.whole("intermediate_size", default=7168))
    width = config.whole("moe_intermediate_size", default=1792)
    experts, per_token = routed_experts(config, 32, 4)
    biases = config.flag("use_expert_bias", True) * experts
    mixture = size.mixture(experts, per_token, width, other=biases)
    first = config.whole("num_dense_layers", default=2, least=0)
    mlps = [dense if layer < first else mixture for layer in range(size.layers)]
    return size.model(_convolved(config, size), mlps, width, tied=True)


def _convolved(config: ConfigReader, size: Sizes) -> list[Mixer]:
    """Short convolutions, whose state are the last inputs, and attention."""
    kernel, bias = config.whole("conv_L_cache", default=3), config.flag("conv_bias")
    mixers = {FULL: size.attention(other=2 * size.head_dim)}
    mixers[CONV] = Mixer(
        parameters=4 * size.hidden**2,
        other_parameters=size.hidden * (kernel + 5 * bias),
        state_bytes=2 * size.hidden * (kernel - 1),
    )
    attended = config.value("full_attn_idxs")
    config.ignore("full_attn_idxs")
    listed = range(size.layers) if attended is None else config.numbers("full_attn_idxs")
    default = [FULL if layer in listed else CONV for layer in range(size.layers)]
    return [mixers[each] for each in config.layer_types(size.layers, (CONV, FULL), default)]


FAMILIES: Mapping[str, Callable[[ConfigReader], Fields]] = {
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "granitemoehybrid": granite_hybrid,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "minimax": minimax,
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen35_moe,
    "qwen3_5_text": qwen35,
    "qwen3_next": qwen3_next,
}
"""By `model_type`."""
