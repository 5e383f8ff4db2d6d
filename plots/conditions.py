"""Pictures of a claim's map: its cells, one change at a time, what the baseline went through."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from harness.claims.paper import Claim
from harness.conditions.cells import STATE, WAITING
from harness.conditions.changes import LoneMove
from harness.conditions.maps import Floats, Map
from harness.conditions.outcomes import Outcome
from harness.conditions.space import LOAD, Dimension, Point
from harness.conditions.texts import name_of, number
from harness.conditions.trials import VALUE
from plots import style

COLOURS: Mapping[str, str] = {
    Outcome.COMES_OUT: style.GREEN,
    Outcome.IN_PART: "#9FD9C4",
    Outcome.NO_EFFECT: "#BDBDBD",
    Outcome.REVERSED: style.RED,
}
SHADE = LinearSegmentedColormap.from_list("comes out", ["#FFFFFF", "#5FBF9F"])
WIDTH = 0.09
"""Of the Gaussian that averages cells around a point, as a share of the range."""
GRID, LABEL_LETTERS = 60, 40
STAR: dict[str, Any] = {
    **{"marker": "*", "markersize": 13, "markerfacecolor": style.ORANGE},
    **{"markeredgecolor": style.INK, "zorder": 5, "clip_on": False},
}
DOT: dict[str, Any] = {"s": 13, "edgecolors": style.INK, "linewidths": 0.3, "zorder": 3}


def draw(
    found: Map,
    claim: Claim,
    points: Sequence[Point],
    steps: Sequence[LoneMove],
    start: Point,
    about: str,
) -> Figure:
    """The map over the two strongest dimensions, the tornado from a paper's point, the state."""
    figure = style.new_figure(1320, 560)
    panels = figure.subplots(1, 3, width_ratios=[1.15, 1.15, 0.9])
    _cells(panels[0], found, points)
    _tornado(panels[1], found, claim, steps, start)
    _state(panels[2], found, claim)
    style.add_legend(figure)
    style.add_footer(figure, about)
    return figure


def _cells(axes: Axes, found: Map, points: Sequence[Point]) -> None:
    """Cells over the two strongest dimensions, shaded by the share around that comes out."""
    across, up = (found.space.dimension(it.dimension) for it in found.influences[:2])
    if up.name == LOAD:
        across, up = up, across
    _shade(axes, found, across, up)
    for outcome, colour in COLOURS.items():
        here = found.words == outcome
        x, y = (found.table[one.name][here] for one in (across, up))
        axes.scatter(x, y, c=colour, label=f"{outcome} ({here.sum()})", **DOT)
    for checked in found.box:
        limits = [checked.box.limits.get(it.name, (-np.inf, np.inf)) for it in (across, up)]
        (left, right), (low, high) = (
            (max(ends[0], one.low), min(ends[1], one.high))
            for ends, one in zip(limits, (across, up), strict=True)
        )
        frame = Rectangle((left, low), right - left, high - low, fill=False, linewidth=1.8)
        axes.add_patch(frame)
    own = ([it[one.name] for it in points] for one in (across, up))
    axes.plot(*own, linestyle="none", label="own points", **STAR)
    set_scale_of(across, axes.xaxis, axes.set_xscale)
    set_scale_of(up, axes.yaxis, axes.set_yscale)
    axes.set_xlabel(across.words)
    axes.set_ylabel(up.words)
    axes.set_title("where it comes out; frame: limits told", loc="left", fontsize=11)


def _shade(axes: Axes, found: Map, across: Dimension, up: Dimension) -> None:
    grid = np.linspace(0.0, 1.0, GRID)
    shares = (shares_of(one, found.table[one.name].to_numpy(float)) for one in (across, up))
    near_x, near_y = (np.exp(-0.5 * ((grid[:, None] - it) / WIDTH) ** 2) for it in shares)
    weight = np.einsum("jc,ic->ijc", near_x, near_y)
    share = (weight * found.comes).sum(-1) / weight.sum(-1)
    x, y = ([one.at(it) for it in grid.tolist()] for one in (across, up))
    axes.pcolormesh(x, y, share, cmap=SHADE, vmin=0, vmax=1, shading="gouraud", zorder=0)


def shares_of(one: Dimension, values: Floats) -> Floats:
    """Where values lie in the range of a dimension."""
    return np.array([one.share(value) for value in values.tolist()])


def set_scale_of(one: Dimension, axis: Any, set_scale: Any) -> None:
    """An axis on the scale of a dimension, with plain numbers beside it."""
    if not one.is_log:
        return
    set_scale("log")
    ticks = [base * 10**power for power in range(-3, 6) for base in (1, 2, 5)]
    axis.set_ticks([it for it in ticks if one.low <= it <= one.high])
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _tornado(axes: Axes, found: Map, claim: Claim, steps: Sequence[LoneMove], start: Point) -> None:
    times = 100.0 if claim.unit == "%" else 1.0
    by_name = {
        it.name: [s for s in steps if s.dimension == it.name] for it in found.space.dimensions
    }
    by_name = {
        name: [s for s in of if s.found.outcome is not Outcome.IMPOSSIBLE]
        for name, of in by_name.items()
    }
    spans = {name: [times * s.found.value for s in of] for name, of in by_name.items() if of}
    order = sorted(spans, key=lambda name: max(spans[name]) - min(spans[name]))
    for place, name in enumerate(order):
        own = by_name[name]
        axes.plot(
            [min(spans[name]), max(spans[name])], [place, place], color=style.GRID, linewidth=8
        )
        axes.scatter(
            spans[name],
            [place] * len(own),
            c=[COLOURS[s.found.outcome] for s in own],
            **DOT | {"s": 26},
        )
        for step, off in ((own[0], 0.27), (own[-1], -0.36)):
            axes.annotate(
                number(step.value), (times * step.found.value, place + off), fontsize=8, ha="center"
            )
    printed = float(np.max(claim.paper))
    none = 0.0 if claim.unit == "%" else 1.0
    if claim.quote:  # of a user's two policies nothing is printed
        axes.axvline(times * printed, color=style.ORANGE, linewidth=2)
    axes.axvline(
        none + (times * printed - none) * 2 / 3, color=style.INK, linestyle="--", linewidth=1
    )
    axes.axvline(none, color=style.INK, linewidth=0.6)
    axes.set_yticks(
        range(len(order)), [f"{name_of(it, found.space)}, {number(start[it])}" for it in order]
    )
    axes.set_xlabel(fill(f"{claim.words}{', %' if claim.unit == '%' else ''}", LABEL_LETTERS))
    lines = "dashed: from here it comes out" if not claim.quote else "orange: printed, dashed: 2/3"
    axes.set_title(f"one change alone; {lines}", loc="left", fontsize=11)


def _state(axes: Axes, found: Map, claim: Claim) -> None:
    times = 100.0 if claim.unit == "%" else 1.0
    values = found.table[f"{found.claim} {VALUE}"].to_numpy(float)
    low, high = np.quantile(values[np.isfinite(values)], [0.01, 0.99])
    for outcome, colour in COLOURS.items():
        here = found.words == outcome
        axes.scatter(
            found.table[WAITING][here],
            times * np.clip(values[here], low, high),
            c=colour,
            **DOT,
        )
    axes.set_xlabel(fill(STATE[WAITING], LABEL_LETTERS))
    axes.set_title("by the baseline's waiting", loc="left", fontsize=11)
