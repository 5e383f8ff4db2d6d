"""Profiles from whole iterations that others measured: `profiles/measured.json`.

A prefill is a curve in its prompt tokens and a slope in the pairs they attend to; a decode is a
line per number of requests along its context. What the engine's CPU side takes is not told apart
from the forward pass, so all is stored as that.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.iteration import expand, iteration_seconds
from harness.costs.model import PARTS
from harness.costs.profiles import Profile, profile_from
from harness.tools.fitting.iteration_rows import (
    ALL_SMS,
    MeasuredSource,
    by_pair,
    coefficients,
    iteration_rows,
    measured_sources,
    raw_rows,
)
from harness.tools.fitting.robust import fit_relative, hats, ramps
from harness.tools.fitting.stored import Json, ranges, rounded

Floats = NDArray[np.float64]

BLOCK_TOKENS = 16  # KV of the engines here is paged; where it is not, a block size costs nothing
SLOPE_LENGTHS = 3  # contexts at which a number of requests must be measured to show a slope
LARGEST = 4096  # requests; beyond what is asked for, the last knot of a line


def fit_entry(rows: pd.DataFrame) -> Json:
    """Coefficients of one (model, tensor-parallel size) along `requests` of its decodes."""
    prefill, decode = (rows[rows["phase"] == phase] for phase in ("prefill", "decode"))
    requests = sorted({int(count) for count in decode["requests"]})
    entry = {
        "knots_requests": requests,
        **_fitted_prefill(prefill, len(requests)),
        "decode": _fitted_decode(decode, requests),
    }
    return rounded(entry)  # type: ignore[no-any-return]


def _columns(rows: pd.DataFrame) -> tuple[Floats, Floats, Floats, Floats]:
    """Requests, tokens, length and seconds of every row."""
    columns = rows["requests"], rows["requests"] * rows["length"], rows["length"], rows["seconds"]
    requests, tokens, length, seconds = (column.to_numpy(np.float64) for column in columns)
    return requests, tokens, length, seconds


def _fitted_prefill(rows: pd.DataFrame, count: int) -> Json:
    """Curve through powers of two of the prompt tokens, and a slope in the attended pairs.

    Stored are the slope of the longest prompts, for each of `count` knots, and the step beside it.
    """
    _, tokens, length, seconds = _columns(rows)
    doubled = 2.0 ** np.arange(1, 24)
    inside = doubled[(doubled > tokens.min()) & (doubled < tokens.max())]
    knots = np.unique([tokens.min(), *inside, tokens.max()])
    columns = np.column_stack([np.ones(len(rows)), ramps(tokens, knots), tokens * length])
    found = fit_relative(columns, seconds, seconds)
    curve_s = np.cumsum(found[:-1])
    slope = (curve_s[-1] - curve_s[-2]) / (knots[-1] - knots[-2])
    step_s = curve_s - slope * knots
    forward = {"base_s": step_s[0], "per_padded_token_s": slope, "per_attended_s": found[-1]}
    return {
        "prefill": _parts({name: [value] * count for name, value in forward.items()}),
        "step_knots_tokens": knots.astype(int),
        "step_s": rounded(step_s - step_s[0]),
    }


def _fitted_decode(rows: pd.DataFrame, requests: Sequence[int]) -> Json:
    """Nondecreasing constants through the measured numbers of requests, and slopes in context."""
    count, context, _, seconds = _columns(rows)
    knots = np.unique(count)
    lengths = rows.groupby("requests")["length"].nunique()
    slope_knots = lengths[lengths >= SLOPE_LENGTHS].index.to_numpy(np.float64)
    if not len(slope_knots):
        slope_knots = knots[:1]
    slopes = hats(count, slope_knots) * context[:, None]
    columns = np.hstack([np.ones((len(rows), 1)), ramps(count, knots), slopes])
    found = fit_relative(columns, seconds, seconds)
    return _parts(
        {
            "base_s": np.interp(requests, knots, np.cumsum(found[: len(knots)])),
            "per_context_s": np.interp(requests, slope_knots, found[len(knots) :]),
        }
    )


def coefficient_entry(pair: pd.DataFrame) -> Json:
    """The authors' linear functions as they are: two decode lines along the number of requests."""
    of_phase = coefficients(pair)
    threshold = int(pair["decode_batch_threshold"].iloc[0])
    knots = [1, threshold - 1, threshold, LARGEST]
    lines = [of_phase[f"decoding_{size}bs"] for size in ("small", "small", "large", "large")]
    base_s, per_token_s, per_pair_s = of_phase["prefill"]
    prefill = {
        "base_s": base_s,
        "per_padded_token_s": per_token_s,
        "per_attended_s": max(0.0, per_pair_s),
    }
    decode = {
        "base_s": [
            base + per_request * knot
            for (base, _, per_request), knot in zip(lines, knots, strict=True)
        ],
        "per_context_s": [per_token for _, per_token, _ in lines],
    }
    entry = {
        "knots_requests": knots,
        "prefill": _parts({name: [value] * 4 for name, value in prefill.items()}),
        "decode": _parts(decode),
    }
    return rounded(entry)  # type: ignore[no-any-return]


