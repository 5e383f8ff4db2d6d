"""Seconds of measured iterations as sums of what they compute, by least squares."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from harness.calibrate.checkpoint import Sample

Floats = NDArray[np.float64]

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # requests
TOKEN_KNOTS = (0, 32, 128, 512, 1024, 2048)  # of prompts in a batch


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
) -> tuple[dict[str, list[float]], dict[str, list[float]], Floats]:
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
    return _short(prefill), _short(decode), seconds - tokens[-1] * at_tokens


def _short(columns: dict[str, Floats]) -> dict[str, list[float]]:
    return {name: [float(f"{v:.6g}") for v in values] for name, values in columns.items()}
