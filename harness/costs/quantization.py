"""Number formats and bytes of weights, by a config's `quantization_config` and `torch_dtype`.

Embeddings, routers, norms and biases stay in 16 bits, as vLLM has them.
"""

import re
from collections.abc import Mapping
from typing import Any

from harness.costs.config_reader import ConfigReader

SIXTEEN_BITS = ("float16", "bfloat16")
UNQUANTIZED = re.compile(
    r"lm_head|embed|norm|(^|[.])gate[$]?$|router|shared_expert_gate|vision|visual|projector"
    r"|e_score_correction_bias|conv1d|in_proj_(ba|a|b)$|indexer|A_log|dt_bias"
)
"""Modules that are left out of quantization in any case."""
LEFT_OUT = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
"""Keys of lists of modules that are left out of quantization."""
DENSE_MLP = re.compile(r"shared_expert|mlp(?!.*experts)")
PROJECTIONS = frozenset(("q_proj", "k_proj", "v_proj", "o_proj"))
MXFP4_BYTES = 0.5 + 1 / 32  # a scale of a byte for 32 weights of 4 bits
NVFP4_BYTES = 0.5 + 1 / 16  # a scale of a byte for 16 weights of 4 bits


def quantized(
    config: ConfigReader, dtype: object, layers: int, experts: int
) -> tuple[dict[str, Any], list[str]]:
    """Fields of `ModelFacts` that are bytes and formats, and what they assume.

    `layers` and `experts` are those of the model; 1 expert is a dense model.
    """
    if dtype not in (None, *SIXTEEN_BITS, "float32"):
        raise ValueError(
            f"{config.path}: torch_dtype is {dtype!r:.60}, it must be float16, bfloat16 or float32"
        )
    stated = ["float32 weights are served in 16 bits"] if dtype == "float32" else []
    if config.value("quantization_config") is None:
        return {}, stated
    part = config.part("quantization_config")
    producer = part.value("producer")
    is_modelopt = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    method = part.word("quant_method", "modelopt" if is_modelopt else "", tuple(METHODS))
    if not method:
        raise ValueError(f"{config.path}: quantization_config has no quant_method")
    fields = METHODS[method](part)
    if "linear_format" in fields and _attention_is_left_out(part, layers, experts):
        fields |= {"linear_bytes": 2.0, "linear_format": "bf16"}
        stated.append("all linear layers outside routed experts are counted in 16 bits")
    part.refuse_unknown(f"{method}, part quantization_config")
    of = "weights" if fields.get("linear_format", "bf16") != "bf16" else "weights of routed experts"
    weights, kind = fields["expert_bytes"], fields["expert_format"]
    stated.append(f"{of} take {weights:.4g} bytes ({method}, {kind})")
    return fields, stated


def _attention_is_left_out(part: ConfigReader, layers: int, experts: int) -> bool:
    """Whether the attention of all layers of a mixture stays in 16 bits.

    Raises ValueError where only a part of the linear layers outside routed experts does.
    """
    modules = [
        (key, module)
        for key in LEFT_OUT
        for module in part.value(key) or []
        if not (isinstance(module, str) and UNQUANTIZED.search(module))
    ]
    found: dict[int, set[str]] = {layer: set() for layer in range(layers)}
    for _, module in modules:
        number = re.search(r"layers\.(\d+)\.self_attn", str(module))
        named = re.search(r"self_attn[.*\\]*(\w*)[.*$]*$", str(module))
        if named:
            for layer in [int(number[1])] if number else found:
                found.setdefault(layer, set()).update([named[1]] if named[1] else PROJECTIONS)
    is_left_out = experts > 1 and all(each >= PROJECTIONS for each in found.values())
    for key, module in modules:
        if not (is_left_out and re.search(rf"self_attn|{DENSE_MLP.pattern}", str(module))):
            raise ValueError(
                f"{part.path}: quantization_config.{key} holds {module!r:.60}; only embeddings, "
                "lm_head, norms, routers and parts for images can be left out, or in a mixture "
                "the attention of all layers"
            )
    return is_left_out


def _linear(weight_bytes: float, number_format: str, group: int = 0) -> dict[str, Any]:
    return {
        "weight_group": group,
        "linear_bytes": weight_bytes,
        "expert_bytes": weight_bytes,
        "linear_format": number_format,
        "expert_format": number_format,
    }


def _fp8(part: ConfigReader) -> dict[str, Any]:
    """A byte a weight; a scale of four for each block, if there are blocks."""
    part.ignore("activation_scheme fmt scale_fmt is_checkpoint_fp8_serialized")
    block = part.numbers("weight_block_size")
    if len(block) == 2:
        return _linear(1.0 + 4.0 / (block[0] * block[1]), "fp8_block", max(block))
    return _linear(1.0, "fp8")


