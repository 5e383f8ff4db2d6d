"""SSJF's Table 1 beside ours: both readings of a query of 512 tokens, and their ratio to it."""

from rich.table import Table

from plots.inputs import Inputs


def plot(inputs: Inputs) -> Table:
    """The table, one line for each model."""
    shown = Table("model", "paper ms", "pass over 512, ms", "ratio", "generating 512, ms", "ratio")
    for row in inputs.tables["latencies"].to_dict("records"):
        shown.add_row(
            row["paper"],
            f"{row['paper_ms']:.0f}",
            f"{row['prompt_ms']:.1f}",
            f"{row['prompt_ratio']:.3f}",
            f"{row['generate_ms']:.0f}",
            f"{row['generate_ratio']:.2f}",
        )
    return shown
