"""SSJF's figures 4 to 9 as gains over FCFS, in the unit in which the paper claims them.

Lines are means over seeds with their 95% intervals as bands; what the paper prints is dashed, or a
cross where it is for one value alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.claims.effects import SEED, Cells, Selector, curve, select, value_of
from harness.runs.basis import cost_basis
from plots import style
from plots.inputs import Claims, Inputs
from systems.ssjf.claims import BATCH, BURSTINESS, JCT, MODES, RATE, ROUND, fcfs, ssjf
from systems.ssjf.measures import answered_per_s, quarter_per_s, whole_per_s

LOAD, ACCURACY = "load", "accuracy"
AXES = {
    RATE: "requests per second",
    LOAD: "load (1: what FCFS serves)",
    BURSTINESS: "burstiness (CV of the gaps)",
    BATCH: "largest batch",
    ROUND: "round of the conversation",
    ACCURACY: "share of comparisons that are right",
}
MEASURES = {
    "when a quarter is answered": quarter_per_s,
    "while requests come in": answered_per_s,
    "to the last answer": whole_per_s,
}
"""Three readings of throughput; the first is that of the authors' program."""
COLOURS = dict(zip(MODES, (style.ORANGE, style.BLUE, style.GREEN), strict=True))


@dataclass(frozen=True, slots=True)
class Curve:
    """A gain along an axis; `line` is the claim that prints one value for all of it.

    `marks` are claims that print one for a single value of the axis.
    """

    label: str
    colour: str
    of: Mapping[str, Any]
    over: Mapping[str, Any]
    line: str = ""
    marks: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """Gains of a scenario in one figure of its runs; `reading` is of MEASURES, empty for JCT."""

    title: str
    scenario: str
    along: str
    curves: tuple[Curve, ...]
    reading: str = ""


def _jct_by_mode(name: str, scenario: str, along: str, *, oracle: bool) -> Iterator[Panel]:
    """A panel per batching mode."""
    for mode, words in MODES.items():
        known = Curve(
            "known lengths",
            style.GREEN,
            ssjf(mode, "oracle"),
            fcfs(mode),
            f"{name}.oracle-jct-{mode}",
        )
        own = Curve("SSJF", style.BLUE, ssjf(mode), fcfs(mode), f"{name}.jct-{mode}")
        yield Panel(f"{words} batching", scenario, along, (own, known) if oracle else (own,))


def _throughput(name: str, scenario: str, along: str) -> Iterator[Panel]:
    """A panel per reading of throughput, with all batching modes."""
    curves = tuple(
        Curve(
            f"{words} batching",
            COLOURS[mode],
            ssjf(mode),
            fcfs(mode),
            f"{name}.throughput-{mode}",
        )
        for mode, words in MODES.items()
    )
    for reading in MEASURES:
        yield Panel(reading, scenario, along, curves, reading)


def _batches() -> Iterator[Panel]:
    curves = tuple(
        Curve(f"{mode} batching", COLOURS[mode], ssjf(mode), fcfs(mode))
        for mode in ("dynamic", "continuous")
    )
    yield Panel("mean JCT", "ssjf_batches", BATCH, curves)
    for reading in MEASURES:
        yield Panel(reading, "ssjf_batches", BATCH, curves, reading)


def _rounds() -> Iterator[Panel]:
    of, over = {"policy": "ssjf_continuous"}, {"policy": "fcfs_continuous"}
    for stem, readings in (("jct", ("",)), ("throughput", tuple(MEASURES))):
        marks = {float(number): f"fig9.{stem}-round-{number}" for number in (1, 5)}
        own = Curve("SSJF", style.BLUE, of, over, marks=marks)
        for reading in readings:
            yield Panel(reading or "mean JCT", "ssjf_rounds", ROUND, (own,), reading)


def _pairwise() -> Iterator[Panel]:
    over = {"policy": "fcfs_continuous", ACCURACY: 0.5}
    own = Curve(
        "pairwise prediction", style.BLUE, {"policy": "ssjf_continuous"}, over, "sec31.pairwise"
    )
    yield Panel("continuous batching", "ssjf_pairwise", ACCURACY, (own,))


FIGURES: Mapping[str, tuple[Panel, ...]] = {
    "fig4": (
        *_jct_by_mode("fig4", "ssjf_rates", RATE, oracle=True),
        *_jct_by_mode("fig4", "ssjf_loads", LOAD, oracle=False),
    ),
    "fig5": tuple(_jct_by_mode("fig5", "ssjf_bursts", BURSTINESS, oracle=True)),
    "fig6": (
        *_throughput("fig6", "ssjf_rates", RATE),
        *_throughput("fig6", "ssjf_loads", LOAD),
    ),
    "fig7": tuple(_throughput("fig7", "ssjf_bursts", BURSTINESS)),
    "fig8": tuple(_batches()),
    "fig9": tuple(_rounds()),
    "pairwise": tuple(_pairwise()),
}


