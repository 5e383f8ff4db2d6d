"""SamuLLM's figures 9, 13 and 15: which GPU did what, in one run of each method.

Bars are busy stretches coloured by model, hatched bars are loads, what is empty is idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from harness.runs.basis import cost_basis
from plots import gantt, style
from plots.inputs import Inputs
from systems.samullm.measures import ENSEMBLED_S

Matcher = Mapping[str, object]
LABELS = {
    "Ours (SamuLLM)": {"config.system.name": "samullm"},
    "Max-heuristic": {"config.system.name": "max_heuristic"},
    "Min-heuristic": {"config.system.name": "min_heuristic"},
}


@dataclass(frozen=True, slots=True)
class Schedules:
    """A figure: one panel for each run that matches `where`."""

    scenario: str
    where: Matcher
    panels: Mapping[str, Matcher]
    mark_s: float = nan
    """Seconds that the paper names of its own schedules."""


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
        mark_s=ENSEMBLED_S,
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


def plot(inputs: Inputs) -> Figure:
    """The figure of that name. Raises ValueError where a run is missing."""
    what = FIGURES[inputs.name]
    return draw(what, inputs.runs[what.scenario])


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
        if isfinite(what.mark_s):
            panel.axvline(what.mark_s, color=style.INK, linestyle="--")
        panel.set_title(f"({letter}) {label}: {gpu['end_s'].max():,.0f} s", loc="left")
    panels[-1].set_xlim(0, max(gpu["end_s"].max() for gpu in runs.values()))
    panels[-1].set_xlabel("seconds; hatched: loading, empty: idle")
    gantt.add_legend(figure, colours)
    seed = what.where["config.seed"]
    marked = ""
    if isfinite(what.mark_s):
        marked = f" Dashed: {what.mark_s:g} s, when the paper's ensembling is done."
    style.add_footer(figure, f"Simulated: cost profile {cost_basis(rows)}; seed {seed}.{marked}")
    return figure
