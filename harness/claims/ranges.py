"""How far a comparison moves with what a paper leaves open.

    python -m harness.claims.ranges SCENARIO

Reads the run folders of a scenario that sweeps its open constants, and writes <scenario>.json below
results/local/ranges, or with --publish results/ranges: for every system but the reference, the
smallest and largest ratio of its end-to-end time to the reference's, over everything and for every
value of every axis.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from harness.paths import ROOT
from harness.runs import published
from harness.runs.record import current, read_summaries
from harness.runs.table import column_of

FIGURE = "end_to_end_s"


def ranges(rows: pd.DataFrame, scenario: Mapping[str, Any]) -> list[dict[str, object]]:
    """One entry per system, axis and value: count, smallest and largest ratio to the reference.

    `scenario` is the YAML with its `matrix` and `compare`. ValueError where runs are missing.
    """
    axis, reference = column_of(scenario["compare"]["axis"]), scenario["compare"]["reference"]
    others = [column_of(name) for name in scenario["matrix"] if column_of(name) != axis]
    times = rows.pivot_table(index=others, columns=axis, values=FIGURE)
    cells = 1
    for name in scenario["matrix"]:
        cells *= len(scenario["matrix"][name])
    if times.isna().to_numpy().any() or times.size != cells:
        there = int(times.notna().to_numpy().sum())
        raise ValueError(f"{there} of {cells} runs are there; run it first")
    ratios = times.div(times[reference], axis=0).drop(columns=reference).reset_index()
    found: list[dict[str, object]] = []
    for system in (c for c in ratios.columns if c not in others):
        found.append(_entry(system, "all", "", ratios[system]))
        for column in others:
            if ratios[column].nunique() > 1:
                name = column.removeprefix("config.")
                parts = ratios.groupby(column)
                found += [_entry(system, name, value, part[system]) for value, part in parts]
    return found


def _entry(
    system: object, axis: str, value: object, ratios: "pd.Series[float]"
) -> dict[str, object]:
    low, high = float(ratios.min()), float(ratios.max())
    return {
        "system": str(system),
        "axis": axis,
        "value": str(value),
        "count": len(ratios),
        "low": round(low, 4),
        "high": round(high, 4),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write the ranges; the exit status."""
    parser = argparse.ArgumentParser(description="Ranges over what a paper leaves open.")
    parser.add_argument("scenario", help="a file of scenarios/scenario, without .yaml")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    try:
        path = ROOT / "scenarios" / "scenario" / f"{given.scenario}.yaml"
        if not path.is_file():
            raise ValueError(f"there is no scenario {given.scenario}")
        scenario = yaml.safe_load(path.read_text(encoding="utf-8"))
        rows = current(read_summaries(given.results / scenario["name"]))
        if rows.empty:
            raise ValueError(f"no run of {given.scenario} is there; run it first")
        found = ranges(rows, scenario)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _print(found)
    folder = published.place("ranges", publish=given.publish, results=given.results)
    published.write(folder / f"{given.scenario}.json", json.dumps(found, indent=1) + "\n")
    return 0


def _print(found: Sequence[Mapping[str, object]]) -> None:
    table = Table(title="end-to-end time over the reference's, smallest to largest (simulated)")
    for name in ("system", "axis", "value", "runs", "range"):
        table.add_column(name)
    for entry in found:
        span = f"{entry['low']:.2f} to {entry['high']:.2f}"
        table.add_row(*(str(entry[k]) for k in ("system", "axis", "value", "count")), span)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
