"""Makes the stored runs of applications: units, calls, and seconds outside any LLM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

Json = dict[str, Any]

SOURCE = "artefact of arXiv 2506.14851 @3894339, Datasets/{file}: numbers of 70% of the runs"
LLM = "llm"
TOKENS = ("prompt_tokens", "output_tokens")
APPLICATIONS = {
    "DM": ("second", "document merging, graph of thoughts", "got/doc_merge/atry_new.json"),
    "MRS": (
        "second",
        "map-reduce summarization in chunks of about 430 tokens",
        "langchain/map_reduce/atry_new.json",
    ),
    "EV": (
        "main",
        "equation verification, FacTool math",
        "factool/math/{token,time,task_token}.json",
    ),
    "FEV": (
        "main",
        "fact extraction and verification, ReAct on FEVER",
        "react/fever/{token,time,task_token}.json",
    ),
    "CC": (
        "main",
        "code checking, FacTool on HumanEval",
        "factool/code/record.json",
    ),
    "ALFWI": ("main", "ALFWorld interaction, ReAct", "react/alfw/{atry,ALFW}.json"),
    "CG": (
        "main",
        "code generation with execution feedback on HumanEval",
        "code_feedback/{HumanEval,record}.json",
    ),
    "KBQAV": (
        "usage256",
        "knowledge-based query answering verification, FacTool KBQA",
        "factool/kbqa/KBQA.json",
    ),
    "PE": (
        "chain130",
        "plan and execution, HuggingGPT; prompt tokens counted, not recorded",
        "hugginggpt/CHAIN.json",
    ),
}
"""By name: which recording, what the application does, and the file it was recorded in."""

MADE_UP: Json = {
    "kind": "LLM reasoning with self-consistency: several answers to one question, then a vote "
    "over them. No run of it is recorded and no length is published: all values here are chosen",
    "source": "structure: arXiv 2506.14851 figure 1 (c); lengths: chosen, a question of GSM8K "
    "with examples, answers of a chain of thought",
    "first": "reason",
    "units": [
        {
            "name": "reason",
            "service": LLM,
            "prompt_tokens": [600, 700, 800, 900, 1000],
            "output_tokens": [100, 150, 200, 250, 300, 400],
            "calls": [5, 10, 20],
            "then": {"vote": 1.0},
        },
        {
            "name": "vote",
            "service": LLM,
            "prompt_tokens": [1500, 2000, 2500],
            "output_tokens": [20, 30, 40],
            "then": {"end": 1.0},
        },
    ],
}


def application_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every application."""
    stages = pd.read_csv(data / "hermes_apps" / "stages.csv.gz")
    for name, (recording, what, file) in APPLICATIONS.items():
        rows = stages[(stages["app"] == name) & (stages["recording"] == recording)]
        content = {"kind": f"recorded: {what}", "source": SOURCE.replace("{file}", file)}
        yield f"{name}.json", content | recorded(rows)
    yield "LLMR.json", MADE_UP


def recorded(rows: pd.DataFrame) -> Json:
    """Runs as lists of steps, a step as runs of units that start together.

    A unit's run is its place in `units`, and the prompt and answer tokens of its calls, or the
    seconds of its calls outside any LLM. An execution whose seconds were lost has the median.
    """
    units = list(dict.fromkeys(rows["unit"]))
    backend = dict(zip(rows["unit"], rows["backend"], strict=True))
    outside_s = rows["external_exec_s"].fillna(rows["external_exec_s"].median())
    columns = (rows[name].tolist() for name in ("run", "step", "unit", *TOKENS))
    runs: dict[int, dict[int, dict[str, list[Any]]]] = {}
    for run, step, unit, prompt, output, seconds in zip(*columns, outside_s, strict=True):
        is_llm = backend[unit] == "none"
        call = (int(prompt), int(output)) if is_llm else (float(f"{seconds:.4g}"),)
        runs.setdefault(run, {}).setdefault(step, {}).setdefault(unit, []).append(call)
    return {
        "units": [
            {"name": unit, "backend": LLM if backend[unit] == "none" else backend[unit]}
            for unit in units
        ],
        "runs": [
            [
                [
                    [units.index(unit), *map(list, zip(*calls, strict=True))]
                    for unit, calls in steps[number].items()
                ]
                for number in sorted(steps)
            ]
            for _, steps in sorted(runs.items())
        ],
    }
