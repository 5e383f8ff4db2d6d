"""GPUs that a load needs, against the load or by hour."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots import style

WIDTH_PIXELS, HEIGHT_PIXELS, TICK_PIXELS = 760, 460, 46
"""Of a panel, and the width that a bar needs at least."""


def plot(curve: pd.DataFrame, about: str) -> Figure:
    """A panel of steps for loads and one of bars for hours, whichever the frame has.

    `curve` has `what` (load or hour), `at`, `requests_per_s`, and `gpus`, NaN where no number of
    them that was tried suffices.
    """
    kinds = [(str(what), rows) for what, rows in curve.groupby("what", sort=False)]
    widths = [max(WIDTH_PIXELS, TICK_PIXELS * len(rows)) for _, rows in kinds]
    figure = style.new_figure(sum(widths), HEIGHT_PIXELS)
    panels = figure.subplots(1, len(kinds), squeeze=False, width_ratios=widths)[0]
    for axes, (what, rows) in zip(panels, kinds, strict=True):
        (_loads if what == "load" else _hours)(axes, rows)
        axes.set_ylabel("GPUs that keep the objectives")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)
    style.add_footer(figure, about)
    return figure


def _loads(axes: Axes, rows: pd.DataFrame) -> None:
    load = rows["at"].astype(float).to_numpy()
    gpus = rows["gpus"].astype(float).to_numpy()
    axes.plot(load, gpus, color=style.BLUE, marker="o", lw=1.5)
    for x, y, name in zip(load, gpus, _names(rows), strict=True):
        if np.isfinite(y):
            axes.annotate(name, (x, y), (0, 7), textcoords="offset points", ha="center", fontsize=8)
        else:
            axes.annotate("none", (x, 0), (0, 5), textcoords="offset points", ha="center")
    per_s = rows["requests_per_s"].to_numpy(float) / load
    axes.set_xlabel(f"multiple of the trace's rate of {per_s[0]:.3g} requests/s")
    axes.margins(x=0.08, y=0.15)


def _hours(axes: Axes, rows: pd.DataFrame) -> None:
    gpus = rows["gpus"].astype(float).to_numpy()
    axes.bar(range(len(rows)), np.nan_to_num(gpus), color=style.SKY, width=0.7)
    for x, (y, name) in enumerate(zip(gpus, _names(rows), strict=True)):
        said = name if np.isfinite(y) else "none"
        at = (x, np.nan_to_num(y))
        axes.annotate(said, at, (0, 4), textcoords="offset points", ha="center", fontsize=7.5)
    ticks = [
        f"{at}\n{rate:.3g}/s" for at, rate in zip(rows["at"], rows["requests_per_s"], strict=True)
    ]
    axes.set_xticks(range(len(rows)), ticks, fontsize=8)
    axes.margins(y=0.15)


def _names(rows: pd.DataFrame) -> list[str]:
    """Replicas and tensor parallelism of each row's setting."""
    if "replicas" not in rows:
        return [""] * len(rows)
    pairs = zip(rows["replicas"], rows["tensor_parallel"], strict=True)
    return ["" if pd.isna(dp) else f"{dp:.0f} x tp{tp:.0f}" for dp, tp in pairs]
