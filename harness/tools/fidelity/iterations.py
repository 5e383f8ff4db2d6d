"""Whole iterations: stored profiles on rows they had not seen, shares of the SMs, the rooflines."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.config.paths import PROFILES
from harness.costs.iteration import MAX_REQUESTS
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.profiles import read_profiles
from harness.costs.roofline import read_calibration
from harness.interface.entities import ServiceId, Work
from harness.tools.fidelity.lines import (
    ACROSS,
    HELD_OUT,
    INNER_SIZES,
    ONE_ENGINE,
    SAME_ROWS,
    SELECTED,
    UNSEEN_ARCHITECTURE,
    Line,
    line,
    sources,
)
from harness.tools.fitting.iteration_rows import (
    ALL_SMS,
    by_pair,
    iteration_rows,
    measured_sources,
    raw_rows,
)
from harness.tools.fitting.operator_rates import from_operators
from harness.tools.fitting.roofline_across import (
    PHASES,
    Compared,
    compare,
    compare_profiles,
    left_out,
)
from harness.tools.fitting.rows import held_out_seconds, predicted_seconds

Floats = NDArray[np.float64]


def logged_lines(data: Path) -> Iterator[Line]:
    """The profiles of the logged engine, by the errors that were found when they were fitted.

    Every fifth number of requests was left out in turn; fitting again would take minutes.
    """
    logged = sources()["logged"]
    profiles = read_profiles(PROFILES / logged["folder"])
    rows = pd.read_parquet(data / logged["file"])
    example = next(iter(profiles.values()))
    about = {"source": logged["name"], "gpu": example.gpu, "engine": example.engine}
    for model, size, pair in by_pair(rows):
        error = profiles[model, size].error
        for phase in PHASES:
            of_phase = pair[pair["is_prefill"] == (phase == "prefill")]
            yield Line(
                **about,
                model=model,
                tensor_parallel=size,
                what=f"{phase} iteration",
                basis=HELD_OUT,
                rows=len(of_phase),
                median_error=error[f"{phase}_median"],
                p95_error=error[f"{phase}_p95"],
                low_s=float(of_phase["iter_s"].min()),
                high_s=float(of_phase["iter_s"].max()),
            )
    # What the roofline said of architectures it was not calibrated on.
    error = read_calibration(PROFILES / logged["folder"]).error
    for what in (*PHASES, "load", "kv_blocks"):
        yield Line(
            **about,
            model="all",
            what=f"{what} iteration" if what in PHASES else what.replace("_", " "),
            basis=UNSEEN_ARCHITECTURE,
            rows=len(profiles),
            median_error=error[f"{what}_median"],
            p95_error=error[f"{what}_p95"],
            note="rows: pairs of model and size",
        )


def measured_lines(data: Path) -> Iterator[Line]:
    """The profiles of `profiles/measured.json`, where there are rows to hold out."""
    for source in measured_sources():
        if not source.folder:
            continue
        profiles = read_profiles(PROFILES / source.folder)
        for model, size, pair in by_pair(iteration_rows(source, data)):
            if seen := source.kind == "coefficients":
                seconds = predicted_seconds(profiles[model, size], pair)
            else:
                kept, seconds = held_out_seconds(pair)
                pair = pair[kept]
            for phase in PHASES:
                chosen = (pair["phase"] == phase).to_numpy()
                if chosen.any():
                    yield line(
                        pair["seconds"].to_numpy()[chosen],
                        seconds[chosen],
                        source=source.family,
                        gpu=source.gpu,
                        engine=source.engine,
                        model=model,
                        tensor_parallel=size,
                        what=f"{phase} iteration",
                        basis=SAME_ROWS if seen else HELD_OUT,
                        seen=seen,
                        note=source.note if seen else INNER_SIZES,
                    )


def share_lines(data: Path) -> Iterator[Line]:
    """One line per model, size and phase over all shares below 1.

    Seconds at all of the SMs are fitted; how much longer a share takes is the median of the very
    rows that it is held against, over lengths of sequence: the line says how far those differ.
    """
    for source in measured_sources():
        if source.folder not in sources()["shares"]:
            continue
        costs = ProfileCosts(
            gpu=source.gpu, profile_dir=source.folder, memory_share=1.0, parts=PARTS
        )
        rows = raw_rows(source, data)
        rows = rows[(rows["sm_percent"] < ALL_SMS) & (rows["batch_size"] <= MAX_REQUESTS)]
        for model, size, pair in by_pair(rows):
            for phase in PHASES:
                predicted_s = [
                    costs.iteration_s(
                        ServiceId(model),
                        size,
                        _work(phase, row["batch_size"], row["seq_len"]),
                        gpu_share=row["sm_percent"] / ALL_SMS,
                    )
                    for row in pair.to_dict("records")
                ]
                yield line(
                    pair[f"{phase}_ms"].to_numpy(np.float64) / 1e3,
                    predicted_s,
                    source=source.family,
                    gpu=source.gpu,
                    engine=source.engine,
                    model=model,
                    tensor_parallel=size,
                    what=f"{phase} on a share of the SMs",
                    basis=SAME_ROWS,
                    seen=True,
                )


def _work(phase: str, requests: int, length: int) -> Work:
    tokens = requests * length
    if phase == "decode":
        return Work(decode_requests=requests, context_tokens=tokens, longest_tokens=length)
    return Work(
        prefill_requests=requests,
        prefill_tokens=tokens,
        prefill_padded_tokens=tokens,
        prefill_attended=float(tokens * length),
    )


def roofline_lines(data: Path) -> Iterator[Line]:
    """The roofline of the logged engine on what others measured; the corrected one on everything.

    Its slowdown comes from other authors only, and the operators it rests on are no rows of these;
    but which operators to adopt was chosen by these errors (`SELECTED`).
    """
    folder = PROFILES / sources()["logged"]["folder"]
    calibration = read_calibration(folder)
    for pair in compare(data, calibration):
        yield _roofline_line(pair, pair.errors({}), ONE_ENGINE)
    operators = from_operators(calibration, data)
    pairs = compare_profiles(read_profiles(folder).values(), operators) + compare(data, operators)
    judged_by = left_out(pairs)
    for pair in pairs:
        yield _roofline_line(pair, pair.errors(judged_by[pair.family]), ACROSS)


def _roofline_line(pair: Compared, errors: Floats, basis: str) -> Line:
    logged = sources()["logged"]
    notes = {source.engine: source.note for source in measured_sources()}
    measured = pair.engine in notes
    of_rows = notes[pair.engine] if measured else "batches of the profile"
    return line(
        pair.measured_s,
        pair.measured_s * (1.0 + errors),
        source=pair.family if measured else logged["name"],
        gpu=pair.gpu,
        engine=pair.engine,
        model=pair.model,
        tensor_parallel=pair.tensor_parallel,
        what=f"{pair.phase} iteration",
        basis=basis,
        note="; ".join(note for note in (of_rows, SELECTED if basis == ACROSS else "") if note),
    )
