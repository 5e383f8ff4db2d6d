"""Cells that read prompts from a file."""

from pathlib import Path

from harness.runs.cells import Cell
from harness.tests.support.configured import first_cell_of

SMALL = ("workload.requests=5", "policy=fcfs_continuous", "system=fixed")
"""A run of no time."""

ASKING = (
    "workload=mixinstruct",
    "workload.models=[chatglm3-6b]",
    "workload.requests=5",
    "policy=vllm_0_3",
    "system=fixed",
)
"""A run whose `workload.source` may be a file."""


def write_prompts(path: Path) -> Path:
    """Prompts of 10 to 29 tokens."""
    path.write_text("".join(f'{{"prompt_tokens": {n}}}\n' for n in range(10, 30)))
    return path


def asking(prompts: Path, *words: str) -> Cell:
    """A cell that reads a file of prompts."""
    return first_cell_of(*ASKING, f"workload.source={prompts}", *words)
