"""Profiles of the logged iterations: each component fitted on the rows of one model and size.

One row per iteration of vLLM 0.3.0 (profiling logs of arXiv 2503.16893). Each component is fitted
as its eq. 5 says, a line per number of requests, with two changes that the measurements ask for:
the constants are piecewise linear in the number of requests, with jumps where a matrix
multiplication takes another tile (64, 128, 256 and 384 rows); and a prefill's forward pass is one
curve in its padded tokens, shared by all numbers of requests, since the logs have only the shortest
and the longest prompts for each number and a line between those would misjudge all prompts of
ordinary length.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.model import PARTS
from harness.costs.profiles import LATER_MACHINE
from harness.fitting.robust import fit_relative, hats, ramps

Floats = NDArray[np.float64]
Json = dict[str, Any]

FOLDER = "a100_80g_vllm_0_3"
GPU = "A100-80G"
ENGINE = "vLLM 0.3.0, eager"
SOURCE = "puddingfjz/vllm@de1677d benchmarks/Cost_Model_per_iter, model_initcost_database.py"
BLOCK_TOKENS = 16
FOLDS = 5

KNOTS = np.array([1, 8, 16, 32, 64, 65, 96, 128, 129, 192, 256, 257, 320, 384, 385, 448, 512.0])
SLOPE_KNOTS = np.array([1, 8, 32, 64, 128, 256, 384, 512.0])
TILE_KNOTS = np.array(
    [1, 64, 65, 128, 129, 256, 257, 384, 385, 512, 513, 640, 641, 768, 769, 896, 897, 1024.0]
)

# What a component grows with, beside the number of requests (arXiv 2503.16893 sec. 2).
GROWS_WITH = {
    ("prefill", "prepare"): ("per_padded_token_s",),
    ("prefill", "sample"): ("per_token_s",),
    ("prefill", "other"): ("per_token_s",),
    ("decode", "forward"): ("per_context_s", "per_padded_s"),
    ("decode", "prepare"): ("per_padded_s",),
    ("decode", "sample"): ("per_context_s",),
    ("decode", "other"): ("per_context_s",),
}


class Rows:
    """The measured iterations of one phase of one (model, tensor-parallel size)."""

    def __init__(self, rows: pd.DataFrame, phase: str) -> None:
        self.phase = phase
        self.requests: Floats = rows["n_seqs"].to_numpy(np.float64)
        self.longest: Floats = rows["max_len"].to_numpy(np.float64)
        self.tokens: Floats = rows["context_tokens"].to_numpy(np.float64)
        self.padded: Floats = self.requests * self.longest
        self.whole_s: Floats = rows["iter_s"].to_numpy(np.float64)
        self.part_s: dict[str, Floats] = {
            part: rows[f"{part}_s"].to_numpy(np.float64) for part in PARTS[:3]
        }
        # what the logs do not count among the three: scheduling and output processing
        self.part_s["other"] = self.whole_s - sum(self.part_s.values())
        self.tile_knots = _tile_knots(self.padded)

    def columns(self, part: str) -> Floats:
        """Design matrix of a component."""
        constant = [np.ones((len(self.requests), 1)), ramps(self.requests, KNOTS)]
        if (self.phase, part) == ("prefill", "forward"):
            attended = (self.padded * self.longest)[:, None]
            return np.hstack([*constant, ramps(self.padded, self.tile_knots), attended])
        slopes = hats(self.requests, SLOPE_KNOTS)
        along = {"per_padded_token_s": self.padded, "per_padded_s": self.padded}
        return np.hstack(
            constant
            + [
                slopes * along.get(name, self.tokens)[:, None]
                for name in GROWS_WITH[self.phase, part]
            ]
        )

    def held_out_errors(self) -> Floats:
        """Relative error of each whole iteration, predicted without its number of requests.

        Every fifth number of requests is left out in turn, all its rows together.
        """
        sizes = np.unique(self.requests)
        fold = np.searchsorted(sizes, self.requests) % FOLDS
        predicted_s = np.zeros(len(self.requests))
        for part in PARTS:
            columns = self.columns(part)
            for held_out in range(FOLDS):
                seen = fold != held_out
                found = fit_relative(columns[seen], self.part_s[part][seen], self.whole_s[seen])
                predicted_s[~seen] += columns[~seen] @ found
        return np.asarray(np.abs(predicted_s / self.whole_s - 1.0))


def _tile_knots(padded: Floats) -> Floats:
    """Knots of a prefill's padded tokens: tiles up to 1024, then the longest prompts.

    Those fill the model's context or, if it does not divide evenly, lie up to 512 above it.
    """
    long = padded[padded > TILE_KNOTS[-1]]
    ends = long.min() + np.array([0.0, 1.0, 256.0, 257.0, 512.0]) if len(long) else []
    return np.concatenate([TILE_KNOTS, ends])


def fit_component(rows: Rows, part: str) -> dict[str, Floats]:
    """Coefficients of one component along `KNOTS`, fitted on all rows."""
    found = fit_relative(rows.columns(part), rows.part_s[part], rows.whole_s)
    fitted: dict[str, Floats] = {"base_s": np.cumsum(found[: len(KNOTS)])}
    rest = found[len(KNOTS) :]
    if (rows.phase, part) == ("prefill", "forward"):
        return fitted | _prefill_curve(rows.tile_knots, rest)
    for name in GROWS_WITH[rows.phase, part]:
        fitted[name] = np.interp(KNOTS, SLOPE_KNOTS, rest[: len(SLOPE_KNOTS)])
        rest = rest[len(SLOPE_KNOTS) :]
    return fitted


def _prefill_curve(tile_knots: Floats, found: Floats) -> dict[str, Floats]:
    """The curve in padded tokens as its slope for long prompts and the step beside that slope."""
    curve_s = np.concatenate([[0.0], np.cumsum(found[:-1])])
    long = len(TILE_KNOTS) - 1
    slope = (curve_s[-1] - curve_s[long]) / (tile_knots[-1] - tile_knots[long])
    return {
        "per_padded_token_s": np.full(len(KNOTS), slope),
        "per_attended_s": np.full(len(KNOTS), found[-1]),
        "step_s": curve_s - slope * tile_knots,
    }


def fit_pair(rows: pd.DataFrame) -> Json:
    """The part of a profile that is fitted on the iterations of one (model, size)."""
    entry: Json = {"rows": len(rows), "error": {}, "valid": _valid(rows)}
    for phase in ("prefill", "decode"):
        of_phase = Rows(rows[rows["is_prefill"] == (phase == "prefill")], phase)
        errors = of_phase.held_out_errors()
        entry["error"][f"{phase}_median"] = _rounded(np.median(errors))
        entry["error"][f"{phase}_p95"] = _rounded(np.quantile(errors, 0.95))
        entry[phase] = {}
        for part in PARTS:
            fitted = {name: _rounded(x) for name, x in fit_component(of_phase, part).items()}
            if "step_s" in fitted:
                entry["step_s"] = fitted.pop("step_s")
                entry["step_knots_tokens"] = [int(knot) for knot in of_phase.tile_knots]
            entry[phase][part] = fitted
    return entry


def _valid(rows: pd.DataFrame) -> Json:
    """Smallest and largest measured value of what an iteration depends on."""
    prefill, decode = rows[rows["is_prefill"]], rows[~rows["is_prefill"]]
    ranges = {
        "requests": rows["n_seqs"],
        "prefill_tokens": prefill["context_tokens"],
        "context_tokens": decode["context_tokens"],
        "longest": rows["max_len"],
    }
    return {name: [int(column.min()), int(column.max())] for name, column in ranges.items()}


def _rounded(values: Any) -> Any:
    """Six significant digits: beyond the noise, and stable across linear algebra libraries."""
    if np.ndim(values) == 0:
        return float(f"{values:.6g}")
    return [float(f"{value:.6g}") for value in values]


def profile_files(data: Path, models: frozenset[str] | None = None) -> Iterator[tuple[str, Json]]:
    """File name and content of every model's profile; only of some models if they are named."""
    rows = pd.read_parquet(data / "samullm" / "iteration_latency.parquet")
    entries: dict[tuple[str, int], Json] = {
        (str(model), int(pair["tp"].iloc[0])): fit_pair(pair)
        for (model, _), pair in rows.groupby(["model", "tp"])
        if models is None or model in models
    }
    for key, facts in _measured_facts(data):
        if models is None or key[0] in models:
            entries.setdefault(key, {}).update(facts)
    for model in sorted({model for model, _ in entries}):
        yield (
            f"{model}.json",
            {
                "model": model,
                "gpu": GPU,
                "engine": ENGINE,
                "kind": "measured",
                "source": SOURCE,
                "block_tokens": BLOCK_TOKENS,
                "knots_requests": [int(knot) for knot in KNOTS],
                "tensor_parallel": {
                    str(size): entry for (name, size), entry in entries.items() if name == model
                },
            },
        )


def _measured_facts(data: Path) -> Iterator[tuple[tuple[str, int], Json]]:
    """KV blocks and loading times by model and size, taken over as they are."""
    for row in pd.read_csv(data / "samullm" / "kv_capacity.csv.gz").to_dict("records"):
        yield (row["model"], int(row["tp"])), {"kv_blocks": int(row["kv_blocks"])}
    loads = pd.read_csv(data / "samullm" / "model_load_seconds.csv.gz")
    # the paper's experiments ran on the second machine, and its last record is the final one
    loads["later"] = loads["machine"] == LATER_MACHINE
    last = loads.sort_values(["later", "record"], kind="stable").groupby(["model", "tp"]).tail(1)
    for row in last.to_dict("records"):
        source = f"{row['machine']}, record {row['record']}"
        yield (
            (row["model"], int(row["tp"])),
            {"load_s": _rounded(row["load_s"]), "load_source": source},
        )
