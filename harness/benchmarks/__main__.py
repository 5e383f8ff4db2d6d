"""`python -m harness.benchmarks`: run every benchmark, print and write its figures.

A benchmark is a module of this package with `measure() -> dict[str, float]`: flat names with units,
in the order to print. Figures of speed are minima over repetitions in one process run;
results/bench/summary.json holds them all with the machine they were taken on.
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import benchmarks
from harness.runs.provenance import machine
from harness.runs.record import ROOT


def main() -> int:
    """Run all benchmarks; the exit status."""
    names = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_")
    figures: dict[str, float] = {}
    for name in names:
        module = importlib.import_module(f"harness.benchmarks.{name}")
        if hasattr(module, "measure"):
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            figures |= module.measure()
    _write(ROOT / "results" / "bench" / "summary.json", figures)
    here = machine()
    table = Table(title=f"{here['cpu']}, {here['cores']} cores, Python {here['python']}")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3g}" if value < 100 else f"{value:,.0f}")
    Console().print(table)
    return 0


def _write(path: Path, figures: dict[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {**{k: float(f"{v:.4g}") for k, v in figures.items()}, "machine": machine()}
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
