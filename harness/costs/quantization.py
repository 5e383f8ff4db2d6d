"""Bytes of a weight by a config's `quantization_config` and `torch_dtype`.

Embeddings, routers, norms and biases stay in 16 bits, as vLLM has them.
"""

import re
from collections.abc import Mapping
from typing import Any

from harness.costs.config_reader import ConfigReader

SIXTEEN_BITS = ("float16", "bfloat16")
UNQUANTIZED = re.compile(
    r"lm_head|embed|norm|(^|[.])gate[$]?$|router|shared_expert_gate|vision|visual|projector"
)
"""Modules that are left out of quantization in any case."""
MXFP4_BYTES = 0.5 + 1 / 32  # a scale of a byte for 32 weights of 4 bits


def quantized(config: ConfigReader, dtype: object) -> tuple[dict[str, Any], list[str]]:
    """Fields of `ModelFacts` that are bytes, and what they assume."""
    if dtype not in (None, *SIXTEEN_BITS, "float32"):
        raise ValueError(
            f"{config.path}: torch_dtype is {dtype!r:.60}, it must be float16, bfloat16 or float32"
        )
    stated = ["float32 weights are served in 16 bits"] if dtype == "float32" else []
    if config.value("quantization_config") is None:
        return {}, stated
    part = config.part("quantization_config")
    method = part.word("quant_method", "", tuple(METHODS))
    if not method:
        raise ValueError(f"{config.path}: quantization_config has no quant_method")
    fields = METHODS[method](part)
    part.refuse_unknown(f"{method}, part quantization_config")
    weights = fields.get("expert_bytes", fields.get("linear_bytes"))
    stated.append(
        f"weights take {weights:.4g} bytes ({method}) and are multiplied at the rate of 16 bits"
    )
    return fields, stated


def _linear(weight_bytes: float) -> dict[str, Any]:
    return {"linear_bytes": weight_bytes, "expert_bytes": weight_bytes}


def _fp8(part: ConfigReader) -> dict[str, Any]:
    """A byte a weight; a scale of four for each block, if there are blocks."""
    part.ignore("activation_scheme fmt scale_fmt is_checkpoint_fp8_serialized")
    _require_unquantized(part, "modules_to_not_convert", "ignored_layers")
    block = part.numbers("weight_block_size")
    return _linear(1.0 + (4.0 / (block[0] * block[1]) if len(block) == 2 else 0.0))


def _grouped(part: ConfigReader, zero_bits: int) -> dict[str, Any]:
    """Few bits a weight; a scale of two bytes, and a zero point, for each group."""
    bits, group = part.whole("bits"), part.value("group_size", 128)
    if bits not in (2, 3, 4, 8) or not isinstance(group, int) or group == 0 or group < -1:
        raise ValueError(
            f"{part.path}: quantization_config has bits {bits} and group_size {group!r:.60}, "
            "it must be 2, 3, 4 or 8 bits and a group of so many weights, or -1 for a whole row"
        )
    beside = (16 + zero_bits * bits) / 8 / group if group > 0 else 0.0
    return _linear(bits / 8 + beside)


def _awq(part: ConfigReader) -> dict[str, Any]:
    part.ignore("version backend do_fuse exllama_config fuse_max_seq_len")
    _require_unquantized(part, "modules_to_not_convert")
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
    return {"expert_bytes": MXFP4_BYTES}


def _compressed_tensors(part: ConfigReader) -> dict[str, Any]:
    """One group of formats for all linear layers."""
    part.ignore("format quantization_status global_compression_ratio version")
    part.require("sparsity_config", {})
    part.require("transform_config", {})
    _require_unquantized(part, "ignore")
    groups = part.value("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise ValueError(f"{part.path}: quantization_config must have one group in config_groups")
    (group,) = groups.values()
    inner = ConfigReader(part.path, group if isinstance(group, Mapping) else {})
    inner.require("targets", ["Linear"])
    inner.ignore("input_activations output_activations format")
    weights = inner.part("weights")
    weights.ignore("actorder block_structure dynamic observer observer_kwargs type zp_dtype")
    weights.ignore("scale_dtype")
    inner.refuse_unknown("compressed-tensors, part config_groups")
    bits, group_size = weights.whole("num_bits"), weights.whole("group_size", default=0, null=0)
    zero_bits = 0 if weights.flag("symmetric", True) else bits
    scale_bits = 8 if weights.value("strategy") == "tensor_group" else 16
    weights.refuse_unknown("compressed-tensors, part weights")
    beside = (scale_bits + zero_bits) / 8 / group_size if group_size else 0.0
    return _linear(bits / 8 + beside) | _kv(part)


def _kv(part: ConfigReader) -> dict[str, Any]:
    """Numbers of the KV, where a scheme says how they are kept."""
    if part.value("kv_cache_scheme") is None:
        return {}
    bits = part.part("kv_cache_scheme").whole("num_bits")
    if bits != 8:
        raise ValueError(f"{part.path}: kv_cache_scheme has num_bits {bits}, it must be 8")
    return {"kv_number_bytes": 1}


def _require_unquantized(part: ConfigReader, *keys: str) -> None:
    """Refuse modules in 16 bits that are not so in any case."""
    for key in keys:
        for module in part.value(key) or []:
            if not isinstance(module, str) or not UNQUANTIZED.search(module):
                raise ValueError(
                    f"{part.path}: quantization_config.{key} holds {module!r:.60}; only "
                    "embeddings, lm_head, norms, routers and parts for images can be left out"
                )


METHODS = {
    "awq": _awq,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _gptq,
    "mxfp4": _mxfp4,
}
