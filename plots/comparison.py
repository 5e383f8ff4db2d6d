"""A comparison: how much worse than the best each policy is, by figure and setting."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.runs.figures import header_of
from plots import style

WORST = 1.0
"""Regret from which the colour does not change."""
ROW_PIXELS, COLUMN_PIXELS, NAME_PIXELS, AROUND_PIXELS = 15, 40, 160, 110
"""Of a policy, a setting, the names of policies, and what is above and below a panel."""


def plot(
    found: pd.DataFrame, panels: Sequence[Sequence[str]], about: str, *, text: str = "regret"
) -> Figure:
    """Heat maps, each of `panels` a column of figures; a dot: no policy is better beyond noise.

    `found` is a frame of `harness.runs.comparison.compared` by `policy`, whose settings have a
    `group` and, within it, a `tick`, both texts in the order of the frame. Cells say by how many
    percent a policy is worse than the best, or as `text` names another column, its number.
    """
    rows = max(map(len, panels))
    settings = [_settings(found, names[0]) for names in panels]
    policies = found["policy"].nunique()
    figure = style.new_figure(
        sum(NAME_PIXELS + COLUMN_PIXELS * len(it) for it in settings),
        rows * (AROUND_PIXELS + ROW_PIXELS * policies) + AROUND_PIXELS,
    )
    widths = [len(it) + NAME_PIXELS / COLUMN_PIXELS for it in settings]
    grid = figure.subplots(rows, len(panels), squeeze=False, width_ratios=widths)
    for column, names in zip(grid.T, panels, strict=True):
        of_column = found[found["figure"].isin(names)]
        order = of_column.groupby("policy")["regret"].median().sort_values().index
        for axes, name in zip(column, names, strict=True):
            _map(axes, found[found["figure"] == name], list(order), text)
            worse = ": % worse than the best" if text == "regret" else ""
            axes.set_title(f"{header_of(name)}{worse}", loc="left", fontsize=11)
    said = "Colour: how much worse than the best. A dot: no policy is better beyond noise."
    style.add_footer(figure, f"{about}\n{said}")
    return figure


def _settings(found: pd.DataFrame, name: str) -> list[tuple[str, str]]:
    places = found.loc[found["figure"] == name, ["group", "tick"]].drop_duplicates()
    return list(places.itertuples(index=False, name=None))


def _map(axes: Axes, rows: pd.DataFrame, policies: list[str], text: str) -> None:
    keys = _settings(rows, str(rows["figure"].iloc[0]))
    index = rows.set_index(["policy", "group", "tick"])
    regrets, ranks, numbers = (
        index[name].unstack(["group", "tick"]).reindex(policies)[keys].to_numpy(float)
        for name in ("regret", "rank", text)
    )
    axes.imshow(np.clip(regrets, 0, WORST), cmap="viridis_r", aspect="auto", vmin=0, vmax=WORST)
    for row, column in np.ndindex(regrets.shape):
        number = float(numbers[row, column])
        if np.isfinite(number):
            is_percent, is_dark = text == "regret", regrets[row, column] > WORST / 2
            said = f"{100 * min(number, 9.99):.0f}" if is_percent else f"{number:.3g}"
            dot = "\u2022" if ranks[row, column] == 1 else ""
            beside: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
            axes.text(
                column, row, f"{said}{dot}", color="white" if is_dark else style.INK, **beside
            )
    axes.set_yticks(range(len(policies)), policies, fontsize=9)
    axes.set_xticks(range(len(keys)), [tick for _, tick in keys], fontsize=8)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    groups = [group for group, _ in keys]
    for group in dict.fromkeys(groups):
        first, count = groups.index(group), groups.count(group)
        axes.axvline(first - 0.5, color="white", lw=3)
        place = (first + (count - 1) / 2, 0.0)
        below: dict[str, Any] = {"xytext": (0, -16), "textcoords": "offset points", "va": "top"}
        whole = axes.get_xaxis_transform()
        axes.annotate(group, place, xycoords=whole, ha="center", fontsize=9, **below)
