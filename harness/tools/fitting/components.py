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

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.model import PARTS
from harness.costs.profiles import LATER_MACHINE
from harness.tools.fitting.iteration_rows import by_pair
from harness.tools.fitting.robust import fit_relative, hats, ramps
from harness.tools.fitting.stored import Json, ranges, rounded

Floats = NDArray[np.float64]

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
        names = ("n_seqs", "max_len", "context_tokens", "iter_s")
        columns = (rows[name].to_numpy(np.float64) for name in names)
        self.requests, self.longest, self.tokens, self.whole_s = columns
        self.padded: Floats = self.requests * self.longest
        self.part_s = {part: rows[f"{part}_s"].to_numpy(np.float64) for part in PARTS[:3]}
        # what the logs do not count among the three: scheduling and output processing
        self.part_s["other"] = self.whole_s - sum(self.part_s.values())
        # Tiles up to 1024, then the longest prompts: those fill the model's context or, if it does
        # not divide evenly, lie up to 512 above it.
        long = self.padded[self.padded > TILE_KNOTS[-1]]
        ends = long.min() + np.array([0.0, 1.0, 256.0, 257.0, 512.0]) if len(long) else []
        self.tile_knots = np.concatenate([TILE_KNOTS, ends])

    def columns(self, part: str) -> Floats:
        """Design matrix of a component."""
        constant = [np.ones((len(self.requests), 1)), ramps(self.requests, KNOTS)]
        if (self.phase, part) == ("prefill", "forward"):
            attended = (self.padded * self.longest)[:, None]
            return np.hstack([*constant, ramps(self.padded, self.tile_knots), attended])
        slopes = hats(self.requests, SLOPE_KNOTS)
        along = [
            self.padded if "padded" in name else self.tokens
            for name in GROWS_WITH[self.phase, part]
        ]
        return np.hstack(constant + [slopes * column[:, None] for column in along])

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

    def fitted(self, part: str) -> dict[str, Floats]:
        """Coefficients of one component along `KNOTS`, fitted on all rows.

        A prefill's forward pass is a curve in padded tokens: its slope for long prompts, and the
        step beside that slope.
        """
        found = fit_relative(self.columns(part), self.part_s[part], self.whole_s)
        coefficients: dict[str, Floats] = {"base_s": np.cumsum(found[: len(KNOTS)])}
        rest = found[len(KNOTS) :]
        if (self.phase, part) == ("prefill", "forward"):
            curve_s = np.concatenate([[0.0], np.cumsum(rest[:-1])])
            long, knots = len(TILE_KNOTS) - 1, self.tile_knots
            slope = (curve_s[-1] - curve_s[long]) / (knots[-1] - knots[long])
            coefficients["per_padded_token_s"] = np.full(len(KNOTS), slope)
            coefficients["per_attended_s"] = np.full(len(KNOTS), rest[-1])
            coefficients["step_s"] = curve_s - slope * knots
            return coefficients
        names = GROWS_WITH[self.phase, part]
        for name, slopes in zip(names, np.split(rest, len(names)), strict=True):
            coefficients[name] = np.interp(KNOTS, SLOPE_KNOTS, slopes)
        return coefficients


def fit_pair(rows: pd.DataFrame) -> Json:
    """The part of a profile that is fitted on the iterations of one (model, size)."""
    is_prefill, tokens = rows["is_prefill"], rows["context_tokens"]
    valid = ranges(
        requests=rows["n_seqs"],
        prefill_tokens=tokens[is_prefill],
        context_tokens=tokens[~is_prefill],
        longest=rows["max_len"],
    )
    entry: Json = {"rows": len(rows), "error": {}, "valid": valid}
    for phase in ("prefill", "decode"):
        of_phase = Rows(rows[is_prefill == (phase == "prefill")], phase)
        median, p95 = np.quantile(of_phase.held_out_errors(), (0.5, 0.95))
        entry["error"] |= {f"{phase}_median": median, f"{phase}_p95": p95}
        entry[phase] = {part: of_phase.fitted(part) for part in PARTS}
        if phase == "prefill":
            entry["step_s"] = entry[phase]["forward"].pop("step_s")
            entry["step_knots_tokens"] = of_phase.tile_knots.astype(int)
    return rounded(entry)  # type: ignore[no-any-return]


def profile_files(data: Path, models: frozenset[str] | None = None) -> Iterator[tuple[str, Json]]:
    """File name and content of every model's profile; only of some models if they are named."""
    rows = pd.read_parquet(data / "samullm" / "iteration_latency.parquet")
    entries: dict[str, dict[str, Json]] = {}
    for model, size, pair in by_pair(rows):
        if models is None or model in models:
            entries.setdefault(model, {})[str(size)] = fit_pair(pair)
    for model, size, facts in _measured_facts(data):
        if models is None or model in models:
            entries.setdefault(model, {}).setdefault(str(size), {}).update(facts)
    shared = {
        "gpu": GPU,
        "engine": ENGINE,
        "kind": "measured",
        "source": SOURCE,
        "block_tokens": BLOCK_TOKENS,
        "knots_requests": KNOTS.astype(int).tolist(),
    }
    for model, sizes in sorted(entries.items()):
        yield f"{model}.json", {**shared, "model": model, "tensor_parallel": sizes}


def _measured_facts(data: Path) -> Iterator[tuple[str, int, Json]]:
    """KV blocks and loading times by model and size, taken over as they are."""
    for row in pd.read_csv(data / "samullm" / "kv_capacity.csv.gz").to_dict("records"):
        yield row["model"], row["tp"], {"kv_blocks": row["kv_blocks"]}
    loads = pd.read_csv(data / "samullm" / "model_load_seconds.csv.gz")
    # the paper's experiments ran on the second machine, and its last record is the final one
    loads["later"] = loads["machine"] == LATER_MACHINE
    last = loads.sort_values(["later", "record"], kind="stable").groupby(["model", "tp"]).tail(1)
    for row in last.to_dict("records"):
        source = f"{row['machine']}, record {row['record']}"
        yield row["model"], row["tp"], {"load_s": rounded(row["load_s"]), "load_source": source}
