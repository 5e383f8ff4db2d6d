"""How far seconds of kernels and engine terms are from measured servers, for a model and a GPU.

`harness.fidelity.served --fit` writes profiles/served_errors.json: errors on settings that the fit
of the terms had not seen, by model and GPU; where a family of models or a GPU was left out whole;
and of formulas in the place of all tables.
"""

from collections.abc import Mapping
from functools import cache

from harness.config.paths import PROFILES
from harness.config.schema import Count, NotNegative, Schema, read_json
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
    model: ModelFacts, gpu: str, *, is_roofline: bool
) -> tuple[str, Mapping[str, float]]:
    """A sentence on the error of a model's seconds on a GPU, and the errors by phase."""
    stored = _stored()
    if is_roofline:
        where = f"as formulas in the place of the tables of {_gpus(stored)}, not checked on {gpu}"
        return _sentence(stored.formulas, where), stored.formulas.by_phase
    shape = kernel_shape(model)
    here = [it for it in stored.measured if it.gpu == gpu]
    same = next((it for it in here if it.shape == shape), None)
    if same is not None:
        where = f"median of {same.settings} measured settings of {same.model} on {gpu}"
        return _sentence(same, where), same.by_phase
    if here:
        where = f"as measured families of models are that a fit leaves out, not checked on {gpu}"
        return _sentence(stored.family_left_out, where), stored.family_left_out.by_phase
    where = f"as measured GPUs are that a fit leaves out, not checked on {gpu}"
    return _sentence(stored.gpu_left_out, where), stored.gpu_left_out.by_phase


def _sentence(errors: Errors, where: str) -> str:
    return f"TPOT within {errors.tpot:.0%} ({where}), TTFT within {errors.ttft:.0%}"


def _gpus(stored: _Stored) -> str:
    return ", ".join(sorted({it.gpu for it in stored.measured}))
