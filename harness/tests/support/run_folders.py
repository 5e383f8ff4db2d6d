"""Runs and their folders, as far as a figure reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from harness.runs.cells import Cell, Run, compute
from harness.runs.record import is_finished, write_run
from harness.runs.sweep import keep


def run_cell(cell: Cell) -> None:
    """Serve the cell's workload and write its folder; a finished one is kept."""
    if not is_finished(cell.folder):
        keep(cell, compute(cell))


FACTS: Mapping[str, Any] = {
    **{"cut_off_s": None, "gpus": 1, "groups": 1, "is_replay": False, "planned_s": None},
    **{"loads_s": [], "decisions": {}, "timed_iterations": 0, "counts": {}, "gaps": {}},
    **{"kv_tokens": {}, "outside_profile_share": None},
}
"""Of a run of which nothing else is known."""
PROVENANCE = {"code": "c", "started": "2026-01-01T00:00:00+00:00", "engine": "simulated"}


def run_with(
    figures: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, object] | None = None,
    facts: Mapping[str, Any] | None = None,
    provenance: Mapping[str, object] | None = None,
    **tables: pd.DataFrame,
) -> Run:
    """A run that has these figures, or tables that figures are computed from."""
    return Run(
        config={"seed": 0} if config is None else config,
        facts={**FACTS, **(facts or {})},
        provenance={**PROVENANCE, **(provenance or {})},
        tables={
            "requests": pd.DataFrame({"id": [0]}),
            "gpu": pd.DataFrame({"gpu": [0]}),
            **tables,
        },
        figures=figures or {},
    )


def chain_run(planned_s: float = 0.0) -> Run:
    """Summaries on one GPU, then on two, beside an ensemble that ends at 4 s."""
    names = ["vicuna-13b-v1.5~summary@0#1", "vicuna-13b-v1.5~summary@0#2", "koala@1#1"]
    names.append("vicuna-13b-v1.5~summary@1#2")
    gpu = pd.DataFrame(
        {
            "gpu": [0, 0, 1, 1, 0, 0, 1, 1],
            "group": [names[at] for at in (0, 0, 2, 2, 1, 1, 3, 3)],
            "use": ["loading", "busy"] * 4,
            "start_s": [0.0, 1.0, 0.0, 2.0, 4.0, 5.0, 4.0, 5.0],
            "end_s": [1.0, 4.0, 2.0, 4.0, 5.0, 9.0, 5.0, 8.0],
        }
    )
    requests = pd.DataFrame(
        {
            "service": ["vicuna-13b-v1.5~summary"] * 3 + ["koala"],
            "app": [0, 0, 1, 2],
            "finished_s": [3.0, 9.0, 8.0, 4.0],
            "output_tokens": [10, 20, 10, 5],
        }
    )
    return run_with(facts={"planned_s": planned_s}, gpu=gpu, requests=requests)


def write_two_requests(folder: Path, *, policy: str = "<i>mine</i>") -> Path:
    """A whole run of two requests, whose texts would end a script and begin an element."""
    costs = {"profile": "p", "fit_error": 0.1, "source": {"<img> tp1": "measured"}}
    run = run_with(
        {"requests": 2.0, "jct_s_mean": 2.5, "slo_attainment": None},
        config={"name": "</script><b>", "seed": 0, "chosen": {"policy": policy}},
        provenance={"started": "2024-01-01T00:00:00", "costs": costs},
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
    )
    write_run(folder, run)
    return folder
