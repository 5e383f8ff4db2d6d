"""Generated parts of README.md that come from the figures under results/: one function each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def verify_part(root: Path) -> str:
    """Per queue: how far the simulator is from the closed form."""
    lines = pd.DataFrame(_read(root / "results" / "verify" / "summary.json")["lines"])
    rows = [
        (
            queue,
            len(part),
            f"{part['difference'].abs().max():.3%}",
            f"{part['bound'].max():.1%}",
            "yes" if part["holds"].all() else "**no**",
        )
        for queue, part in lines.groupby("queue", sort=False)
    ]
    return _table(("queue", "lines", "largest difference", "bound", "kept"), rows)


def bench_part(root: Path) -> str:
    """Every figure of the last benchmark, with its machine."""
    figures = _read(root / "results" / "bench" / "summary.json")
    machine = figures.pop("machine")
    rows = [
        (f"`{name}`", f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}")
        for name, value in figures.items()
    ]
    where = f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"
    return f"Measured on {where}.\n\n" + _table(("figure", "measured"), rows)


BASES = (
    "measured profile, row held out",
    "roofline, its authors left out",
    "simulated, profile fitted elsewhere",
    "its authors' own planner",
)
"""What a reader needs first; results/fidelity/summary.json has every line."""


def fidelity_part(root: Path) -> str:
    """Per source, GPU and phase: rows, and the median and worst of the lines' median errors."""
    lines = pd.DataFrame(_read(root / "results" / "fidelity" / "summary.json")["lines"])
    kept = lines[lines["basis"].isin(BASES)].dropna(subset=["median_error"])
    rows = [
        (
            *key,
            len(part),
            f"{part['rows'].sum():,.0f}",
            f"{part['median_error'].median():.1%}",
            f"{part['median_error'].max():.1%}",
            f"{part['p95_error'].median():.1%}" if part["p95_error"].notna().any() else "-",
        )
        for key, part in kept.groupby(["basis", "source", "gpu", "what"], sort=True)
    ]
    header = (
        "basis",
        "source",
        "GPU",
        "what",
        "lines",
        "rows",
        "median error",
        "worst line",
        "P95",
    )
    return _table(header, rows)


def ranges_part(root: Path) -> str:
    """Per scenario that sweeps what a paper leaves open: the range of each comparison."""
    rows = [
        (
            f"`{path.stem}`",
            e["system"],
            e["axis"],
            e["value"],
            e["count"],
            f"{e['low']:.2f} to {e['high']:.2f}",
        )
        for path in sorted((root / "results" / "ranges").glob("*.json"))
        for e in _read(path)
    ]
    header = (
        "scenario",
        "system",
        "open choice",
        "value",
        "runs",
        "end to end over the reference's",
    )
    return _table(header, rows)
