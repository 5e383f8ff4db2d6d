"""How far off the seconds of the simulator are: `python -m harness.tools.fidelity --data FOLDER`.

Writes results/local/fidelity/summary.json, or with --publish the one that the pages show.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.runs import published
from harness.tools.fidelity.applications import application_lines, request_lines
from harness.tools.fidelity.lines import (
    Line,
    logged_lines,
    measured_lines,
    operator_lines,
    roofline_lines,
    share_lines,
)
from harness.tools.fitting.stored import rounded

PRINTED = ["source", "gpu", "engine", "what", "basis", "seen"]
"""What lines must share to be printed as one."""


def all_lines(data: Path) -> Iterator[Line]:
    """Every line there are measurements for."""
    measured = (logged_lines, measured_lines, roofline_lines, share_lines, operator_lines)
    for lines in (*measured, request_lines, application_lines):
        yield from lines(data)


def as_json(lines: Iterable[Line]) -> str:
    """The file: one object per line, numbers with four significant digits."""
    content = (json.dumps(rounded(asdict(entry), 4)) for entry in lines)
    return '{"lines": [\n' + ",\n".join(content) + "\n]}\n"


def pooled(lines: Iterable[Line]) -> pd.DataFrame:
    """Lines that differ in model and size only, as one: medians of their errors, all their rows."""
    return (
        pd.DataFrame(map(asdict, lines))
        .groupby(PRINTED, sort=False, as_index=False)
        .agg(
            pairs=("rows", "size"),
            rows=("rows", "sum"),
            median_error=("median_error", "median"),
            worst_median=("median_error", "max"),
            p95_error=("p95_error", "median"),
            bias=("bias", "median"),
            low_s=("low_s", "min"),
            high_s=("high_s", "max"),
        )
    )


def print_table(lines: list[Line]) -> None:
    """The pooled lines, and the notes below."""
    table = Table("source", "GPU", "engine", "what", "predicted by", "saw the rows")
    table.title = "predicted against measured seconds, relative errors"
    for name in ("lines", "rows", "median", "worst", "P95", "bias", "measured s"):
        table.add_column(name, justify="right")
    for row in pooled(lines).to_dict("records"):
        table.add_row(
            *(row[name] for name in PRINTED[:-1]),
            "yes" if row["seen"] else "no",
            str(row["pairs"]),
            f"{row['rows']:,}",
            *(_percent(row[name]) for name in ("median_error", "worst_median", "p95_error")),
            _percent(row["bias"], "+"),
            _range(row["low_s"], row["high_s"]),
        )
    console = Console(width=None if Console().is_terminal else 220)
    console.print(table)
    console.print(
        "median, P95, bias: median over the lines (models, sizes); worst: their largest median"
    )
    for note in dict.fromkeys(f"{entry.source}: {entry.note}" for entry in lines if entry.note):
        console.print(note)


def _percent(value: float, sign: str = "") -> str:
    return "-" if np.isnan(value) else f"{100 * value:{sign}.1f}%"


def _range(low_s: float, high_s: float) -> str:
    return "-" if np.isnan(low_s) else f"{low_s:.3g}-{high_s:.4g}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table and write `summary.json`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.tools.fidelity", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    published.add_publish(parser)
    options = parser.parse_args(arguments)
    try:
        lines = list(all_lines(options.data))
    except FileNotFoundError as error:
        said = f"Not all measurements are in {str(options.data)!r}: {error.filename} is missing."
        print(said, file=sys.stderr)
        return 2
    print_table(lines)
    folder = published.place("fidelity", publish=options.publish)
    published.write(folder / "summary.json", as_json(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
