"""Profiles from whole iterations that others measured: `profiles/measured.json`.

A prefill is a curve in its prompt tokens and a slope in the pairs they attend to; a decode is a
line per number of requests along its context. What the engine's CPU side takes is not told apart
from the forward pass, so all is stored as that.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.iteration import expand, iteration_seconds
from harness.costs.model import PARTS
from harness.costs.profiles import Profile, profile_from
from harness.fitting.iteration_rows import (
    ALL_SMS,
    MeasuredSource,
    by_pair,
    coefficients,
    iteration_rows,
    measured_sources,
    raw_rows,
)
from harness.fitting.robust import fit_relative, hats, ramps

Floats = NDArray[np.float64]
Json = dict[str, Any]

BLOCK_TOKENS = 16  # KV of the engines here is paged; where it is not, a block size costs nothing
SLOPE_LENGTHS = 3  # contexts at which a number of requests must be measured to show a slope
LARGEST = 4096  # requests; beyond what is asked for, the last knot of a line


class PrefillFit:
    """Curve through powers of two of the prompt tokens, and a slope in the attended pairs."""

    def __init__(self, rows: pd.DataFrame) -> None:
        tokens = (rows["requests"] * rows["length"]).to_numpy(np.float64)
        doubled = 2.0 ** np.arange(1, 24)
        inside = doubled[(doubled > tokens.min()) & (doubled < tokens.max())]
        self.knots = np.unique(np.concatenate([[tokens.min()], inside, [tokens.max()]]))
        seconds = rows["seconds"].to_numpy(np.float64)
        found = fit_relative(self._columns(rows), seconds, seconds)
        self.curve_s = np.cumsum(found[: len(self.knots)])
        self.attended_s = float(found[-1])

    def _columns(self, rows: pd.DataFrame) -> Floats:
        tokens = (rows["requests"] * rows["length"]).to_numpy(np.float64)
        attended = tokens * rows["length"].to_numpy(np.float64)
        return np.column_stack([np.ones(len(rows)), ramps(tokens, self.knots), attended])

    def entry(self, requests: list[int]) -> Json:
        """Part of a profile: the slope of the longest prompts and the step beside it."""
        slope = (self.curve_s[-1] - self.curve_s[-2]) / (self.knots[-1] - self.knots[-2])
        step_s = self.curve_s - slope * self.knots
        forward = {
            "base_s": [rounded(step_s[0])] * len(requests),
            "per_padded_token_s": [rounded(slope)] * len(requests),
            "per_attended_s": [rounded(self.attended_s)] * len(requests),
        }
        return {
            "prefill": _parts(forward),
            "step_knots_tokens": [int(knot) for knot in self.knots],
            "step_s": [rounded(value) for value in step_s - step_s[0]],
        }


class DecodeFit:
    """Nondecreasing constants through the measured numbers of requests, and slopes in context."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.knots = np.unique(rows["requests"].to_numpy(np.float64))
        lengths = rows.groupby("requests")["length"].nunique()
        self.slope_knots = lengths[lengths >= SLOPE_LENGTHS].index.to_numpy(np.float64)
        if not len(self.slope_knots):
            self.slope_knots = self.knots[:1]
        seconds = rows["seconds"].to_numpy(np.float64)
        found = fit_relative(self._columns(rows), seconds, seconds)
        self.base_s = np.cumsum(found[: len(self.knots)])
        self.context_s = found[len(self.knots) :]

    def _columns(self, rows: pd.DataFrame) -> Floats:
        requests = rows["requests"].to_numpy(np.float64)
        context = (rows["requests"] * rows["length"]).to_numpy(np.float64)
        slopes = hats(requests, self.slope_knots) * context[:, None]
        return np.hstack([np.ones((len(rows), 1)), ramps(requests, self.knots), slopes])

    def entry(self, requests: list[int]) -> Json:
        """Part of a profile along some numbers of requests."""
        context_s = np.interp(requests, self.slope_knots, self.context_s)
        base_s = np.interp(requests, self.knots, self.base_s)
        forward = {
            "base_s": [rounded(value) for value in base_s],
            "per_context_s": [rounded(value) for value in context_s],
        }
        return {"decode": _parts(forward)}


def fit_entry(rows: pd.DataFrame) -> Json:
    """Coefficients of one (model, tensor-parallel size) along `requests` of its decodes."""
    prefill, decode = (rows[rows["phase"] == phase] for phase in ("prefill", "decode"))
    requests = sorted({int(count) for count in decode["requests"]})
    return {
        "knots_requests": requests,
        **PrefillFit(prefill).entry(requests),
        **DecodeFit(decode).entry(requests),
    }


