"""Requests served first come first served: the compiled engine against recorded latencies."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.iteration import expand
from harness.costs.model import PARTS
from harness.costs.profiles import read_profiles
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.rules import continuous_rule
from harness.engines.state import RequestArrays, new_arrays
from harness.fidelity.lines import SIMULATED, Line, sources
from harness.fitting.iteration_rows import measured_sources
from harness.interface.decisions import ContinuousBatching
from harness.paths import PROFILES

Floats = NDArray[np.float64]

SIZE = 1  # tensor parallel


def request_lines(data: Path) -> Iterator[Line]:
    """Mean latencies of every recorded run of the scheduler that the sources name.

    The profile was fitted on the engine's own cost profile, not on these runs.
    """
    about = sources()["requests"]
    folder = data / about["folder"]
    runs = pd.read_csv(folder / "experiments.csv.gz")
    requests = pd.read_parquet(folder / "requests.parquet")
    runs = runs[(runs["scheduler"] == about["scheduler"]) & runs["hardware"].str.contains("A10G")]
    for run in runs.to_dict("records"):
        recorded = requests[requests["experiment"] == run["experiment"]].sort_values("req_time_s")
        served = serve(recorded)
        arrival_s = recorded["req_time_s"].to_numpy(np.float64)
        for what, column, at_s in (
            ("first token", "first_token_latency_s", served.first_token_s),
            ("request", "latency_s", served.finished_s),
        ):
            measured_s = recorded[column].to_numpy(np.float64)
            yield _mean_line(f"mean {what} latency, {run['suite']}", measured_s, at_s - arrival_s)


def serve(recorded: pd.DataFrame) -> RequestArrays:
    """Simulate one GPU serving the recorded requests in the order of their arrival."""
    about = sources()["requests"]
    (source,) = (s for s in measured_sources() if s.folder == about["profile"])
    profile = read_profiles(PROFILES / source.folder)[about["model"], SIZE]
    tokens = int(source.kv_tokens or 0)
    rule = ContinuousBatching(
        chunked_prefill=False,
        pads_prompts=False,
        max_num_seqs=about["max_num_seqs"],
        max_num_batched_tokens=tokens,
        max_padding_tokens=0,
        watermark=0.0,
    )
    arrival_s = recorded["req_time_s"].to_numpy(np.float64)
    prompt, output = (recorded[name].to_numpy(np.int64) for name in ("prompt_len", "output_len"))
    arrays = new_arrays(prompt, output, np.zeros_like(prompt), arrival_s)
    arrays.key[:] = arrival_s
    compiled = CompiledGroups(arrays, 1)
    number = compiled.reserve()
    in_numbers = continuous_rule(rule, capacity_blocks=tokens, block_tokens=1, log_columns=0)
    compiled.open(number, expand(profile, PARTS), in_numbers, 0.0)
    compiled.add_coming(np.arange(len(recorded)), number)
    compiled.run(np.inf)
    return arrays


def _mean_line(what: str, measured_s: Floats, predicted_s: Floats) -> Line:
    """The error of the mean; single requests depend on the rest of the batch."""
    about = sources()["requests"]
    (source,) = (s for s in measured_sources() if s.folder == about["profile"])
    bias = float(np.mean(predicted_s) / np.mean(measured_s) - 1.0)
    return Line(
        source=about["name"],
        gpu=about["gpu"],
        engine=source.engine,
        model=about["model"],
        tensor_parallel=SIZE,
        what=what,
        basis=SIMULATED,
        seen=False,
        rows=len(measured_s),
        median_error=abs(bias),
        p95_error=None,
        bias=bias,
        low_s=float(measured_s.min()),
        high_s=float(measured_s.max()),
        note=about["note"],
    )
