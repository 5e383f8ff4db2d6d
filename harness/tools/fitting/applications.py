"""Makes the stored runs of applications: units, calls, and seconds outside any LLM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from harness.tools.fitting.stored import Json, rounded

SOURCE = "artefact of arXiv 2506.14851 @3894339, Datasets/{file}: numbers of 70% of the runs"
LLM = "llm"
TOKENS = ("prompt_tokens", "output_tokens")
TABLES = "{token,time,task_token}.json"
APPLICATIONS = {
    "DM": ("second", "got/doc_merge/atry_new.json", "document merging, graph of thoughts"),
    "MRS": (
        *("second", "langchain/map_reduce/atry_new.json"),
        "map-reduce summarization in chunks of about 430 tokens",
    ),
    "EV": ("main", f"factool/math/{TABLES}", "equation verification, FacTool math"),
    "FEV": ("main", f"react/fever/{TABLES}", "fact extraction and verification, ReAct on FEVER"),
    "CC": ("main", "factool/code/record.json", "code checking, FacTool on HumanEval"),
    "ALFWI": ("main", "react/alfw/{atry,ALFW}.json", "ALFWorld interaction, ReAct"),
    "CG": (
        *("main", "code_feedback/{HumanEval,record}.json"),
        "code generation with execution feedback on HumanEval",
    ),
    "KBQAV": (
        *("usage256", "factool/kbqa/KBQA.json"),
        "knowledge-based query answering verification, FacTool KBQA",
    ),
    "PE": (
        *("chain130", "hugginggpt/CHAIN.json"),
        "plan and execution, HuggingGPT; prompt tokens counted, not recorded",
    ),
}
"""By name: which recording, the file it was recorded in, and what the application does."""


def application_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every recorded application."""
    stages = pd.read_csv(data / "hermes_apps" / "stages.csv.gz")
    for name, (recording, file, what) in APPLICATIONS.items():
        rows = stages[(stages["app"] == name) & (stages["recording"] == recording)]
        content = {"kind": f"recorded: {what}", "source": SOURCE.replace("{file}", file)}
        yield f"{name}.json", content | recorded(rows)


def recorded(rows: pd.DataFrame) -> Json:
    """Runs as lists of steps, a step as runs of units that start together.

    A unit's run is its place in `units`, and the prompt and answer tokens of its calls, or the
    seconds of its calls outside any LLM. An execution whose seconds were lost has the median.
    """
    units = list(rows["unit"].unique())
    backends = dict(zip(rows["unit"], rows["backend"].replace("none", LLM), strict=True))
    outside_s = rows["external_exec_s"].fillna(rows["external_exec_s"].median())
    columns = (rows[name].tolist() for name in ("run", "step", "unit", *TOKENS))
    runs: dict[int, dict[int, dict[str, list[Any]]]] = {}
    for run, step, unit, prompt, output, seconds in zip(*columns, outside_s, strict=True):
        call = (int(prompt), int(output)) if backends[unit] == LLM else (rounded(seconds, 4),)
        runs.setdefault(run, {}).setdefault(step, {}).setdefault(unit, []).append(call)
    return {
        "units": [{"name": unit, "backend": backends[unit]} for unit in units],
        "runs": [
            [
                [
                    [units.index(u), *map(list, zip(*calls, strict=True))]
                    for u, calls in step.items()
                ]
                for _, step in sorted(steps.items())
            ]
            for _, steps in sorted(runs.items())
        ],
    }
