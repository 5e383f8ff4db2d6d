"""What is stored of a calibration: the fitted profile, its errors, a plot of what is left over.

Mean seconds of measured iterations over their repetitions are fitted as sums of what they compute.
Errors count relative to what is fitted, since those relative to what was measured would come out
short of the mean where it is noisy. The fit is then multiplied by one factor for iterations with
prompts and one for those without, that give the measured totals. A pause of the machine, one
repetition of an iteration that takes `PAUSE` times the median of all, is left out and counted.

Designed answers are short, so that in most decodes a request leaves, or has just left: these take
2 to 10% longer, since the policy is asked again. In a load they are few. Fitted are the others.
"""

import hashlib
import json
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import nnls

from harness.tools.fitting.stored import Json, rounded

Floats = NDArray[np.float64]

PARTS = ("forward", "prepare", "other")
SECONDS = [f"{part}_s" for part in PARTS]
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # requests
TOKEN_KNOTS = (0, 32, 128, 512, 1024, 2048)  # of prompts in a batch
PAUSE = 5.0
ROUNDS = 8
"""Of a fit, each weighted by the one before."""


class Knots(NamedTuple):
    """Where the lines of a fit may bend: numbers of decodes, and prompt tokens of a batch."""

    requests: tuple[int, ...]
    tokens: tuple[int, ...]


class Factors(NamedTuple):
    """Measured over fitted totals: of iterations without prompts, and of prompts in the others."""

    decode: float
    prefill: float


def profile(rows: pd.DataFrame, facts: Json) -> Json:
    """What is stored: coefficients, their errors, and how the repetitions differed.

    `rows` are those of `raw.read`; `facts` say the `model`, `gpu`, `engine`, `block_tokens`,
    `kv_blocks`, `largest_graph_tokens` (0 without graphs) and `load_s` (None: not measured).
    Raises ValueError where repetitions have other batches than the first.
    """
    means = mean_iterations(rows)
    knots = knots_of(means, int(facts["largest_graph_tokens"]))
    received = received_s(means)
    settled = means[are_settled(means)]
    fitted, factors = _coefficients(settled, knots)
    entry: Json = {
        **fitted,
        "received_s": rounded(received),
        "kv_blocks": facts["kv_blocks"],
        "valid": _valid(means),
        "error": _errors(settled, knots),
    }
    if facts["load_s"] is not None:
        entry["load_s"] = rounded(facts["load_s"], digits=4)
        entry["load_source"] = "start of a process with the engine, compilation not included"
    content: Json = {
        **{name: facts[name] for name in ("model", "gpu", "engine", "block_tokens")},
        "engine_kind": "vllm-sync",
        "kind": "measured",
        "source": "python -m harness.tools.calibrate on this suite's own model",
        "knots_requests": list(knots.requests),
        "tensor_parallel": {"1": entry},
        "measured": rounded(_measured(rows, factors), digits=4),
    }
    return content | {"sha256": digest(content)}


def digest(content: Json) -> str:
    """The sha256 that is stored beside a content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def mean_iterations(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per iteration: what it computed, and the means of its seconds over repetitions.

    Raises ValueError where repetitions have other batches than the first.
    """
    place = rows.groupby("repetition").cumcount()
    computed = [it for it in map(str, rows) if not it.endswith("_s") and it != "repetition"]
    grouped = rows.groupby(place)
    if (grouped[computed].nunique() > 1).to_numpy().any() or grouped.size().nunique() > 1:
        raise ValueError("repetitions of a calibration have other batches than the first")
    # What the loop took without taking anything in is of the iteration that follows.
    rest_s = rows["received_s"].where(rows["received"] == 0, 0.0)
    kept = rows.assign(prepare_s=rows["prepare_s"] + rest_s)[~pauses_of(rows)]
    return kept.groupby(place[kept.index]).mean().drop(columns="repetition")


def are_settled(means: pd.DataFrame) -> "pd.Series[bool]":
    """Iterations with prompts, and decodes of the same requests as before that all stay.

    Every iteration where there are no such decodes.
    """
    with_prompts, decodes = means["prompts"] > 0, means["decodes"]
    follows = (decodes.shift(1) == decodes) & ~with_prompts.shift(1, fill_value=True)
    leaves = (decodes.shift(-1) < decodes) & ~with_prompts.shift(-1, fill_value=True)
    settled = ~with_prompts & follows & ~leaves
    return with_prompts | settled if settled.any() else with_prompts | True


