"""SSJF's Table 1 beside ours: `python -m plots.ssjf_table1`.

Paper      Qiu et al., arXiv 2404.08509, Table 1: milliseconds of "a query with a sequence length
           of 512" on one V100-16GB

The paper does not say whether 512 tokens are read or written. Both readings are computed by the
roofline (harness/fitting/query_latency.py); the printed sizes (5.0 GB for 1.3 B parameters) suggest
weights of four bytes, ours have two.
"""

import json
import sys

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.costs.model_facts import model_facts
from harness.fitting.query_latency import FILE
from harness.paths import PROFILES

PAPER = {
    "OPT-1.3b": ("opt-1.3b", 1243.0),
    "OPT-2.7b": ("opt-2.7b", 2351.0),
    "GPT2-large": ("gpt2-large", 832.0),
    "GPT2-xl": ("gpt2-xl", 1602.0),
    "CodeGen-350m": ("codegen-350M-mono", 357.0),
    "CodeGen-2b": ("codegen-2B-mono", 2507.0),
    "Bloom-1b1": ("bloom-1b1", 523.0),
    "Bloom-3b": ("bloom-3b", 1293.0),
    "Switch-base-16": ("switch-base-16", 348.0),
    "Switch-base-32": ("switch-base-32", 402.0),
}
"""Our name of each model of Table 1, and its printed milliseconds."""


def latencies() -> pd.DataFrame:
    """Milliseconds of each model: printed, of one pass over the tokens, of generating them.

    `prompt_ratio` and `generate_ratio` are ours over the paper's.
    """
    content = json.loads((PROFILES / "shapes" / FILE).read_text(encoding="utf-8"))
    ours = pd.DataFrame(content["rows"]).set_index("model")
    rows = pd.DataFrame(
        {
            "paper": name,
            "model": model,
            "parameters": model_facts(model).parameters,
            "paper_ms": paper_ms,
            "prompt_ms": float(ours["prompt_ms"][model]),
            "generate_ms": float(ours["generate_ms"][model]),
        }
        for name, (model, paper_ms) in PAPER.items()
    )
    for reading in ("prompt", "generate"):
        rows[f"{reading}_ratio"] = rows[f"{reading}_ms"] / rows["paper_ms"]
    return rows


def main() -> int:
    """Print the table; returns the exit status."""
    shown = Table("model", "paper ms", "pass over 512, ms", "ratio", "generating 512, ms", "ratio")
    for row in latencies().to_dict("records"):
        shown.add_row(
            row["paper"],
            f"{row['paper_ms']:.0f}",
            f"{row['prompt_ms']:.1f}",
            f"{row['prompt_ratio']:.3f}",
            f"{row['generate_ms']:.0f}",
            f"{row['generate_ratio']:.2f}",
        )
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
