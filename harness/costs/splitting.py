"""Whether a model can be split over the GPUs of a group, by the rules of vLLM.

Heads are divided, and KV heads are divided or repeated in whole numbers. Widths of MLPs are
divided, and with quantized weights a part holds whole blocks of weights that share a scale.
"""

from collections.abc import Iterator

from harness.costs.model_facts import ModelFacts

BLOCKED = ("fp8_block", "int4", "int8", "nvfp4")
"""Formats whose parts must be whole blocks; those of mxfp4 are padded."""
REFINED = ("fp8_block",)
"""Formats of which vLLM makes the blocks of experts smaller where that is needed."""
DEGREES = (1, 2, 4, 8)
"""Degrees that a refusal tries, beside those of the hardware."""
MOST_DEGREE = 16


def unsplit_because(
    model: ModelFacts, tensor_parallel: int, *, expert_parallel: bool = False
) -> str:
    """Why a model cannot be split over so many GPUs, with the degrees that can be; "" if it can."""
    found = next(_obstacles(model, tensor_parallel, expert_parallel), "")
    if not found:
        return ""
    degrees = [
        str(degree)
        for degree in range(1, MOST_DEGREE + 1)
        if not any(_obstacles(model, degree, expert_parallel))
    ]
    return f"{found} cannot be split over {tensor_parallel} GPUs ({', '.join(degrees)} can be)"


def _obstacles(model: ModelFacts, degree: int, expert_parallel: bool) -> Iterator[str]:
    """What cannot be split."""
    if model.attention_heads % degree:
        yield f"its {model.attention_heads} attention heads"
    for kind in model.layer_kinds:
        mixer, mlp = kind.mixer, kind.mlp
        if mixer.kv_heads and mixer.kv_heads % degree and degree % mixer.kv_heads:
            yield f"its {mixer.kv_heads} KV heads"
        matrices = (3 if model.gated_mlp else 2) * model.hidden_size
        for parameters, what, number_format in (
            (mlp.dense_parameters, "MLP", model.linear_format),
            (mlp.shared_parameters, "shared experts", model.linear_format),
            (0 if expert_parallel else mlp.expert_parameters, "experts", model.expert_format),
        ):
            width, rest = divmod(parameters, matrices)
            is_blocked = number_format in BLOCKED
            is_blocked &= what != "experts" or number_format not in REFINED
            group = model.weight_group if is_blocked else 0
            if not width or rest:
                continue
            if width % degree:
                yield f"its {what} of {width:,} units"
            elif group and degree > 1 and width // degree % group:
                yield f"its {what} of {width:,} units, in blocks of {group} weights a scale,"


def unfit_because(
    weight_bytes: float,
    *,
    memory_bytes: int,
    memory_share: float,
    given_kv_bytes: int | None,
    remedy: str,
) -> str:
    """The sentence on `weight_bytes` of each GPU that leave no KV."""
    share = memory_share if given_kv_bytes is None else 1.0
    kv = "KV"
    if given_kv_bytes is not None:
        kv = f"{given_kv_bytes / 1e9:,.1f} GB of KV (hardware.kv_bytes)"
    return (
        f"weights of {weight_bytes / 1e9:,.1f} GB a GPU leave no room for activations and {kv} in "
        f"{share * memory_bytes / 1e9:,.1f} GB (hardware.memory_share={memory_share:g}){remedy}"
    )


def remedy(degree: int, tokens: int) -> str:
    """On how many GPUs there is KV of so many tokens, and the words for that; "" for degree 0."""
    if not degree:
        return ""
    return (
        f"; {degree} GPUs leave KV of {tokens:,} tokens: system.placement.tensor_parallel={degree} "
        f"hardware.gpu_count={degree} (compare: --tensor-parallel {degree})"
    )
