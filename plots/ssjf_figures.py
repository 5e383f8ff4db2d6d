"""SSJF's figures 4 to 9, and aging, as curves.

Above is what the paper's method gives on a V100's costs, below what the conditions of the authors'
program give. Points are means over seeds, bands their range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.runs.basis import cost_basis
from plots import style
from plots.inputs import Claims, Inputs

SEED = "config.seed"
POLICY, PREDICTOR = "config.chosen.policy", "config.predictor.name"
RATE, BURSTINESS = "config.workload.arrivals.rate_per_s", "config.workload.arrivals.burstiness"
LOAD = "config.workload.arrivals.load"
BURSTINESS_AT_LOAD = "config.workload.arrivals.process.burstiness"
AGING = "config.policy.aging_tokens_per_s"
BATCH, ROUND = "config.policy.rule.max_num_seqs", "config.workload.lengths.part"
JCT, ANSWERED, QUARTER = "jct_s_mean", "answered_per_s", "quarter_per_s"
SLOWEST, WAIT = "jct_s_p99", "waiting_s_max"
LABELS = {
    RATE: "requests per second",
    BURSTINESS: "burstiness (CV of the gaps)",
    LOAD: "load (1: what FCFS serves)",
    BURSTINESS_AT_LOAD: "burstiness (CV of the gaps)",
    BATCH: "largest batch",
    ROUND: "round of the conversation",
    AGING: "tokens that a second of waiting is worth",
    JCT: "mean JCT in s",
    SLOWEST: "P99 JCT in s",
    WAIT: "longest wait in s",
    ANSWERED: "answered per s",
    QUARTER: "answered per s,\nafter a quarter",
}
Matcher = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Curve:
    """Runs that differ in what is along the axis."""

    label: str
    colour: str
    runs: Matcher


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: a figure of a scenario's runs against one of their settings."""

    title: str
    scenario: str
    variant: str
    along: str
    shows: str
    curves: tuple[Curve, ...]


def _curves(fcfs: str, ssjf: str, predictor: str, oracle: bool, at: Matcher) -> tuple[Curve, ...]:
    found = [
        Curve("FCFS", style.ORANGE, {POLICY: fcfs, **at}),
        Curve("SSJF", style.BLUE, {POLICY: ssjf, PREDICTOR: predictor, **at}),
    ]
    if oracle:
        known = {POLICY: ssjf, PREDICTOR: "oracle", **at}
        found.append(Curve("SJF, lengths known", style.GREEN, known))
    return tuple(found)


PAPER = {
    "no batching": ("fcfs_none", "ssjf_none"),
    "dynamic batching": ("fcfs_dynamic", "ssjf_dynamic"),
    "continuous batching": ("fcfs_continuous", "ssjf_continuous"),
}
PROGRAM = {
    "no batching": ("fcfs_none", "ssjf_none"),
    "dynamic batching": ("fcfs_dynamic", "ssjf_dynamic_at_once"),
    "continuous batching": ("fcfs_refilled", "ssjf_refilled"),
}


def _modes(
    scenario: str, along: tuple[str, str], shows: tuple[str, str], load: float | None = None
) -> tuple[Panel, ...]:
    """Three modes under the paper's method, of several loads at this one, then the program's."""
    found = []
    at = {} if load is None else {LOAD: load}
    said = "" if load is None else f", load {load:g}"
    for variant, modes, suffix in (("paper", PAPER, ""), ("code", PROGRAM, "_code")):
        for mode, (fcfs, ssjf) in modes.items():
            found.append(
                Panel(
                    title=mode + said if variant == "paper" else f"{mode}, as its program",
                    scenario=scenario + suffix,
                    variant=variant,
                    along=along[variant == "code"],
                    shows=shows[variant == "code"],
                    curves=_curves(fcfs, ssjf, "noisy", True, at if variant == "paper" else {}),
                )
            )
    return tuple(found)


def _batches(shows: tuple[str, str]) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            title=mode if variant == "paper" else f"{mode}, as its program",
            scenario=f"ssjf_batches{suffix}",
            variant=variant,
            along=BATCH,
            shows=shows[variant == "code"],
            curves=_curves(*modes[mode], "noisy", False, {LOAD: 1.2} if variant == "paper" else {}),
        )
        for variant, modes, suffix in (("paper", PAPER, ""), ("code", PROGRAM, "_code"))
        for mode in ("dynamic batching", "continuous batching")
    )


