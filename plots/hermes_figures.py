"""Hermes' figures: completion times and deadlines by policy, beside what is printed.

Bars and lines are means over seeds with their 95% intervals; what the paper prints or draws is a
diamond.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.claims.effects import SEED, Cells, Measure, figures, reduction
from harness.runs.basis import cost_basis
from harness.runs.stats import mean_of
from plots import style
from plots.inputs import Inputs
from systems.hermes.claims import (
    ACT,
    ADAPTER_BARS,
    BARS,
    BASELINES,
    BLOCK_BARS,
    BUCKETS,
    BY_SHARE,
    BY_WORK,
    CACHED,
    CAPACITY,
    EDF,
    FULL,
    HERMES,
    HITS,
    IDLE,
    KNOB,
    LARGE,
    MET,
    MET_BARS,
    ONCE,
    ORACLE,
    PARTS_BARS,
    REFINES,
    SLACK,
    SMALL,
    TAIL,
    TEN,
    THRICE,
    WAIT,
    WINDOW,
)
from systems.hermes.measures import (
    SCALES,
    backlog_s,
    blocks_found_share,
    met_at,
    misses_avoided,
    policy_ms,
)

Sides = Mapping[str, tuple[Mapping[str, Any], str]]
"""What is drawn: name -> selector and colour."""

POLICIES: Sides = {
    "Hermes": (HERMES, style.BLUE),
    "vLLM": ({"policy": "vllm_0_4"}, style.ORANGE),
    "Parrot": ({"policy": "parrot"}, style.GREEN),
    "VTC": ({"policy": "vtc_calls"}, style.RED),
}
BY_KIND: Sides = {**POLICIES, "VTC by kind": ({"policy": "vtc"}, style.PURPLE)}
BY_PROGRAM: Sides = {**POLICIES, "Hermes": ({"policy": "hermes_program"}, style.BLUE)}
WITH_DEADLINES: Sides = {
    "eq. 2": (SLACK, style.BLUE),
    "risk": ({"policy": "hermes_risk"}, style.SKY),
    "EDF": (EDF, style.PURPLE),
    **{name: of for name, of in POLICIES.items() if name != "Hermes"},
}
PARTS: Sides = {
    "Hermes": (FULL, style.BLUE),
    "no refinement": ({**FULL, REFINES: False}, style.ORANGE),
    "neither": ({**FULL, "policy": "hermes_mean", REFINES: False}, style.GREEN),
    "mean, refined": ({**FULL, "policy": "hermes_mean"}, style.PURPLE),
    "true demand": (ORACLE, style.RED),
}
CACHES: Sides = {
    "Hermes": (CACHED, style.BLUE),
    "EPWQ": ({"system": "caching_epwq"}, style.ORANGE),
    "LRU": ({"system": "caching_lru"}, style.GREEN),
}
BarGroup = tuple[str, Mapping[str, Any], Measure]
"""A group of bars: its name, where, and what is measured."""


Marks = Mapping[str, Sequence[float]]
"""What is printed or drawn for a side in the first groups."""


def _bars(
    axes: Axes,
    cells: Cells,
    groups: Sequence[BarGroup],
    sides: Sides,
    title: str,
    marks: Marks | None = None,
) -> None:
    """A group of bars for each setting, a bar for each side; diamonds where there are `marks`."""
    width = 0.8 / len(sides)
    for place, (label, (at, colour)) in enumerate(sides.items()):
        means = [
            mean_of(figures(cells, measure, {**at, **where}).to_numpy(float).ravel())
            for _, where, measure in groups
        ]
        x = np.arange(len(groups)) + (place - (len(sides) - 1) / 2) * width
        values = np.array([one.value for one in means])
        ends = np.array([one.ends for one in means]).T
        axes.bar(x, values, width, color=colour, label=label)
        axes.errorbar(x, values, np.abs(ends - values), fmt="none", ecolor=style.INK, lw=1)
        drawn = (marks or {}).get(label, ())
        axes.plot(x[: len(drawn)], drawn, "D", color=style.INK, markersize=5, mfc=colour)
    axes.set_xticks(range(len(groups)), [name for name, _, _ in groups])
    axes.set_title(title, loc="left", fontsize=11)


def _savings(axes: Axes, inputs: Inputs, cells: Cells, at: Mapping[str, Any]) -> None:
    """What Hermes saves over each baseline, of the mean and of P95; diamonds: what is printed."""
    for place, (part, measure, colour) in enumerate(
        (("act", ACT, style.BLUE), ("p95", TAIL, style.SKY))
    ):
        for nth, (name, (policy, _)) in enumerate(BASELINES.items()):
            found = reduction(cells, measure, of={**HERMES, **at}, over={"policy": policy, **at})
            value = 1 - float(np.exp(np.log(found.samples.to_numpy(float)).mean()))
            x = nth + (place - 0.5) * 0.4
            label = ("mean", "P95")[place] if not nth else None
            axes.bar(x, 100 * value, 0.4, color=colour, label=label)
            printed = inputs.printed[f"{inputs.name}.{part}-{name}"].paper
            assert isinstance(printed, float)
            axes.plot(x, 100 * printed, "D", color=style.INK, markersize=5)
    axes.set_xticks(range(len(BASELINES)), [words for _, words in BASELINES.values()])
    axes.axhline(0, color=style.INK, linewidth=0.8)
    axes.set_title("% of ACT saved by Hermes", loc="left", fontsize=11)
    axes.legend(loc="best", fontsize=9)


def _by_price(axes: Axes, inputs: Inputs) -> None:
    """What Hermes saves of the mean ACT by the price of a token; diamonds: what is printed."""
    varied = inputs.varied["hermes_h800"]
    prices = {"1 : 600": inputs.runs["hermes_h800"], "1 : 6": varied[BY_SHARE]}
    prices["1 : 6, nothing\noutside the LLM"] = varied[BY_WORK]
    for nth, (name, (policy, words)) in enumerate(BASELINES.items()):
        x = np.arange(len(prices)) + (nth - 1) * 0.27
        found = [reduction(it, ACT, of=HERMES, over={"policy": policy}) for it in prices.values()]
        saved = [1 - float(np.exp(np.log(it.samples.to_numpy(float)).mean())) for it in found]
        axes.bar(x, 100 * np.array(saved), 0.27, color=POLICIES[words][1])
        printed = inputs.printed[f"{inputs.name}.act-{name}"].paper
        assert isinstance(printed, float)
        colour = POLICIES[words][1]
        axes.plot(x, [100 * printed] * len(x), "D", color=style.INK, markersize=5, mfc=colour)
    axes.set_xticks(range(len(prices)), list(prices))
    axes.axhline(0, color=style.INK, linewidth=0.8)
    title = "% of mean ACT saved, by price of a prompt : answer token"
    axes.set_title(title, loc="left", fontsize=10)


def _finish(figure: Figure, cells: Cells, more: str = "") -> Figure:
    """Legend and footer."""
    style.add_legend(figure)
    style.add_footer(
        figure,
        f"Simulated: cost profile {cost_basis(cells)}. {cells[SEED].nunique()} seeds, 95% "
        f"intervals. {more}",
    )
    return figure


def _times(
    inputs: Inputs, scenario: str, groups: Mapping[str, Mapping[str, Any]], marks: Marks, by: Sides
) -> Figure:
    """Mean ACT of the paper's and of the program's applications, P95, and what is saved first."""
    cells, code = inputs.runs[scenario], inputs.runs.get(f"{scenario}_code")
    figure = style.new_figure(1000, 760)
    grid = figure.subplots(2, 2).ravel()
    means = [(name, where, ACT) for name, where in groups.items()]
    tails = [(name, where, TAIL) for name, where in groups.items()]
    _bars(grid[0], cells, means, by, "mean ACT in s, the paper's mix", marks)
    if code is None:
        grid[1].set_axis_off()
    else:
        _bars(grid[1], code, means, BY_PROGRAM, "mean ACT in s, the program's applications", marks)
    _bars(grid[2], cells, tails, by, "P95 of ACT in s, the paper's mix")
    if BY_SHARE in inputs.varied.get("hermes_h800", {}):
        _by_price(grid[3], inputs)
    else:
        _savings(grid[3], inputs, cells, next(iter(groups.values())))
    return _finish(figure, cells, "Diamonds: the paper's figures.")


def _marks(name: str) -> Marks:
    """The bars of a figure of the paper by policy, in the order of its windows."""
    return dict(zip(POLICIES, zip(*BARS[name].values(), strict=True), strict=True))


def windows(inputs: Inputs) -> Figure:
    """Figure 9."""
    groups = {"30 min (1x)": ONCE, "15 min (2x)": {WINDOW: 900}, "10 min (3x)": THRICE}
    return _times(inputs, "hermes_windows", groups, _marks("fig9"), BY_KIND)


def eight(inputs: Inputs) -> Figure:
    """Figure 10."""
    marks = {name: bars[-1:] for name, bars in _marks("fig10").items()}
    return _times(inputs, "hermes_h800", {"10 min (3x)": {}}, marks, POLICIES)


def deadlines(inputs: Inputs) -> Figure:
    """Figure 11."""
    shown = {"the paper's mix": inputs.runs["hermes_deadlines"]}
    if "hermes_deadlines_code" in inputs.runs:
        shown["the program's"] = inputs.runs["hermes_deadlines_code"]
    figure = style.new_figure(1000, 430)
    groups: list[BarGroup] = [("all", {}, MET)]
    groups += [(f"{scale:g} x", {}, met_at(scale)) for scale in SCALES]
    marks = {name: (met,) for name, met in MET_BARS.items()} | {"eq. 2": (MET_BARS["Hermes"],)}
    grid = figure.subplots(1, len(shown), squeeze=False).ravel()
    for axes, (title, rows) in zip(grid, shown.items(), strict=True):
        _bars(axes, rows, groups, WITH_DEADLINES, f"share of deadlines met, {title}", marks)
        axes.set_ylim(0, 1)
    more = "Times: deadline over typical seconds of the kind. Diamonds: the paper's figure."
    return _finish(figure, shown["the paper's mix"], more)


def ablation(inputs: Inputs) -> Figure:
    """Figure 12."""
    cells = inputs.runs["hermes_ablation"]
    figure = style.new_figure(800, 430)
    groups: list[BarGroup] = [("Llama-2-7b", SMALL, ACT), ("Llama-2-13b", LARGE, ACT)]
    ours = [figures(cells, ACT, FULL | model).to_numpy(float).mean() for model in (SMALL, LARGE)]
    marks = {
        name: [ratio * own for ratio, own in zip(ratios, ours, strict=True)]
        for name, ratios in PARTS_BARS.items()
    }
    _bars(figure.subplots(), cells, groups, PARTS, "mean ACT in s", marks)
    more = "Llama-2-13b: 3. Diamonds: the paper's ratios over Hermes, times its bar here."
    return _finish(figure, cells, more)


def overhead(inputs: Inputs) -> Figure:
    """Figure 15."""
    cells = inputs.runs["hermes_buckets"]
    figure = style.new_figure(1000, 430)
    panels: tuple[tuple[Measure, Mapping[str, Any], str, str], ...] = (
        (policy_ms, TEN, WINDOW, "ms of a decision (measured), 10 buckets"),
        (policy_ms, THRICE, BUCKETS, "ms of a decision (measured), 10 min"),
        (ACT, THRICE, BUCKETS, "mean ACT in s, 10 min"),
    )
    for axes, (measure, at, along, title) in zip(figure.subplots(1, 3), panels, strict=True):
        _line(axes, cells, measure, at, along, "Hermes", style.BLUE)
        axes.set_xlabel("buckets" if along == BUCKETS else "window in s")
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_ylim(bottom=0)
    return _finish(figure, cells, "Paper: less than 3 ms.")


def _line(
    axes: Axes,
    cells: Cells,
    measure: Measure,
    at: Mapping[str, Any],
    along: str,
    label: str,
    colour: str,
) -> None:
    found = figures(cells, measure, at, [along])
    means = [mean_of(found[value].to_numpy(float)) for value in found]
    x = found.columns.to_numpy(float)
    axes.plot(x, [one.value for one in means], "o-", color=colour, markersize=4, label=label)
    low, high = zip(*(one.ends for one in means), strict=True)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def loads(inputs: Inputs) -> Figure:
    """Mean and P95 of ACT against load: seconds of all applications at once over the window."""
    cells, backlog = inputs.runs["hermes_loads"], inputs.runs["hermes_capacity"]
    capacity_s = float(figures(backlog, backlog_s, {}).to_numpy(float).mean())
    against = cells.copy().assign(load=capacity_s / cells[WINDOW].astype(float))
    figure = style.new_figure(1000, 450)
    for axes, measure, title in zip(
        figure.subplots(1, 2), (ACT, TAIL), ("mean ACT in s", "P95 of ACT in s"), strict=True
    ):
        for label, (at, colour) in BY_KIND.items():
            _line(axes, against, measure, at, "load", label, colour)
        axes.set_yscale("log")
        axes.set_xscale("log")
        ticks = sorted(against["load"].unique())[1::2]
        axes.set_xticks(ticks, [f"{load:.2f}" for load in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("load over capacity")
        axes.set_title(title, loc="left", fontsize=11)
    more = f"Load 1: as fast as vLLM answers a backlog of them, in {capacity_s:.0f} s."
    return _finish(figure, cells, more)


def caches(inputs: Inputs) -> Figure:
    """Figure 13: what is found of contexts and of adapters, by use and as the program counts."""
    contexts, adapters = inputs.runs["hermes_contexts"], inputs.runs["hermes_adapters"]
    figure = style.new_figure(1000, 760)
    grid = figure.subplots(2, 2).ravel()
    sizes = {f"{size / 1e9:.0f} GB": {CAPACITY: size} for size in (8e9, 16e9, 32e9)}
    panels: tuple[tuple[Measure, str, Marks | None], ...] = (
        (HITS, "share of calls that find their context", None),
        (blocks_found_share, "share of all prompt blocks that are found", BLOCK_BARS),
        (ACT, "mean ACT in s, contexts", None),
    )
    for axes, (measure, title, marks) in zip(grid, panels, strict=False):
        groups = [(name, at, measure) for name, at in sizes.items()]
        _bars(axes, contexts, groups, CACHES, title, marks)
    of_adapters = {**CACHES, "Hermes": ({"system": "caching_hermes_adapters"}, style.BLUE)}
    shares: list[BarGroup] = [("misses avoided", {}, misses_avoided), ("calls that find", {}, HITS)]
    marks = {name: (share,) for name, share in ADAPTER_BARS.items()}
    _bars(grid[3], adapters, shares, of_adapters, "adapters: shares", marks)
    return _finish(figure, contexts, "In host memory, when a call begins. Diamonds: the paper's.")


def prewarming(inputs: Inputs) -> Figure:
    """Figure 14: seconds per application that calls wait for backends, and that these are idle."""
    cells, reactive = inputs.runs["hermes_prewarming"], inputs.runs["hermes_on_demand"]
    figure = style.new_figure(1000, 430)
    for axes, measure, title in zip(
        figure.subplots(1, 2),
        (WAIT, IDLE),
        ("seconds that calls wait for backends", "seconds that backends are loaded and unused"),
        strict=True,
    ):
        for label, of, colour in (
            ("code generation: a container", 1, style.BLUE),
            ("plan and execution: a DNN", 0, style.ORANGE),
        ):
            _line(axes, cells, measure, {"CG": of}, KNOB, label, colour)
            if measure == WAIT:
                without_s = figures(reactive, measure, {"CG": of}).to_numpy(float).mean()
                axes.axhline(without_s, color=colour, linestyle=":", lw=1.2)
        axes.set_xlabel("K, the probability of being ready in time")
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=11)
    return _finish(figure, cells, "Per application. Dotted: loaded when first needed.")
