"""Run folders, as far as a figure reads them."""

from pathlib import Path

import pandas as pd

from harness.runs.cells import Cell, compute
from harness.runs.record import is_finished, write_run
from harness.runs.sweep import keep


def run_cell(cell: Cell) -> None:
    """Serve the cell's workload and write its folder; a finished one is kept."""
    if not is_finished(cell.folder):
        keep(cell, compute(cell))


def write_chain_run(folder: Path) -> Path:
    """Summaries on one GPU, then on two, beside an ensemble that ends at 4 s."""
    folder.mkdir(parents=True)
    names = ["vicuna-13b-v1.5~summary@0#1", "vicuna-13b-v1.5~summary@0#2", "koala@1#1"]
    names.append("vicuna-13b-v1.5~summary@1#2")
    pd.DataFrame(
        {
            "gpu": [0, 0, 1, 1, 0, 0, 1, 1],
            "group": [
                names[0],
                names[0],
                names[2],
                names[2],
                names[1],
                names[1],
                names[3],
                names[3],
            ],
            "use": ["loading", "busy"] * 4,
            "start_s": [0.0, 1.0, 0.0, 2.0, 4.0, 5.0, 4.0, 5.0],
            "end_s": [1.0, 4.0, 2.0, 4.0, 5.0, 9.0, 5.0, 8.0],
        }
    ).to_parquet(folder / "gpu.parquet")
    pd.DataFrame(
        {
            "service": ["vicuna-13b-v1.5~summary"] * 3 + ["koala"],
            "app": [0, 0, 1, 2],
            "finished_s": [3.0, 9.0, 8.0, 4.0],
            "output_tokens": [10, 20, 10, 5],
        }
    ).to_parquet(folder / "requests.parquet")
    return folder


def write_two_requests(folder: Path, *, policy: str = "<i>mine</i>") -> Path:
    """A whole run of two requests, whose texts would end a script and begin an element."""
    write_run(
        folder,
        config={"name": "</script><b>", "seed": 0, "chosen": {"policy": policy}},
        provenance={
            "code": "c",
            "started": "2024-01-01T00:00:00",
            "engine": "simulated",
            "costs": {"profile": "p", "fit_error": 0.1, "source": {"<img> tp1": "measured"}},
        },
        requests=pd.DataFrame(
            {
                "request": [0, 1],
                "service": "<img src=x onerror=alert(1)>",
                "arrival_s": [1.0, 2.0],
                "finished_s": [4.0, 4.0],
                "waiting_s": [0.5, 0.0],
                "preempted_s": 0.0,
                "prefill_s": 0.5,
                "gpu_s": 2.0,
                "paused_s": [0.5, 0.0],
                "prompt_tokens": 10,
                "output_tokens": [7, 5],
                "preemptions": 0,
            }
        ),
        gpu=pd.DataFrame({"gpu": [0], "use": "busy", "start_s": 0.0, "end_s": 4.0}),
        iterations=None,
        summary={"requests": 2.0, "jct_s_mean": 2.5, "slo_attainment": None},
    )
    return folder