def pauses_of(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Which iterations of a repetition the machine has paused in."""
    place, seconds = rows.groupby("repetition").cumcount(), rows[SECONDS].sum(axis=1)
    return seconds > PAUSE * seconds.groupby(place).transform("median")


def received_s(means: pd.DataFrame) -> tuple[float, float]:
    """Seconds to take in the first request between two iterations, and each further one."""
    counts, seconds = means["received"], means["received_s"]
    first_s = float(seconds[counts == 1].mean())
    more = counts > 1
    if not more.any():
        return first_s, first_s
    left_s = float(seconds[more].sum() - first_s * more.sum())
    return first_s, max(0.0, left_s / float((counts[more] - 1).sum()))


def _valid(means: pd.DataFrame) -> Json:
    most = {
        "requests": means["decodes"].max(),
        "prefill_tokens": means["prompt_tokens"].max(),
        "context_tokens": means["context_tokens"].max(),
        "longest": means["longest_tokens"].max(),
    }
    return {name: [1, int(value)] for name, value in most.items()}


def _measured(rows: pd.DataFrame, factors: Factors) -> Json:
    """How many iterations, how often, how far totals were apart, and pauses of the machine."""
    paused = pauses_of(rows)
    totals = rows[~paused].groupby("repetition")[["received_s", *SECONDS]].sum().sum(axis=1)
    return {
        "pauses": int(paused.sum()),
        "pauses_s": float(rows.loc[paused, SECONDS].to_numpy().sum()),
        "iterations": int((rows["repetition"] == 0).sum()),
        "repetitions": len(totals),
        "repetition_s": totals.tolist(),
        "factors": factors._asdict(),
    }


def _coefficients(means: pd.DataFrame, knots: Knots) -> tuple[Json, Factors]:
    """Each part fitted to its seconds, times the factors."""
    found = {
        part: fit(means, means[name].to_numpy(), knots)
        for part, name in zip(PARTS, SECONDS, strict=True)
    }
    factors = factors_of(means, np.sum([*found.values()], axis=0), knots)
    prefill: Json = {"sample": {}}
    decode: Json = {"sample": {}}
    step_s = np.zeros(len(knots.tokens))
    for part, coefficients in found.items():
        prefill[part], decode[part], more_s = phases(coefficients, knots)
        _multiply(prefill[part], factors.prefill)
        _multiply(decode[part], factors.decode)
        step_s += more_s * factors.prefill
    steps = {"step_knots_tokens": knots.tokens, "step_s": step_s}
    return rounded(steps | {"prefill": prefill, "decode": decode}), factors


def _multiply(phase: dict[str, Floats], factor: float) -> None:
    for name in phase:
        phase[name] = phase[name] * factor


def factors_of(means: pd.DataFrame, coefficients: Floats, knots: Knots) -> Factors:
    """What fitted totals are multiplied by, so that they are the measured ones.

    Of a batch with prompts and decodes the smaller of both fixed costs is counted once, as in
    `costs.iteration.expand`: that of decodes, unless its factor makes it the larger one.
    """
    columns, seconds = features(means, knots), means[SECONDS].sum(axis=1).to_numpy()
    with_prompts = means["prompts"].to_numpy() > 0
    mixed = with_prompts & (means["decodes"].to_numpy() > 0)
    decodes = slice(4 + len(knots.tokens) - 1, None)
    decode = float(seconds[~with_prompts].sum())
    decode /= float((columns[~with_prompts] @ coefficients).sum())
    beside_s = float((columns[with_prompts][:, decodes] @ coefficients[decodes]).sum())
    own_s = float((columns[with_prompts] @ coefficients).sum()) - beside_s
    measured_s = float(seconds[with_prompts].sum())
    prefill = (measured_s - decode * beside_s) / own_s
    one_s, prompt_s = float(coefficients[0]), float(coefficients[:2].sum())
    if decode * one_s > prefill * prompt_s:
        count = int(mixed.sum())
        prefill = measured_s - decode * (beside_s + count * one_s)
        prefill /= own_s - count * prompt_s
    return Factors(decode, prefill)


def _errors(means: pd.DataFrame, knots: Knots) -> dict[str, float]:
    """Relative errors of whole iterations: every other one by a fit of those between them."""
    seconds, held_out = means[SECONDS].sum(axis=1).to_numpy(), np.zeros(len(means))
    for odd in (0, 1):
        kept, left = means[1 - odd :: 2], means[odd::2]
        found = fit(kept, seconds[1 - odd :: 2], knots)
        held_out[odd::2] = features(left, knots) @ found
    errors = np.abs(held_out / seconds - 1.0)
    decodes = means["prompts"].to_numpy() == 0
    of_phases: Json = {}
    for phase, rows in (("decode", decodes), ("prefill", ~decodes)):
        median, p95 = np.quantile(errors[rows], (0.5, 0.95))
        of_phases |= {f"{phase}_median": median, f"{phase}_p95": p95}
    return rounded(of_phases, digits=4)  # type: ignore[no-any-return]


def residuals(rows: pd.DataFrame, facts: Json, title: str) -> Figure:
    """Fitted over mean measured seconds, against the measured ones."""
    means = mean_iterations(rows)
    means = means[are_settled(means)]
    knots = knots_of(means, int(facts["largest_graph_tokens"]))
    seconds = means[SECONDS].sum(axis=1).to_numpy()
    fitted = features(means, knots) @ fit(means, seconds, knots)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    decodes = means["prompts"].to_numpy() == 0
    for kind, name in ((decodes, "decodes only"), (~decodes, "with prompts")):
        axes.scatter(seconds[kind] * 1e3, fitted[kind] / seconds[kind], s=6, label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="measured ms", ylabel="fitted over measured", title=title)
    axes.legend(frameon=False)
    return figure


def knots_of(means: pd.DataFrame, largest_graph_tokens: int) -> Knots:
    """Those of `KNOTS` that were reached; beyond the last one its slope goes on.

    Batches of more tokens than the largest captured graph run without one: seconds step there. The
    step is by prompt tokens; decodes beside them, which count as well, are few against it.
    """
    most = int(means["decodes"].max())
    tokens = set(TOKEN_KNOTS)
    if 0 < largest_graph_tokens < TOKEN_KNOTS[-1]:
        tokens |= {largest_graph_tokens, largest_graph_tokens + 1}
    return Knots(tuple(knot for knot in KNOTS if knot <= most), tuple(sorted(tokens)))


def features(means: pd.DataFrame, knots: Knots) -> Floats:
    """Columns of the fit: one, any prompt, more prompts, attended, tokens, decodes, context.

    Tokens and decodes enter as ramps between knots. All batches share the first column, so that
    one of prompts and decodes pays it once.
    """
    prompts = means["prompts"].to_numpy(np.float64)
    one, attended = np.ones(len(means)), means["attended"].to_numpy()
    first = np.stack([one, np.minimum(1, prompts), np.maximum(0, prompts - 1), attended], axis=1)
    tokens = _ramps(means["prompt_tokens"], knots.tokens)
    decodes = _ramps(means["decodes"], knots.requests)
    context = means[["context_tokens"]].to_numpy(np.float64)
    return np.hstack([first, tokens, decodes, context])


def _ramps(values: "pd.Series[int]", knots: tuple[int, ...]) -> Floats:
    """How far each value reaches into each stretch between two knots."""
    low, high = np.array(knots[:-1]), np.array(knots[1:])
    reached = values.to_numpy(np.float64)[:, None] - low
    return np.asarray(np.clip(reached, 0, high - low))


def fit(means: pd.DataFrame, seconds: Floats, knots: Knots) -> Floats:
    """Coefficients of `features`, none negative; errors count relative to what is fitted."""
    columns, fitted = features(means, knots), seconds
    for _ in range(ROUNDS):
        weight = 1.0 / np.maximum(fitted, 1e-6)
        weighted = columns * weight[:, None]
        scale = np.maximum(np.abs(weighted).max(axis=0), 1e-12)
        found = nnls(weighted / scale, seconds * weight)[0] / scale
        fitted = columns @ found
    return np.asarray(found, np.float64)


def phases(coefficients: Floats, at: Knots) -> tuple[dict[str, Floats], dict[str, Floats], Floats]:
    """Prefill and decode of one part along the knots, and seconds by prompt tokens beyond those.

    The slope between the last two knots of tokens goes on; the third result says, at each of them,
    how far from it the seconds are.
    """
    stretches = len(at.tokens) - 1
    one, any_prompt, prompt, attended = coefficients[:4]
    tokens, decodes = coefficients[4 : 4 + stretches], coefficients[4 + stretches : -1]
    knots, flat = np.array(at.requests, np.float64), np.ones(len(at.requests))
    at_tokens = np.array(at.tokens, np.float64)
    seconds = np.concatenate([[0.0], np.cumsum(tokens * np.diff(at_tokens))])
    steps = np.concatenate([[0.0], np.cumsum(decodes * np.diff(knots))])
    prefill = {
        "base_s": one + any_prompt + prompt * (knots - 1),
        "per_padded_token_s": tokens[-1] * flat,
        "per_attended_s": attended * flat,
    }
    decode = {"base_s": one + steps, "per_context_s": coefficients[-1] * flat}
    return prefill, decode, seconds - tokens[-1] * at_tokens