def points(panel: Panel, one: Curve, cells: Cells) -> pd.DataFrame:
    """Gain by the value along the axis: `value`, `low` and `high`, JCT in % saved.

    A figure is averaged over all else that varies; values of the axis at which nothing is answered
    in some seed are left out. Raises ClaimError where runs are missing.
    """
    name = panel.reading or JCT
    keys = [*dict.fromkeys((*one.of, *one.over, panel.along)), SEED]
    both = pd.concat([_measured(cells, panel, side) for side in (one.of, one.over)])
    averages = both.groupby(keys, as_index=False)[name].mean()
    # Nothing may be answered while 50 requests come in within seconds: there is no ratio then.
    none = averages.loc[averages[name] <= 0, panel.along]
    averages = averages[~averages[panel.along].isin(none)]
    found = curve(averages, name, of=one.of, over=one.over, along=panel.along)
    if not panel.reading:
        found = 100 * (1 - found).rename(columns={"low": "high", "high": "low"})
    return found.sort_index()


def _measured(cells: Cells, panel: Panel, side: Selector) -> Cells:
    """One side's cells, with the panel's reading of throughput as a column."""
    assert isinstance(side, Mapping)
    chosen = select(cells, side)
    if not panel.reading:
        return chosen
    measure = MEASURES[panel.reading]
    return chosen.assign(**{panel.reading: [value_of(measure, it) for it in chosen["folder"]]})


def _fill(axes: Axes, panel: Panel, cells: Cells, printed: Claims) -> None:
    for nth, one in enumerate(panel.curves):
        found = points(panel, one, cells)
        x = found.index.to_numpy(float)
        axes.plot(x, found["value"], color=one.colour, marker="o", markersize=4, label=one.label)
        axes.fill_between(x, found["low"], found["high"], color=one.colour, alpha=0.15, lw=0)
        scale = 1.0 if panel.reading else 100.0
        if one.line in printed:
            value = scale * _value(printed, one.line)
            axes.axhline(value, color=one.colour, linestyle="--", linewidth=1.2)
            _label(axes, 1.0 - 0.33 * nth, value, panel, one.colour)
        for place, claim in one.marks.items():
            if claim in printed:
                value = scale * _value(printed, claim)
                axes.plot(place, value, "x", color=style.RED, markersize=9, markeredgewidth=2)
                text = _text(value, panel)
                axes.annotate(
                    text,
                    (place, value),
                    xytext=(0, 7),
                    textcoords="offset points",
                    ha="center",
                    color=style.RED,
                    fontsize=9,
                )
    if panel.along == LOAD:
        axes.set_xscale("log", base=2)
        ticks = [0.5, 1, 2, 4, 8, 16, 32]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.axhline(1 if panel.reading else 0, color=style.INK, linewidth=0.8)
    axes.margins(y=0.12)
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_xlabel(AXES[panel.along])
    axes.set_ylabel("throughput, x FCFS" if panel.reading else "mean JCT saved in %")


def _value(printed: Claims, claim: str) -> float:
    value = printed[claim].paper
    assert isinstance(value, float)
    return value


def _text(value: float, panel: Panel) -> str:
    return f"paper {value:.2g}x" if panel.reading else f"paper {value:.1f}%"


def _label(axes: Axes, x: float, value: float, panel: Panel, colour: str) -> None:
    """The paper's value above its line, its right end at this share of the width."""
    axes.annotate(
        _text(value, panel),
        (x, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        color=colour,
        fontsize=9,
        bbox={"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.5},
    )


def draw(panels: tuple[Panel, ...], runs: Mapping[str, pd.DataFrame], printed: Claims) -> Figure:
    """The figure; `runs` by scenario. Raises ClaimError where runs are missing."""
    columns = len(panels) if len(panels) < 5 else 3
    rows = -(-len(panels) // columns)
    alike = len({bool(panel.reading) for panel in panels}) == 1
    figure = style.new_figure(max(370 * columns, 600), 130 + 300 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey="row" if alike else False)
    for axes, panel in zip(grid.flat, panels, strict=True):
        _fill(axes, panel, runs[panel.scenario], printed)
        axes.yaxis.set_tick_params(labelleft=True)
    style.add_legend(figure)
    used = pd.concat([runs[name] for name in dict.fromkeys(panel.scenario for panel in panels)])
    style.add_footer(
        figure,
        f"Simulated: cost profile {cost_basis(used)}. Lines: {used[SEED].nunique()} seeds, bands: "
        "95% intervals; dashed, crosses: the paper.",
    )
    return figure


def plot(inputs: Inputs) -> Figure:
    """The figure of that name. Raises ClaimError where runs are missing."""
    return draw(FIGURES[inputs.name], inputs.runs, inputs.printed)
