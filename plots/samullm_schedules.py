"""SamuLLM's figures 9, 13 and 15, which GPU did what: `python -m plots.samullm_schedules fig9`.

Reads one run of each method; writes results/figures/samullm_<figure>.png and .pdf. Bars are busy
stretches coloured by model, hatched bars are loads, what is empty is idle.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from harness.claims.judge import basis
from harness.runs.record import ROOT, current, read_summaries
from plots import gantt, style

Matcher = Mapping[str, object]
LABELS = {
    "Ours (SamuLLM)": {"config.system.name": "samullm"},
    "Max-heuristic": {"config.system.name": "max_heuristic"},
    "Min-heuristic": {"config.system.name": "min_heuristic"},
}


@dataclass(frozen=True, slots=True)
class Schedules:
    """A figure: one panel for each run, of those that match `where`."""

    scenario: str
    where: Matcher
    panels: Mapping[str, Matcher]


FIGURES: Mapping[str, Schedules] = {
    "fig9": Schedules(
        "routing",
        {
            "config.workload.answers": "published",
            "config.predictor.name": "oracle",
            "config.seed": 0,
        },
        LABELS,
    ),
    "fig13": Schedules(
        "mixed",
        {
            "config.workload.only": "summary+ensemble",
            "config.workload.parts.summary.documents": 400,
            "config.seed": 0,
        },
        LABELS,
    ),
    "fig15": Schedules(
        "ablation",
        {
            "config.system.name": "samullm",
            "config.predictor.name": "none",
            "config.workload.parts.ensemble.max_output_tokens": 256,
            "config.seed": 0,
        },
        {
            "Ours (SamuLLM)": {"config.system.placement.preemption": True},
            "Ours, no preemption": {"config.system.placement.preemption": False},
        },
    ),
}


def run_of(rows: pd.DataFrame, matcher: Matcher, scenario: str) -> Path:
    """The folder of the one run that matches. Raises ValueError where it is not one."""
    found = rows
    for column, value in matcher.items():
        found = found[found[column] == value] if column in found else found[:0]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} runs match {dict(matcher)}: run harness/run.py +scenario={scenario}"
        )
    return Path(str(found["folder"].iloc[0]))


def draw(what: Schedules, rows: pd.DataFrame) -> Figure:
    """The figure. Raises ValueError where a run is missing."""
    runs = {
        label: pd.read_parquet(
            run_of(rows, {**what.where, **matcher}, what.scenario) / "gpu.parquet"
        )
        for label, matcher in what.panels.items()
    }
    colours = gantt.colours_of(pd.concat(runs.values()))
    figure = style.new_figure(1400, 130 + 280 * len(runs))
    panels = figure.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
    for panel, letter, (label, gpu) in zip(panels, "abc", runs.items(), strict=False):
        gantt.draw_panel(panel, gpu, colours)
        panel.set_title(f"({letter}) {label}: {gpu['end_s'].max():,.0f} s", loc="left")
    panels[-1].set_xlim(0, max(gpu["end_s"].max() for gpu in runs.values()))
    panels[-1].set_xlabel("seconds; hatched: loading, empty: idle")
    gantt.add_legend(figure, colours)
    seed = what.where["config.seed"]
    style.add_footer(figure, f"Simulated: cost profile {basis(rows)}; seed {seed}.")
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw figures from the runs; the exit status."""
    parser = argparse.ArgumentParser(description="Draw SamuLLM's schedules from the runs.")
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    given = parser.parse_args(arguments)
    try:
        for name in given.figures:
            what = FIGURES[name]
            figure = draw(what, current(read_summaries(given.results / what.scenario)))
            for path in style.save(figure, given.results / "figures" / f"samullm_{name}"):
                print(path)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