def coefficient_entry(pair: pd.DataFrame) -> Json:
    """The authors' linear functions as they are: two decode lines along the number of requests."""
    of_phase = coefficients(pair)
    threshold = int(pair["decode_batch_threshold"].iloc[0])
    knots = [1, threshold - 1, threshold, LARGEST]
    sizes = ("smallbs", "smallbs", "largebs", "largebs")
    lines = [of_phase[f"decoding_{size}"] for size in sizes]
    base_s, per_token_s, per_pair_s = of_phase["prefill"]
    prefill = {
        "base_s": base_s,
        "per_padded_token_s": per_token_s,
        "per_attended_s": max(0.0, per_pair_s),
    }
    decode = {
        "base_s": [
            rounded(base + per_request * knot)
            for (base, _, per_request), knot in zip(lines, knots, strict=True)
        ],
        "per_context_s": [rounded(per_token) for _, per_token, _ in lines],
    }
    return {
        "knots_requests": knots,
        "prefill": _parts({name: [rounded(value)] * 4 for name, value in prefill.items()}),
        "decode": _parts(decode),
    }


def _parts(forward: Json) -> Json:
    """A phase whose time is all in one component."""
    return {part: forward if part == "forward" else {} for part in PARTS}


def rounded(value: float) -> float:
    """Six significant digits: beyond the noise, and stable across linear algebra libraries."""
    return float(f"{value:.6g}")


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
        fitted = profile_from(_shared(None), 1, fit_entry(rows[~left_out]))
        found[left_out] = predicted_seconds(fitted, rows[left_out])
    return kept, found[kept]


def fit_error(rows: pd.DataFrame) -> dict[str, float]:
    """Median and 95th percentile of the held-out relative errors, by phase."""
    kept, seconds = held_out_seconds(rows)
    errors = np.abs(seconds / rows["seconds"].to_numpy()[kept] - 1.0)
    found = {}
    for phase in ("prefill", "decode"):
        of_phase = errors[(rows["phase"] == phase).to_numpy()[kept]]
        found[f"{phase}_median"] = rounded(float(np.median(of_phase)))
        found[f"{phase}_p95"] = rounded(float(np.quantile(of_phase, 0.95)))
    return found


def _shared(source: MeasuredSource | None) -> Json:
    """What all sizes of a profile have in common."""
    return {
        "model": "",
        "gpu": source.gpu if source else "",
        "engine": source.engine if source else "",
        "kind": "measured",
        "source": source.source if source else "",
        "note": source.note if source else "",
        "block_tokens": BLOCK_TOKENS,
    }


def measured_files(source: MeasuredSource, data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every model's profile from one source."""
    rows, raw = iteration_rows(source, data), raw_rows(source, data)
    for model in sorted(set(source.models.values())):
        sizes = {}
        for _, size, pair in by_pair(rows[rows["model"] == model]):
            whole = raw[(raw["model"] == model) & (raw["tp"] == size)]
            sizes[str(size)] = _entry(source, pair, whole)
        yield f"{model}.json", {**_shared(source), "model": model, "tensor_parallel": sizes}


def _entry(source: MeasuredSource, pair: pd.DataFrame, raw: pd.DataFrame) -> Json:
    if source.kind == "coefficients":
        return coefficient_entry(raw)
    entry = {"rows": len(pair), **fit_entry(pair), "error": fit_error(pair), "valid": _valid(pair)}
    if source.kv_tokens is not None:
        entry["kv_blocks"] = source.kv_tokens // BLOCK_TOKENS
    if source.kind == "grid":
        entry["sm_share"] = share_table(raw)
    return entry


def _valid(rows: pd.DataFrame) -> Json:
    """Smallest and largest measured value of what an iteration depends on."""
    tokens = rows["requests"] * rows["length"]
    decode = rows["phase"] == "decode"
    ranges = {
        "requests": rows["requests"],
        "prefill_tokens": tokens[~decode],
        "context_tokens": tokens[decode],
        "longest": rows.loc[decode, "length"],
    }
    return {name: [int(values.min()), int(values.max())] for name, values in ranges.items()}


def share_table(raw: pd.DataFrame) -> Json:
    """Seconds on a share of the SMs over those on all: prefills by tokens, decodes by requests.

    Medians over the shapes of a number of tokens, and over the sequence lengths of a number of
    requests; `costs.sm_shares` reads them.
    """
    keys = ["batch_size", "seq_len"]
    whole = raw[raw["sm_percent"] == ALL_SMS].set_index(keys)
    found: Json = {}
    for percent, rows in raw[raw["sm_percent"] < ALL_SMS].groupby("sm_percent"):
        at_share = rows.set_index(keys)
        both = at_share.index.intersection(whole.index)
        ratios = (
            at_share.loc[both, ["prefill_ms", "decode_ms"]]
            / whole.loc[both, ["prefill_ms", "decode_ms"]]
        )
        tokens = both.get_level_values("batch_size") * both.get_level_values("seq_len")
        prefill = ratios["prefill_ms"].groupby(tokens.to_numpy()).median()
        decode = ratios["decode_ms"].groupby(level="batch_size").median()
        found[str(percent)] = {
            "tokens": [int(count) for count in prefill.index],
            "prefill": [rounded(value) for value in prefill],
            "requests": [int(count) for count in decode.index],
            "decode": [rounded(value) for value in decode],
        }
    return found


def profile_sources() -> tuple[MeasuredSource, ...]:
    """The sources that have enough rows for profiles."""
    return tuple(source for source in measured_sources() if source.folder)
