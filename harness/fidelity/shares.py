"""Iterations on a share of the SMs: the cost model against measurements."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.costs.iteration import MAX_REQUESTS
from harness.costs.model import PARTS, ProfileCosts
from harness.fidelity.lines import SAME_ROWS, Line, line, sources
from harness.fitting.iteration_rows import ALL_SMS, by_pair, measured_sources, raw_rows
from harness.fitting.roofline_across import PHASES
from harness.interface.entities import ServiceId, Work


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
