"""What is stored of a calibration: the fitted profile, its errors, a plot of what is left over.

Seconds of measured iterations are fitted as sums of what they compute, by least squares.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import nnls

from harness.engines.vllm.processor import engine_name
from harness.fitting.stored import Json, rounded

if TYPE_CHECKING:
    from harness.calibrate.sweep import Sweep

Floats = NDArray[np.float64]

PARTS = ("forward", "prepare", "other")
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # requests
TOKEN_KNOTS = (0, 32, 128, 512, 1024, 2048)  # of prompts in a batch


@dataclass(frozen=True, slots=True)
class Sample:
    """One iteration: what it computed, and its seconds by part."""

    prompts: int
    prompt_tokens: int
    attended: float
    decodes: int
    context_tokens: int
    longest_tokens: int
    seconds: tuple[float, ...]


def profile(model: str, gpu: str, samples: list[Sample], seconds: Floats, engine: "Sweep") -> Json:
    """What is stored: coefficients, their errors, and what the machine added.

    `seconds` has the axes repetition, iteration and part.
    """
    least, knots = seconds.min(axis=0), knots_of(samples)
    slowdown = float(np.median(seconds.sum(axis=2) / least.sum(axis=1)))
    most = {
        "requests": max(s.decodes for s in samples),
        "prefill_tokens": max(s.prompt_tokens for s in samples),
        "context_tokens": max(s.context_tokens for s in samples),
        "longest": max(s.longest_tokens for s in samples),
    }
    content: Json = {
        "model": model,
        "gpu": gpu,
        "engine": engine_name(),
        "engine_kind": "vllm-sync",
        "kind": "measured",
        "source": "python -m harness.calibrate on this suite's own model",
        "block_tokens": engine.block_tokens,
        "knots_requests": list(knots),
        "tensor_parallel": {
            "1": {
                **_coefficients(samples, least, slowdown),
                "load_s": rounded(engine.load_s, digits=4),
                "load_source": "start of a process with the engine, compilation not included",
                "kv_blocks": engine.kv_blocks,
                "valid": {name: [1, value] for name, value in most.items()},
                "error": _errors(samples, least.sum(axis=1)),
            }
        },
        "measured": rounded(
            {"iterations": len(samples), "repetitions": len(seconds), "slowdown": slowdown},
            digits=4,
        ),
    }
    text = json.dumps(content, sort_keys=True)
    return content | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def _coefficients(samples: list[Sample], least: Floats, slowdown: float) -> Json:
    """Each part fitted to its least seconds, times what a typical repetition took longer."""
    knots = knots_of(samples)
    prefill: Json = {"sample": {}}
    decode: Json = {"sample": {}}
    step_s = np.zeros(len(TOKEN_KNOTS))
    for place, part in enumerate(PARTS):
        found = fit(samples, least[:, place], knots) * slowdown
        prefill[part], decode[part], more_s = phases(found, knots)
        step_s += more_s
    steps = {"step_knots_tokens": TOKEN_KNOTS, "step_s": step_s}
    return rounded(steps | {"prefill": prefill, "decode": decode})  # type: ignore[no-any-return]


def _errors(samples: list[Sample], least: Floats) -> dict[str, float]:
    """Relative errors of whole iterations: every other one by a fit of those between them."""
    knots = knots_of(samples)
    held_out = np.zeros(len(samples))
    for odd in (0, 1):
        found = fit(samples[1 - odd :: 2], least[1 - odd :: 2], knots)
        held_out[odd::2] = features(samples[odd::2], knots) @ found
    errors = np.abs(held_out / least - 1.0)
    decodes = np.array([s.prompts == 0 for s in samples])
    of_phases: Json = {}
    for phase, rows in (("decode", decodes), ("prefill", ~decodes)):
        median, p95 = np.quantile(errors[rows], (0.5, 0.95))
        of_phases |= {f"{phase}_median": median, f"{phase}_p95": p95}
    return rounded(of_phases, digits=4)  # type: ignore[no-any-return]


def residuals(samples: list[Sample], seconds: Floats, title: str) -> Figure:
    """Fitted over least measured seconds, against the measured ones."""
    least = seconds.min(axis=0).sum(axis=1)
    knots = knots_of(samples)
    fitted = features(samples, knots) @ fit(samples, least, knots)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    decodes = np.array([s.prompts == 0 for s in samples])
    for kind, name in ((decodes, "decodes only"), (~decodes, "with prompts")):
        axes.scatter(least[kind] * 1e3, fitted[kind] / least[kind], s=6, label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="measured ms", ylabel="fitted over measured", title=title)
    axes.legend(frameon=False)
    return figure


def knots_of(samples: Sequence[Sample]) -> tuple[int, ...]:
    """Those of `KNOTS` that were reached; beyond the last one its slope goes on."""
    most = max(sample.decodes for sample in samples)
    return tuple(knot for knot in KNOTS if knot <= most)


def features(samples: Sequence[Sample], knots: tuple[int, ...]) -> Floats:
    """Columns of the fit: one, any prompt, more prompts, tokens, attended, decodes, context.

    Tokens and decodes enter as ramps between knots. All batches share the first column, so that
    one of prompts and decodes pays it once.
    """
    rows = [(1.0, min(1, s.prompts), max(0, s.prompts - 1), s.attended) for s in samples]
    tokens = _ramps([s.prompt_tokens for s in samples], TOKEN_KNOTS)
    decodes = _ramps([s.decodes for s in samples], knots)
    context = np.array([[s.context_tokens] for s in samples], np.float64)
    return np.hstack([np.array(rows, np.float64), tokens, decodes, context])


def _ramps(values: Sequence[int], knots: tuple[int, ...]) -> Floats:
    """How far each value reaches into each stretch between two knots."""
    low, high = np.array(knots[:-1]), np.array(knots[1:])
    return np.asarray(np.clip(np.array(values, np.float64)[:, None] - low, 0, high - low))


def fit(samples: Sequence[Sample], seconds: Floats, knots: tuple[int, ...]) -> Floats:
    """Coefficients of `features`, none negative, relative errors weighing alike."""
    columns = features(samples, knots)
    weight = 1.0 / np.maximum(seconds, 1e-6)
    scale = np.maximum(np.abs(columns * weight[:, None]).max(axis=0), 1e-12)
    found, _ = nnls(columns * weight[:, None] / scale, np.ones(len(seconds)))
    return np.asarray(found / scale, np.float64)


def phases(
    coefficients: Floats, at: tuple[int, ...]
) -> tuple[dict[str, Floats], dict[str, Floats], Floats]:
    """Prefill and decode of one part along the knots, and seconds by prompt tokens beyond those.

    The slope between the last two of `TOKEN_KNOTS` goes on; the third result says, at each of them,
    how far from it the seconds are.
    """
    stretches = len(TOKEN_KNOTS) - 1
    one, any_prompt, prompt, attended = coefficients[:4]
    tokens, decodes = coefficients[4 : 4 + stretches], coefficients[4 + stretches : -1]
    knots, flat = np.array(at, np.float64), np.ones(len(at))
    at_tokens = np.array(TOKEN_KNOTS, np.float64)
    seconds = np.concatenate([[0.0], np.cumsum(tokens * np.diff(at_tokens))])
    steps = np.concatenate([[0.0], np.cumsum(decodes * np.diff(knots))])
    prefill = {
        "base_s": one + any_prompt + prompt * (knots - 1),
        "per_padded_token_s": tokens[-1] * flat,
        "per_attended_s": attended * flat,
    }
    decode = {"base_s": one + steps, "per_context_s": coefficients[-1] * flat}
    return prefill, decode, seconds - tokens[-1] * at_tokens
