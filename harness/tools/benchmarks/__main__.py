"""`python -m harness.tools.benchmarks`: run every benchmark, print and write its figures.

Figures of speed are minima over repetitions in one process run; results/local/bench/summary.json
(with --publish the one that the pages show) holds them all with the machine they were taken on.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from harness.report.pages import policies_over_peer
from harness.runs import published
from harness.runs.provenance import machine
from harness.tools.benchmarks import (
    applications,
    commands,
    long_trace,
    peer,
    planning,
    prefix_caching,
    scheduler_overhead,
    shared_groups,
    speed,
)

BENCHMARKS: Mapping[str, Callable[[], dict[str, float]]] = {
    "applications": applications.measure,
    "cold start": commands.measure_start,
    "compile time": commands.measure_compilation,
    "dispatch": shared_groups.measure_dispatch,
    "forecasts": planning.measure_forecasts,
    "long trace": long_trace.measure,
    "peer": peer.measure,
    "planner": planning.measure_planners,
    "prefix caching": prefix_caching.measure,
    "scheduler overhead": scheduler_overhead.measure,
    "shared groups": shared_groups.measure,
    "SM shares": shared_groups.measure_sm_shares,
    "speed": speed.measure,
    "sweep": commands.measure_sweeps,
}
"""Each returns flat names with units, in the order to print."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; the exit status."""
    parser = argparse.ArgumentParser(description="How fast the simulator is.")
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    figures: dict[str, float] = {}
    for name, measure in BENCHMARKS.items():
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures |= measure()
    figures |= peer.over_peer(figures)
    here, ratios = machine(), policies_over_peer(figures)
    table = Table(title=f"{here['cpu']}, {here['cores']} cores, Python {here['python']}")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("over the peer", justify="right")
    for name, value in figures.items():
        ratio = f"{ratios[name]:.2g}" if name in ratios else ""
        table.add_row(name, f"{value:,.3g}" if value < 100 else f"{value:,.0f}", ratio)
    Console().print(table)
    content = {**{k: float(f"{v:.4g}") for k, v in figures.items()}, "machine": here}
    folder = published.place("bench", publish=given.publish)
    published.write(folder / "summary.json", json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
