"""Generated parts of the pages on servers of today: errors beside measured ones, and terms."""

from collections.abc import Hashable, Mapping
from pathlib import Path

import pandas as pd

from harness.costs.engine_kinds import ENGINES, engine_kind
from harness.costs.gpu_facts import gpu_facts
from harness.costs.kernels import read_table, table_path, tables
from harness.report.markdown import table

FIGURES = ("tpot", "ttft")
LEFT_OUT = "left out"
_SCALES = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"))


def served_part(root: Path) -> str:
    """Every line of results/fidelity/served.csv, and how many rows were left out why."""
    lines = _lines(root)
    shown = lines[lines["group"] != LEFT_OUT]
    cells = [
        (row["basis"], row["group"], row["value"] or "-", row["settings"], *_errors(row))
        for row in shown.to_dict("records")
    ]
    names = [f"{figure.upper()} {name}" for figure in FIGURES for name in ("median", "bias", "P90")]
    out = [
        f"{row['settings']} rows: {row['value']}"
        for row in lines[lines["group"] == LEFT_OUT].to_dict("records")
    ]
    return (
        table(("terms", "group", "of it", "settings", *names), cells)
        + f"\n\nLeft out, decided before anything was simulated: {'; '.join(out)}."
    )


def served_headline(root: Path) -> str:
    """A sentence on the settings that no fit had seen."""
    lines = _lines(root)
    row = lines[(lines["group"] == "all")].iloc[0]
    gpus = ", ".join(lines[(lines["group"] == "gpu")]["value"].unique())
    said = [
        f"mean {figure.upper()} {row[f'{figure}_median']:.1%} (bias {row[f'{figure}_bias']:+.1%}, "
        f"P90 {row[f'{figure}_p90']:.0%})"
        for figure in FIGURES
    ]
    return (
        f"Simulated against *measured* servers of vLLM 0.11 to 0.19 on {gpus}, {row['settings']} "
        f"settings of closed loops that the terms were not fitted to, median error: "
        f"{', '.join(said)}."
    )


def engines_part(_: Path) -> str:
    """Every term of every kind of engine, and the GPUs with tables of kernels."""
    rows = []
    for path in sorted(ENGINES.glob("*.json")):
        kind = engine_kind(path.stem)
        rows += [
            (
                f"`{kind.name}`",
                f"`{name}`",
                _number(term.value, term.unit),
                term.mechanism,
                term.data,
            )
            for name, term in sorted(kind.terms.items())
        ] or [(f"`{kind.name}`", "-", "-", kind.about, "profiles/<folder>, profiles/roofline")]
    sources = []
    for gpu in tables():
        if (table_file := table_path(gpu_facts(gpu))) is not None:
            size = f"{table_file.stat().st_size / 1e3:.0f} kB"
            sources.append((gpu, size, read_table(table_file).source))
    header = ("engine", "term", "value", "what takes the time", "where the number comes from")
    return table(header, rows) + "\n\n" + table(("GPU", "table of kernels", "source"), sources)


def _lines(root: Path) -> pd.DataFrame:
    path = root / "results" / "fidelity" / "served.csv"
    lines = pd.read_csv(path)
    texts = ["basis", "group", "value"]
    return lines.assign(**{name: lines[name].fillna("") for name in texts})


def _errors(row: Mapping[Hashable, object]) -> list[str]:
    return [
        f"{100 * float(str(row[f'{figure}_{name}'])):{'+' if name == 'bias' else ''}.1f}%"
        for figure in FIGURES
        for name in ("median", "bias", "p90")
    ]


def _number(value: float, unit: str) -> str:
    """A term with a prefix that fits, and what it is per."""
    if not unit.startswith("s "):
        return f"{value:.4g} ({unit})"
    scale, name = next((by, name) for below, by, name in _SCALES if value < below)
    return f"{value * scale:.4g} {name}{unit.removeprefix('s')}"
