"""Attainment and goodput of policies against load, each with its interval."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.runs.figures import header_of
from plots import style

SHOWN = ("slo_attainment", "goodput_per_s")
INSTEAD = ("jct_s_mean", "requests_per_s")
"""Where there are no objectives."""
MOST_NAMED = 5
"""Policies with a line of their own; others are thin and grey."""
LINES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
COLOURS = (style.INK, style.BLUE, style.RED, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)


def plot(figures: pd.DataFrame, reference: str, own_load: float, about: str) -> Figure:
    """Two panels, 900 pixels wide; `figures` are those of `harness.compare.Comparison`.

    Lines differ in colour, dash and marker. The reference and the
    best policies have names.
    """
    figure = style.new_figure(900, 620)
    there = set(figures["figure"])
    shown = SHOWN if SHOWN[0] in there else INSTEAD
    named = _named(figures, reference, shown[0])
    for axes, name in zip(figure.subplots(1, 2), shown, strict=True):
        _panel(axes, figures[figures["figure"] == name], named, own_load)
        axes.set_title(header_of(name), loc="left", fontsize=12)
        axes.set_xlabel(f"load, as a share of what {reference} serves")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=10)
    style.add_footer(
        figure,
        f"Simulated. Bars: 95% over blocks of the trace. Vertical line: the own rate. {about}",
    )
    return figure


def _named(figures: pd.DataFrame, reference: str, name: str) -> list[str]:
    """The reference, then policies that beat it at most loads, and those of the best mean."""
    policies = figures[figures["figure"] == name].groupby("policy")
    order = pd.DataFrame(
        {
            "wins": policies["sign"].agg(lambda signs: (signs > 0).sum()),
            "mean": policies["value"].mean() * (-1 if name.startswith("jct") else 1),
        }
    ).sort_values(["wins", "mean"], ascending=False)
    best = [str(it) for it in order.index if it != reference]
    return [reference, *best[:MOST_NAMED]]


def _panel(axes: Axes, rows: pd.DataFrame, named: list[str], own_load: float) -> None:
    others = [name for name in rows["policy"].unique() if name not in named]
    label = "others" if others else None
    for name in others:
        at = rows[rows["policy"] == name].sort_values("load")
        axes.plot(at["load"], at["value"], color=style.GRID, lw=1, label=label, zorder=1)
        label = None
    for place, name in enumerate(named):
        at = rows[rows["policy"] == name].sort_values("load")
        # Bars of policies beside each other, not over each other.
        shift = (place - len(named) / 2) * 0.006
        spans = [at["value"] - at["low"], at["high"] - at["value"]]
        axes.errorbar(
            at["load"] + shift,
            at["value"],
            yerr=[span.clip(lower=0).fillna(0) for span in spans],
            color=COLOURS[place],
            ls=LINES[place],
            marker=MARKERS[place],
            ms=5,
            lw=1.6,
            elinewidth=0.9,
            capsize=2,
            label=name,
            zorder=3,
        )
    axes.axvline(own_load, color=style.INK, lw=0.8, ls=(0, (1, 3)))
    axes.set_ylim(0, 1.05 * float(rows[["value", "high"]].max().max() or 1))
