"""Workloads of a file of requests with their times."""

from pathlib import Path
from typing import Any

from harness.workloads.recorded import Trace

MODEL = "vicuna-13b-v1.5"
HEADER = "arrival_s,prompt_tokens,output_tokens"


def trace(file: Path, **changes: Any) -> Trace:
    """The workload of a file, with settings that change nothing unless they are given."""
    settings: dict[str, Any] = {
        "columns": None,
        "arrivals": None,
        "model": MODEL,
        "services": {},
        "requests": None,
        "window": None,
        "rate_scale": 1.0,
        "max_output_tokens": None,
        "too_long": "refuse",
        "no_output": "refuse",
        "from_first": False,
        "requests_from": "first",
        "starts_s": 0.0,
    }
    return Trace(file=str(file), **{**settings, **changes})
