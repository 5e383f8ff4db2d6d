"""Measured runs of a scenario beside simulated ones: `python -m harness.fidelity_runs SCENARIO`.

For scenarios with engines on an axis. Prints, and writes results/fidelity_runs/<scenario>.json: for
every system the figures on real engines and on the simulator, means over seeds, and the error.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.record import ROOT, current, machine, read_summaries

NAME, SEED = "config.system.name", "config.seed"
FIGURES = ("inference_s", "jct_s_mean", "gpu_busy_s", "gpu_loading_s", "gpu_idle_s")


def compared(rows: pd.DataFrame) -> list[dict[str, object]]:
    """One entry per system and figure.

    Raises ValueError where a system was not run on both, with the same seeds.
    """
    is_measured = rows["engine"].str.startswith("measured")
    found: list[dict[str, object]] = []
    for system, part in rows.groupby(NAME, sort=True):
        real, simulated = part[is_measured[part.index]], part[~is_measured[part.index]]
        seeds = sorted(real[SEED])
        if not seeds or seeds != sorted(simulated[SEED]):
            raise ValueError(
                f"{system} has {len(real)} measured and {len(simulated)} simulated runs"
            )
        for figure in FIGURES:
            ours, truth = float(simulated[figure].mean()), float(real[figure].mean())
            found.append(
                {
                    "system": str(system),
                    "seeds": len(seeds),
                    "figure": figure,
                    "measured": round(truth, 3),
                    "simulated": round(ours, 3),
                    "error": round(ours / truth - 1.0, 4) if truth else None,
                }
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write the comparison; the exit status."""
    parser = argparse.ArgumentParser(description="Measured runs beside simulated ones.")
    parser.add_argument("scenario", help="a folder of results")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    given = parser.parse_args(arguments)
    try:
        rows = current(read_summaries(given.results / given.scenario))
        if rows.empty:
            raise ValueError(f"no run of {given.scenario} is there; run it first")
        found = compared(rows)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    engines = sorted(e for e in set(rows["engine"]) if e.startswith("measured"))
    content = {"engine": "; ".join(engines), "machine": machine(), "rows": found}
    folder = given.results / "fidelity_runs"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1) + "\n"
    (folder / f"{given.scenario}.json").write_text(text, encoding="utf-8")
    table = Table(title=f"{content['engine']}, beside simulated; means over seeds")
    for name in ("system", "seeds", "figure", "measured", "simulated", "error"):
        table.add_column(name, justify="left" if name in ("system", "figure") else "right")
    for row in found:
        off = "-" if row["error"] is None else f"{row['error']:+.1%}"
        cells = (row[n] for n in ("system", "seeds", "figure", "measured", "simulated"))
        table.add_row(*map(str, cells), off)
    Console(width=None if Console().is_terminal else 120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
