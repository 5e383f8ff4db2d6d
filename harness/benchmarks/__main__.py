"""`python -m harness.benchmarks`: run every benchmark, print and write its figures.

A benchmark is a module of this package with `measure() -> dict[str, float]`: flat names with units,
in the order to print. Figures of speed are minima over repetitions in one process run;
results/local/bench/summary.json (with --publish the one that the pages show) holds them all with
the machine they were taken on.
"""

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from harness import benchmarks
from harness.benchmarks.peer import over_peer, policies_over_peer
from harness.runs import published
from harness.runs.provenance import machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; the exit status."""
    parser = argparse.ArgumentParser(description="How fast the simulator is.")
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    names = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_")
    figures: dict[str, float] = {}
    for name in names:
        module = importlib.import_module(f"harness.benchmarks.{name}")
        if hasattr(module, "measure"):
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            figures |= module.measure()
    figures |= over_peer(figures)
    here = machine()
    table = Table(title=f"{here['cpu']}, {here['cores']} cores, Python {here['python']}")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("over the peer", justify="right")
    ratios = policies_over_peer(figures)
    for name, value in figures.items():
        ratio = f"{ratios[name]:.2g}" if name in ratios else ""
        table.add_row(name, f"{value:,.3g}" if value < 100 else f"{value:,.0f}", ratio)
    Console().print(table)
    folder = published.place("bench", publish=given.publish)
    published.write(folder / "summary.json", _as_json(figures))
    return 0


def _as_json(figures: Mapping[str, float]) -> str:
    content = {**{k: float(f"{v:.4g}") for k, v in figures.items()}, "machine": machine()}
    return json.dumps(content, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
