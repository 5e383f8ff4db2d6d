"""Makes every stored profile that is derived from measurements: `python -m harness.fitting`.

Measurements: one row per iteration of vLLM 0.3.0 (profiling logs of arXiv 2503.16893), loading
times, KV blocks, output lengths. Each component of an iteration is fitted as its eq. 5 says, a
line per number of requests, with two changes that the measurements ask for: the constants are
piecewise linear in the number of requests, with jumps where a matrix multiplication takes another
tile (64, 128, 256 and 384 rows); and a prefill's forward pass is one curve in its padded tokens,
shared by all numbers of requests, since the logs have only the shortest and the longest prompts
for each number and a line between those would misjudge all prompts of ordinary length.

What other authors measured as whole iterations becomes profiles in `harness.fitting.rows`; what was
measured nowhere follows the rooflines of `harness.fitting.roofline` and of
`harness.fitting.roofline_across`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.model import PARTS
from harness.costs.models import PROFILES
from harness.costs.profiles import CALIBRATION, LATER_MACHINE
from harness.fitting.arrivals import arrival_files
from harness.fitting.lengths import length_files, words_file
from harness.fitting.linear_profile import FOLDER as LINEAR
from harness.fitting.linear_profile import linear_files
from harness.fitting.pairs import pair_files
from harness.fitting.predictors import MEASURED_HERE, predictor_files
from harness.fitting.query_latency import FILE as QUERY_LATENCY
from harness.fitting.query_latency import query_latency
from harness.fitting.robust import fit_relative, hats, ramps
from harness.fitting.roofline import calibration_file
from harness.fitting.roofline_across import FOLDER as ACROSS
from harness.fitting.roofline_across import across_file
from harness.fitting.rows import measured_files, profile_sources
from harness.fitting.shapes import shape_files

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

DERIVED = (
    ("lengths", length_files),
    ("predictors", predictor_files),
    ("derived", shape_files),
    ("arrivals", arrival_files),
    ("pairs", pair_files),
)
"""Folders of tables, each made from the data alone."""

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
        # what the logs time as none of the three: scheduling and output processing
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


def write_all(data: Path, out: Path) -> list[Path]:
    """Write every derived profile below `out`; returns the paths relative to it."""
    written = []

    def write(path: Path, content: Json) -> None:
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_text(content), encoding="utf-8")
        written.append(path)

    for name, content in profile_files(data):
        write(Path(FOLDER) / name, content)
    write(Path(FOLDER) / CALIBRATION, calibration_file(out / FOLDER))
    across = across_file(data, out / FOLDER)
    write(Path(ACROSS) / CALIBRATION, across)
    for source in profile_sources():
        for name, content in measured_files(source, data):
            write(Path(source.folder) / name, content)
        write(Path(source.folder) / CALIBRATION, across)
    for name, content in linear_files(across):
        write(Path(LINEAR) / name, content)
    for folder, made in DERIVED:
        for name, content in made(data):
            write(Path(folder) / name, content)
    write(Path("derived") / QUERY_LATENCY, query_latency(out / ACROSS))
    write(Path("tokens_per_word.json"), words_file(data))
    return written


def as_text(content: Mapping[str, Any]) -> str:
    """How a profile is written: sorted, one value per line, so that changes can be read."""
    return json.dumps(content, sort_keys=True, indent=1) + "\n"


def check(data: Path, kept: Path) -> list[str]:
    """Sentences on the derived files that differ from the kept ones; empty if none do."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = {path: (Path(scratch) / path) for path in write_all(data, Path(scratch))}
        found = []
        for path, made in fresh.items():
            if not (kept / path).is_file():
                found.append(f"{path} is missing.")
            elif (kept / path).read_bytes() != made.read_bytes():
                found.append(f"{path} differs from what the data give.")
    folders = [FOLDER, ACROSS, LINEAR, *(source.folder for source in profile_sources())]
    folders += [folder for folder, _ in DERIVED]
    kept_files = {
        path.relative_to(kept)
        for folder in folders
        for path in (kept / folder).glob("*")
        if not path.name.startswith(MEASURED_HERE)
    }
    return found + [
        f"{path} is not derived from the data." for path in sorted(kept_files - fresh.keys())
    ]


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.fitting", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--out", type=Path, default=PROFILES, help="folder of the profiles")
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    options = parser.parse_args(arguments)
    if not (options.data / "samullm" / "iteration_latency.parquet").is_file():
        print(f"There are no measurements in {str(options.data)!r}.", file=sys.stderr)
        return 2
    if options.check:
        differences = check(options.data, options.out)
        print("\n".join(differences) or "Every derived profile is as the data give it.")
        return 1 if differences else 0
    print(f"Wrote {len(write_all(options.data, options.out))} files below {options.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