def _parts(forward: Json) -> Json:
    """A phase whose time is all in one component."""
    return {part: forward if part == "forward" else {} for part in PARTS}


def predicted_seconds(
    profile: Profile, rows: pd.DataFrame, *, parts: tuple[str, ...] = PARTS
) -> Floats:
    """Seconds of the rows' batches under a profile."""
    table = expand(profile, parts)
    found = []
    for row in rows.to_dict("records"):
        requests, length = row["requests"], row["length"]
        tokens = int(requests * length)
        if row["phase"] == "prefill":
            work = (requests, tokens, tokens, float(tokens * length), 0, 0, 0)
        else:
            work = (0, 0, 0, 0.0, requests, tokens, int(length))
        found.append(iteration_seconds(table, *work))
    return np.array(found)


def held_out_seconds(rows: pd.DataFrame) -> tuple[NDArray[np.bool_], Floats]:
    """Which rows can be left out, and their seconds predicted from all other sizes of batches.

    The smallest and the largest number of requests cannot: no fit says what lies beyond them.
    """
    requests = rows["requests"].to_numpy()
    kept = (requests > requests.min()) & (requests < requests.max())
    found = np.zeros(len(rows))
    for size in np.unique(requests[kept]):
        left_out = requests == size
        fitted = profile_from(_shared(), 1, fit_entry(rows[~left_out]))
        found[left_out] = predicted_seconds(fitted, rows[left_out])
    return kept, found[kept]


def fit_error(rows: pd.DataFrame) -> dict[str, float]:
    """Median and 95th percentile of the held-out relative errors, by phase."""
    kept, seconds = held_out_seconds(rows)
    errors = np.abs(seconds / rows["seconds"].to_numpy()[kept] - 1.0)
    found = {}
    for phase in ("prefill", "decode"):
        of_phase = errors[(rows["phase"] == phase).to_numpy()[kept]]
        found[f"{phase}_median"], found[f"{phase}_p95"] = np.quantile(of_phase, (0.5, 0.95))
    return rounded(found)  # type: ignore[no-any-return]


def _shared(*, gpu: str = "", engine: str = "", source: str = "", note: str = "") -> Json:
    """What all sizes of a profile have in common."""
    known = {"gpu": gpu, "engine": engine, "source": source, "note": note}
    return known | {"model": "", "kind": "measured", "block_tokens": BLOCK_TOKENS}


def measured_files(source: MeasuredSource, data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every model's profile from one source."""
    rows, raw = iteration_rows(source, data), raw_rows(source, data)
    shared = _shared(gpu=source.gpu, engine=source.engine, source=source.source, note=source.note)
    for model in sorted(set(source.models.values())):
        sizes = {}
        for _, size, pair in by_pair(rows[rows["model"] == model]):
            whole = raw[(raw["model"] == model) & (raw["tp"] == size)]
            sizes[str(size)] = _entry(source, pair, whole)
        yield f"{model}.json", {**shared, "model": model, "tensor_parallel": sizes}


def _entry(source: MeasuredSource, pair: pd.DataFrame, raw: pd.DataFrame) -> Json:
    if source.kind == "coefficients":
        return coefficient_entry(raw)
    tokens, decode = pair["requests"] * pair["length"], pair["phase"] == "decode"
    valid = ranges(
        requests=pair["requests"],
        prefill_tokens=tokens[~decode],
        context_tokens=tokens[decode],
        longest=pair["length"][decode],
    )
    entry = {"rows": len(pair), **fit_entry(pair), "error": fit_error(pair), "valid": valid}
    if source.kv_tokens is not None:
        entry["kv_blocks"] = source.kv_tokens // BLOCK_TOKENS
    if source.kind == "grid":
        entry["sm_share"] = share_table(raw)
    return entry


def share_table(raw: pd.DataFrame) -> Json:
    """Seconds on a share of the SMs over those on all: prefills by tokens, decodes by requests.

    Medians over the shapes of a number of tokens, and over the sequence lengths of a number of
    requests; `costs.profiles` reads them.
    """
    keys, phases = ["batch_size", "seq_len"], ["prefill_ms", "decode_ms"]
    whole = raw[raw["sm_percent"] == ALL_SMS].set_index(keys)[phases]
    found: Json = {}
    for percent, rows in raw[raw["sm_percent"] < ALL_SMS].groupby("sm_percent"):
        ratios = (rows.set_index(keys)[phases] / whole).dropna().reset_index()
        tokens = ratios["batch_size"] * ratios["seq_len"]
        prefill = ratios["prefill_ms"].groupby(tokens).median()
        decode = ratios.groupby("batch_size")["decode_ms"].median()
        found[str(percent)] = {
            "tokens": prefill.index,
            "prefill": prefill,
            "requests": decode.index,
            "decode": decode,
        }
    return rounded(found)  # type: ignore[no-any-return]


def profile_sources() -> tuple[MeasuredSource, ...]:
    """The sources that have enough rows for profiles."""
    return tuple(source for source in measured_sources() if source.folder)
