"""What SSJF's figures show: throughput of one run (its folder), and its Table 1 beside ours.

Paper      Qiu et al., arXiv 2404.08509, figures 6 to 9; Table 1: milliseconds of "a query with a
           sequence length of 512" on one V100-16GB

The paper does not say whether 512 tokens are read or written. Both readings are computed by the
roofline (harness/fitting/query_latency.py); by the printed sizes (5.0 GB for 1.3 B parameters) its
weights have four bytes, ours have two.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.claims.derived.columns import table_of
from harness.costs.model_facts import model_facts
from harness.fitting.query_latency import FILE
from harness.paths import PROFILES
from harness.runs.stats import Floats

QUARTER = 0.25  # of the requests: when the authors' program reads throughput
MODELS = {
    "OPT-1.3b": "opt-1.3b",
    "OPT-2.7b": "opt-2.7b",
    "GPT2-large": "gpt2-large",
    "GPT2-xl": "gpt2-xl",
    "CodeGen-350m": "codegen-350M-mono",
    "CodeGen-2b": "codegen-2B-mono",
    "Bloom-1b1": "bloom-1b1",
    "Bloom-3b": "bloom-3b",
    "Switch-base-16": "switch-base-16",
    "Switch-base-32": "switch-base-32",
}
"""Our name of each model of Table 1."""


def answered_per_s(folder: Path) -> float:
    """Requests answered per second while requests come in, from the first arrival to the last."""
    arrival_s, finished_s = _arrived_and_finished_s(folder)
    first_s, last_s = arrival_s.min(), arrival_s.max()
    return float((finished_s <= last_s).sum() / (last_s - first_s))


def quarter_per_s(folder: Path) -> float:
    """Requests answered per second when a quarter of them has been, as the program reads it.

    Seconds count from the first arrival.
    """
    arrival_s, finished_s = _arrived_and_finished_s(folder)
    ends_s = np.sort(np.where(np.isnan(finished_s), np.inf, finished_s)) - arrival_s.min()
    at_s = float(np.quantile(ends_s, QUARTER))
    return float(np.searchsorted(ends_s, at_s, side="right") / at_s)


def whole_per_s(folder: Path) -> float:
    """Requests answered per second from the first arrival to the last answer."""
    arrival_s, finished_s = _arrived_and_finished_s(folder)
    answered = finished_s[~np.isnan(finished_s)]
    return float(len(answered) / (answered.max() - arrival_s.min())) if len(answered) else 0.0


@cache
def _arrived_and_finished_s(folder: Path) -> tuple[Floats, Floats]:
    """When each request came and was answered, NaN if never. There are 10,000 runs to read."""
    names = ["arrival_s", "finished_s"]
    table = table_of(folder / "requests.parquet", names)
    arrival_s, finished_s = (
        table[name].to_numpy().astype(np.float64, copy=False) for name in names
    )
    return arrival_s, finished_s


def latencies(claims: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Milliseconds of each model: printed, of one pass over the tokens, of generating them.

    `claims` by id, of which one has the printed ones. `prompt_ratio` and `generate_ratio` are ours
    over the paper's.
    """
    content = json.loads((PROFILES / "derived" / FILE).read_text(encoding="utf-8"))
    ours = pd.DataFrame(content["rows"]).set_index("model")
    rows = pd.DataFrame(
        {
            "paper": name,
            "model": MODELS[name],
            "parameters": model_facts(MODELS[name]).parameters,
            "paper_ms": float(paper_ms),
            "prompt_ms": float(ours["prompt_ms"][MODELS[name]]),
            "generate_ms": float(ours["generate_ms"][MODELS[name]]),
        }
        for name, paper_ms in claims["ssjf.tab1.latency"]["paper"].items()
    )
    for reading in ("prompt", "generate"):
        rows[f"{reading}_ratio"] = rows[f"{reading}_ms"] / rows["paper_ms"]
    return rows
