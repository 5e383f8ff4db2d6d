"""How far seconds of kernels and engine terms are from measured servers, for a model and a GPU.

`harness.tools.fidelity.served --fit` writes profiles/served_errors.json: errors on settings that
the fit of the terms had not seen, by model and GPU; where a family of models or a GPU was left out
whole; and of formulas in the place of all tables.
"""

from collections.abc import Mapping
from functools import cache

from harness.config.paths import PROFILES
from harness.config.schema import Count, NotNegative, Schema, read_json
from harness.costs.kernels import read_formulas
from harness.costs.model_facts import ModelFacts

SERVED_ERRORS = PROFILES / "served_errors.json"


class Errors(Schema):
    """Median relative errors without sign of mean TPOT and mean TTFT over so many settings."""

    settings: Count
    tpot: NotNegative
    ttft: NotNegative

    @property
    def by_phase(self) -> dict[str, float]:
        """As a profile states its errors: an iteration's, of decodes and of prompts."""
        return {"decode_median": self.tpot, "prefill_median": self.ttft}


class _Measured(Errors):
    """Of one model on one GPU, fitted on other settings."""

    model: str
    shape: str
    gpu: str
    tensor_parallel: tuple[Count, ...]


class _Stored(Schema):
    source: str
    measured: tuple[_Measured, ...]
    family_left_out: Errors
    gpu_left_out: Errors
    formulas: Errors


@cache
def _stored() -> _Stored:
    return read_json(SERVED_ERRORS, _Stored)


def kernel_shape(model: ModelFacts) -> str:
    """What decides the kernels of a model, in a line."""
    heads = f"{model.attention_heads}/{model.kv_heads}/{model.head_dim}"
    experts = f"{model.experts}/{model.experts_per_token}"
    kinds = "+".join(f"{kind.layers}:{kind.mixer.window_tokens}" for kind in model.layer_kinds)
    return (
        f"{kinds} x {model.hidden_size}, heads {heads}, MLP {model.intermediate_size}, experts "
        f"{experts}, {model.linear_format}/{model.expert_format}"
    )


def served_error(
    model: ModelFacts, gpu: str, tensor_parallel: int, *, expert_parallel: bool, is_roofline: bool
) -> tuple[str, Mapping[str, float]]:
    """A sentence on the error of a model's seconds on a group, and the errors by phase."""
    stored = _stored()
    here = [it for it in stored.measured if it.gpu == gpu]
    gpus = ", ".join(sorted({it.gpu for it in stored.measured}))
    if is_roofline:
        kernels = read_formulas().gemm.error or 0.0
        found = stored.formulas
        return (
            f"roofline, not checked; {_errors(found)} on {gpus} by the same formulas, which were "
            f"fitted to their kernels, and matrix products by {kernels:.0%} on a GPU left out"
        ), {name: max(value, kernels) for name, value in found.by_phase.items()}
    shape = kernel_shape(model)
    same = [it for it in here if it.shape == shape and tensor_parallel in it.tensor_parallel]
    if same and not expert_parallel:
        found = same[0]
        said = f"{found.settings} measured settings of {found.model} on {gpu}"
        return f"{_errors(found)} on {said}, as a fit to other settings has it", found.by_phase
    if here:
        found = stored.family_left_out
        said = f"no measured server of this model and split on {gpu}"
        return f"{said}; {_errors(found)} on families of models left out of the fit", found.by_phase
    found = stored.gpu_left_out
    said = f"no measured server on {gpu}"
    return f"{said}; {_errors(found)} on {gpus}, each left out of the fit", found.by_phase


def _errors(errors: Errors) -> str:
    return f"median error TPOT {errors.tpot:.0%}, TTFT {errors.ttft:.0%}"
