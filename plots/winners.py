"""Which policy wins where: the winners of settings over load and spread of answers, by KV."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from harness.conditions.maps import Mask
from harness.conditions.space import KV_SHARE, LOAD, SPREAD
from harness.conditions.texts import number
from harness.conditions.wins import AND, NO_POLICY, Wins, names_of
from plots import style
from plots.conditions import DOT, GRID, WIDTH, set_scale_of, shares_of

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.RED)
GREY = "#BDBDBD"
RINGS = ("o", "s", "^")
"""Markers of policies that lead together, the most frequent ones first, in the colour of the first
policy; others are grey dots."""
PANELS = ("short KV", "middle", "ample KV")
LIGHT = 0.25
"""How strong the colour of the shading is."""
SIZE = 26


def draw(parts: Sequence[Wins], about: str) -> Figure:
    """A row for each figure, a panel for each third of the range of KV, a dot for each setting."""
    figure = style.new_figure(1320, 110 + 390 * len(parts))
    grid = figure.subplots(len(parts), len(PANELS), squeeze=False, sharex=True, sharey=True)
    for row, wins in zip(grid, parts, strict=True):
        kv = wins.question.space.dimension(KV_SHARE)
        ends = [kv.at(place / len(PANELS)) for place in range(len(PANELS) + 1)]
        places = wins.won[kv.name]
        for axes, name, (low, high) in zip(row, PANELS, pairwise(ends), strict=True):
            # The sample lies inside the range; a setting on a bound is of the panel below it.
            inside = ((places > low) & (places <= high)).to_numpy(bool)
            _panel(axes, wins, inside)
            said = f"{name}: share {number(low)} to {number(high)} ({inside.sum()} settings)"
            axes.set_title(said, loc="left", fontsize=11)
        row[0].set_ylabel(wins.question.space.dimension(SPREAD).words)
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        row[-1].legend(title=wins.title, alignment="left", fontsize=9, **beside)
    for axes in grid[-1]:
        axes.set_xlabel("load, share of capacity")
    style.add_footer(figure, about)
    return figure


def _panel(axes: Axes, wins: Wins, inside: Mask) -> None:
    across, up = (wins.question.space.dimension(name) for name in (LOAD, SPREAD))
    set_scale_of(across, axes.xaxis, axes.set_xscale)
    set_scale_of(up, axes.yaxis, axes.set_yscale)
    won, winners, tied = wins.won[inside], wins.winners[inside], wins.tied[inside]
    _shade(axes, wins, won, winners)
    rings = dict(zip(wins.ties, RINGS, strict=False))

    def dots(chosen: "pd.Series[bool]", label: str, **look: Any) -> None:
        x, y = (won.loc[chosen, one.name] for one in (across, up))
        axes.scatter(x, y, label=label, **DOT | {"s": SIZE} | look)

    for name, colour in _colours(wins).items():
        dots(winners == name, f"{name}: {wins.share(wins.counts[name])}", c=colour)
    dots(
        (winners == NO_POLICY) & ~tied.isin([*rings]),
        f"{NO_POLICY}: {wins.share(wins.counts[NO_POLICY])}",
        c=GREY,
    )
    for names, marker in rings.items():
        label = f"{names_of(names)}\ntogether: {wins.share(wins.ties[names])}"
        edge = _colours(wins)[names.split(AND)[0]]
        ring: dict[str, Any] = {"c": "white", "edgecolors": edge, "linewidths": 1.1}
        dots(tied == names, label, marker=marker, **ring)


def _colours(wins: Wins) -> Mapping[str, str]:
    """Of the policies, the same in every row."""
    return dict(zip(wins.question.policies, COLOURS, strict=False))


def _shade(axes: Axes, wins: Wins, won: pd.DataFrame, winners: "pd.Series[str]") -> None:
    """The most frequent winner around, in its colour; nothing where most have none."""
    if won.empty:
        return
    across, up = (wins.question.space.dimension(name) for name in (LOAD, SPREAD))
    grid = np.linspace(0.0, 1.0, GRID)
    shares = (shares_of(one, won[one.name].to_numpy(float)) for one in (across, up))
    near_x, near_y = (np.exp(-0.5 * ((grid[:, None] - it) / WIDTH) ** 2) for it in shares)
    names = [NO_POLICY, *wins.question.policies]
    of_each = [(winners == name).to_numpy(bool) for name in names]
    most = np.argmax([near_y[:, here] @ near_x[:, here].T for here in of_each], axis=0)
    colours = ListedColormap(["white", *_colours(wins).values()])
    x, y = ([one.at(it) for it in grid.tolist()] for one in (across, up))
    look: dict[str, Any] = {"alpha": LIGHT, "linewidth": 0, "rasterized": True, "zorder": 0}
    axes.pcolormesh(x, y, most, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, **look)
