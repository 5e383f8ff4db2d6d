"""What is stored of a calibration: the fitted profile, its errors, a plot of what is left over."""

import hashlib
import json
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness.calibrate.checkpoint import Sample
from harness.calibrate.fit import TOKEN_KNOTS, features, fit, knots_of, phases
from harness.engines.vllm.processor import engine_name

Floats = NDArray[np.float64]
Json = dict[str, Any]

PARTS = ("forward", "prepare", "other")


class Engine(Protocol):
    """What is stored of the engine that was measured."""

    load_s: float
    kv_blocks: int
    block_tokens: int


def profile(model: str, gpu: str, samples: list[Sample], seconds: Floats, engine: Engine) -> Json:
    """What is stored: coefficients, their errors, and what the machine added.

    `seconds` has the axes repetition, iteration and part.
    """
    least, knots = seconds.min(axis=0), knots_of(samples)
    slowdown = float(np.median(seconds.sum(axis=2) / least.sum(axis=1)))
    content: Json = {
        "model": model,
        "gpu": gpu,
        "engine": engine_name(),
        "kind": "measured",
        "source": "python -m harness.calibrate on this suite's own model",
        "block_tokens": engine.block_tokens,
        "knots_requests": list(knots),
        "tensor_parallel": {
            "1": {
                **_coefficients(samples, least, slowdown),
                "load_s": float(f"{engine.load_s:.4g}"),
                "load_source": "start of a process with the engine, compilation not included",
                "kv_blocks": engine.kv_blocks,
                "valid": _valid(samples),
                "error": _errors(samples, least.sum(axis=1)),
            }
        },
        "measured": {
            "iterations": len(samples),
            "repetitions": len(seconds),
            "slowdown": float(f"{slowdown:.4g}"),
        },
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
    return {
        "prefill": prefill,
        "step_knots_tokens": list(TOKEN_KNOTS),
        "step_s": [float(f"{v:.6g}") for v in step_s],
        "decode": decode,
    }


def _errors(samples: list[Sample], least: Floats) -> dict[str, float]:
    """Relative errors of whole iterations: every other one by a fit of those between them."""
    knots, every = knots_of(samples), np.arange(len(samples))
    held_out = np.zeros(len(samples))
    for odd in (0, 1):
        taken = [samples[i] for i in every if i % 2 != odd]
        found = fit(taken, least[every % 2 != odd], knots)
        left = [samples[i] for i in every if i % 2 == odd]
        held_out[every % 2 == odd] = features(left, knots) @ found
    errors = np.abs(held_out / least - 1.0)
    decodes = np.array([s.prompts == 0 for s in samples])
    return {
        "decode_median": float(f"{np.median(errors[decodes]):.4g}"),
        "decode_p95": float(f"{np.quantile(errors[decodes], 0.95):.4g}"),
        "prefill_median": float(f"{np.median(errors[~decodes]):.4g}"),
        "prefill_p95": float(f"{np.quantile(errors[~decodes], 0.95):.4g}"),
    }


def _valid(samples: list[Sample]) -> dict[str, list[int]]:
    """What was measured, from least to most."""
    return {
        "requests": [1, max(s.decodes for s in samples)],
        "prefill_tokens": [1, max(s.prompt_tokens for s in samples)],
        "context_tokens": [1, max(s.context_tokens for s in samples)],
        "longest": [1, max(s.longest_tokens for s in samples)],
    }


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