def _grouped(part: ConfigReader, zero_bits: int) -> dict[str, Any]:
    """Few bits a weight; a scale of two bytes, and a zero point, for each group."""
    bits, group = part.whole("bits"), part.value("group_size", 128)
    if bits not in (2, 3, 4, 8) or not isinstance(group, int) or group == 0 or group < -1:
        raise ValueError(
            f"{part.path}: quantization_config has bits {bits} and group_size {group!r:.60}, "
            "it must be 2, 3, 4 or 8 bits and a group of so many weights, or -1 for a whole row"
        )
    beside = (16 + zero_bits * bits) / 8 / group if group > 0 else 0.0
    return _linear(bits / 8 + beside, "int8" if bits == 8 else "int4", max(0, group))


def _awq(part: ConfigReader) -> dict[str, Any]:
    part.ignore("version backend do_fuse exllama_config fuse_max_seq_len")
    return _grouped(part, zero_bits=int(part.flag("zero_point", True)))


def _gptq(part: ConfigReader) -> dict[str, Any]:
    for key in ("dynamic", "modules_in_block_to_quantize"):
        part.require(key, {}, [])
    part.require("lm_head", False)
    part.ignore("desc_act damp_percent damp_auto_increment static_groups sym dataset")
    part.ignore("true_sequential model_name_or_path model_file_base_name tokenizer meta quantizer")
    part.ignore("checkpoint_format version use_exllama exllama_config use_cuda_fp16 batch_size")
    part.ignore("block_name_to_quantize model_seqlen pack_dtype module_name_preceding_first_block")
    part.ignore("pad_token_id disable_exllama max_input_length cache_block_outputs backend")
    return _grouped(part, zero_bits=1)


def _mxfp4(part: ConfigReader) -> dict[str, Any]:
    """Routed experts only."""
    part.ignore("modules_to_not_convert")
    return {"expert_bytes": MXFP4_BYTES, "expert_format": "mxfp4"}


def _modelopt(part: ConfigReader) -> dict[str, Any]:
    """NVIDIA Model Optimizer, as its config.json or its hf_quant_config.json has it."""
    part.ignore("config_groups")
    algorithm = part.word("quant_algo", "", ("FP8", "NVFP4"))
    if not algorithm:
        raise ValueError(f"{part.path}: quantization_config has no quant_algo")
    part.require("group_size", 16)
    fields = _linear(1.0, "fp8") if algorithm == "FP8" else _linear(NVFP4_BYTES, "nvfp4", 16)
    return fields | _kv(part)


def _compressed_tensors(part: ConfigReader) -> dict[str, Any]:
    """One group of formats for all linear layers."""
    part.ignore("format quantization_status global_compression_ratio version")
    part.require("sparsity_config", {})
    part.require("transform_config", {})
    groups = part.value("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise ValueError(f"{part.path}: quantization_config must have one group in config_groups")
    (group,) = groups.values()
    inner = ConfigReader(part.path, group if isinstance(group, Mapping) else {})
    inner.require("targets", ["Linear"])
    inner.ignore("input_activations output_activations format")
    weights = inner.part("weights")
    weights.ignore("actorder block_structure dynamic observer observer_kwargs zp_dtype")
    weights.ignore("scale_dtype")
    inner.refuse_unknown("compressed-tensors, part config_groups")
    bits, group_size = weights.whole("num_bits"), weights.whole("group_size", default=0, null=0)
    zero_bits = 0 if weights.flag("symmetric", True) else bits
    strategy, is_float = weights.value("strategy"), weights.value("type", "int") == "float"
    scale_bits = 8 if strategy == "tensor_group" or (is_float and bits == 4) else 16
    weights.refuse_unknown("compressed-tensors, part weights")
    beside = (scale_bits + zero_bits) / 8 / group_size if group_size else 0.0
    if not is_float:
        kind = "int8" if bits == 8 else "int4"
    elif bits == 8:
        kind = "fp8_block" if strategy == "block" else "fp8"
    else:
        kind = "mxfp4" if group_size == 32 else "nvfp4"
    group = 128 if kind == "fp8_block" else group_size
    return _linear(bits / 8 + beside, kind, group) | _kv(part)


def _kv(part: ConfigReader) -> dict[str, Any]:
    """Numbers of the KV, where a scheme says how they are kept."""
    if part.word("kv_cache_quant_algo", "", ("FP8",)) or part.value("kv_cache_scheme") == "FP8":
        return {"kv_number_bytes": 1}
    if part.value("kv_cache_scheme") is None:
        return {}
    bits = part.part("kv_cache_scheme").whole("num_bits")
    if bits != 8:
        raise ValueError(f"{part.path}: kv_cache_scheme has num_bits {bits}, it must be 8")
    return {"kv_number_bytes": 1}


METHODS = {
    "awq": _awq,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
