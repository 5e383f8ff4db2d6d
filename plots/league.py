"""The league: how much worse than the best each policy is, by load and share of capacity."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.runs.figures import header_of
from plots import style

DRAWN = (("jct_s_mean", "ttft_s_p99"), ("act_s_mean", "act_s_p95"))
"""Of requests, and of applications."""
WORST = 1.0
"""Regret from which the colour does not change."""


def plot(found: pd.DataFrame, about: str) -> Figure:
    """Heat maps, those of applications on the right; a dot: no policy is better beyond noise."""
    figure = style.new_figure(1700, 900)
    drawn = [names for names in DRAWN if found["figure"].isin(names).any()]
    widths = [found[found["figure"] == name]["load"].nunique() + 1 for name, _ in drawn]
    grid = figure.subplots(2, len(drawn), squeeze=False, width_ratios=widths)
    for column, names in enumerate(drawn):
        rows = found[found["figure"].isin(names)]
        order = rows.groupby("policy")["regret"].median().sort_values().index
        for axes, name in zip(grid[:, column], names, strict=True):
            _map(axes, rows[rows["figure"] == name], [str(policy) for policy in order])
            axes.set_title(f"{header_of(name)}: % worse than the best", loc="left", fontsize=11)
    style.add_footer(
        figure,
        f"{about[0].upper()}{about[1:]}. A dot: no policy is better beyond noise. Columns: shares "
        "of capacity, and s: with KV for a few requests.",
    )
    return figure


def _map(axes: Axes, rows: pd.DataFrame, policies: list[str]) -> None:
    places = rows[["load", "kv", "share"]].drop_duplicates().sort_values(["load", "kv", "share"])
    keys: list[tuple[str, str, float]] = list(places.itertuples(index=False, name=None))
    index = rows.set_index(["policy", "load", "kv", "share"])
    regrets = np.array([[index.loc[(p, *key), "regret"] for key in keys] for p in policies], float)
    ranks = np.array([[index.loc[(p, *key), "rank"] for key in keys] for p in policies], float)
    axes.imshow(np.clip(regrets, 0, WORST), cmap="viridis_r", aspect="auto", vmin=0, vmax=WORST)
    for row, column in np.ndindex(regrets.shape):
        value = float(regrets[row, column])
        if np.isfinite(value):
            dot = "\u2022" if ranks[row, column] == 1 else ""
            colour = "white" if value > WORST / 2 else style.INK
            text = f"{100 * min(value, 9.99):.0f}{dot}"
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_yticks(range(len(policies)), policies, fontsize=9)
    names = [f"{share:g}" if kv == "ample" else "s" for _, kv, share in keys]
    axes.set_xticks(range(len(keys)), names, fontsize=8)
    axes.tick_params(length=0)
    loads = [load for load, *_ in keys]
    for load in dict.fromkeys(loads):
        first, count = loads.index(load), loads.count(load)
        axes.axvline(first - 0.5, color="white", lw=3)
        axes.text(
            first + (count - 1) / 2, len(policies) + 0.35, load, ha="center", va="top", fontsize=9
        )
    axes.grid(visible=False)