def _rounds(shows: str) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            title=f"load {load:g}",
            scenario="ssjf_rounds",
            variant="paper",
            along=ROUND,
            shows=shows,
            curves=_curves("fcfs_continuous", "ssjf_continuous", "noisy", False, {LOAD: load}),
        )
        for load in (0.7, 1.2, 4.0)
    )


def _aging() -> tuple[Panel, ...]:
    colours = {1.3: style.GREEN, 1.8: style.BLUE, 2.5: style.ORANGE}
    return tuple(
        Panel(
            title=LABELS[shows].removesuffix(" in s"),
            scenario="ssjf_aging",
            variant="paper",
            along=AGING,
            shows=shows,
            curves=tuple(
                Curve(f"{rate:g} requests per second", colour, {RATE: rate})
                for rate, colour in colours.items()
            ),
        )
        for shows in (JCT, SLOWEST, WAIT)
    )


FIGURES: Mapping[str, tuple[Panel, ...]] = {
    "fig4": _modes("ssjf_rates", (LOAD, RATE), (JCT, JCT)),
    "fig5": _modes("ssjf_bursts", (BURSTINESS_AT_LOAD, BURSTINESS), (JCT, JCT), 0.7),
    "fig6": _modes("ssjf_rates", (LOAD, RATE), (ANSWERED, QUARTER)),
    "fig7": _modes("ssjf_bursts", (BURSTINESS_AT_LOAD, BURSTINESS), (ANSWERED, QUARTER), 4.0),
    "fig8": _batches((JCT, JCT)) + _batches((ANSWERED, QUARTER)),
    "fig9": _rounds(JCT) + _rounds(ANSWERED),
    "aging": _aging(),
}


def points(panel: Panel, curve: Curve, rows: pd.DataFrame) -> pd.DataFrame:
    """What to draw: mean, min and max over seeds by the setting along the axis.

    Raises ValueError where runs are missing or several fit one setting and seed.
    """
    found = rows
    for column, value in curve.runs.items():
        found = found[found[column] == value] if column in found else found[:0]
    if found.empty or found.duplicated([panel.along, SEED]).any():
        raise ValueError(
            f"{curve.label} in {panel.title} has {len(found)} runs, not one a seed and setting: "
            f"run harness/run.py +scenario={panel.scenario}"
        )
    spread: pd.DataFrame = found.groupby(panel.along)[panel.shows].agg(["mean", "min", "max"])
    return spread


def _fill(axes: Axes, panel: Panel, rows: pd.DataFrame) -> None:
    for curve in panel.curves:
        spread = points(panel, curve, rows)
        x = spread.index.to_numpy(float)
        if panel.along == AGING:
            # From never to the point where only arrival counts there is no scale.
            axes.set_xticks(range(len(x)), [f"{value:g}" for value in x[:-1]] + ["FCFS"])
            x = np.arange(len(x))
        axes.plot(
            x, spread["mean"], color=curve.colour, marker="o", markersize=4, label=curve.label
        )
        axes.fill_between(x, spread["min"], spread["max"], color=curve.colour, alpha=0.15, lw=0)
    if panel.along == AGING:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_xlabel(LABELS[panel.along])
    axes.set_ylabel(LABELS[panel.shows])


def draw(
    panels: Sequence[Panel], runs: Mapping[str, pd.DataFrame], printed: Sequence[str]
) -> Figure:
    """The figure; `runs` by scenario. Raises ValueError where runs are missing."""
    columns = 4 if len(panels) > 6 else 3
    rows = -(-len(panels) // columns)
    figure = style.new_figure(400 * columns, 120 + 310 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=True):
        _fill(axes, panel, runs[panel.scenario])
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    used = pd.concat([runs[name] for name in dict.fromkeys(p.scenario for p in panels)])
    style.add_footer(
        figure,
        f"Simulated: cost profile {cost_basis(used)}.\nPoints: mean over seeds, bands min to max. "
        f"The paper: {'; '.join(printed) or 'leaves this to later work (section 6)'}.",
    )
    return figure


def plot(inputs: Inputs) -> Figure:
    """The figure of that name. Raises ValueError where runs are missing."""
    return draw(FIGURES[inputs.name], inputs.runs, _said(inputs.printed))


def _said(printed: Claims) -> list[str]:
    """What the paper says of a figure."""
    return [
        f"{name.split('.')[-1]} {claim['kind']} {claim['paper']}" for name, claim in printed.items()
    ]
