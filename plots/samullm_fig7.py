"""SamuLLM's figure 7, running time of LLM ensembling.

As in the paper each bar is inference time below and extra (planning) time above, and its two values
are relative to SamuLLM at the same setting: the inference time in the middle, the end-to-end time
on top. Heights are relative too, so that 1,000 and 10,000 requests are read off one axis. Bars are
means over seeds, whiskers their range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.runs.basis import cost_basis
from plots import style
from plots.inputs import Claims, Inputs, span_of

NAME, SEED = "config.system.name", "config.seed"
REQUESTS, LIMIT = "config.workload.requests", "config.workload.max_output_tokens"
OURS = "samullm"
LABELS = {
    OURS: "Ours (SamuLLM)",
    "max_heuristic": "Max-heuristic",
    "min_heuristic": "Min-heuristic",
}
COLOURS = dict(zip(LABELS, (style.BLUE, style.ORANGE, style.GREEN), strict=True))
CLAIMS = {"max_heuristic": "fig7.vs-max", "min_heuristic": "fig7.vs-min"}
BAR = 0.27  # of the distance between two groups

PaperRanges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one system at one setting: means over seeds, and the range of the whole."""

    inference_s: float
    end_to_end_s: float
    least_s: float
    most_s: float


TimesBySetting = Mapping[tuple[int, int, str], Times]  # by limit, request count, system


def plot(inputs: Inputs) -> Figure:
    """The figure. Raises `ValueError` where no setting has a run of SamuLLM."""
    return draw(inputs.runs["ensembling"], paper_ranges(inputs.printed))


def paper_ranges(printed: Claims) -> PaperRanges:
    """The paper's end-to-end speed-up over each baseline, smallest and largest of all settings."""
    return {name: span_of(printed[claim]) for name, claim in CLAIMS.items()}


def over_seeds(rows: pd.DataFrame) -> TimesBySetting:
    """Means and ranges over seeds. Raises `ValueError` where a seed was run in several ways."""
    cells: dict[tuple[int, int, str], Times] = {}
    keys = zip(rows[LIMIT], rows[REQUESTS], rows[NAME], strict=True)
    for limit, count, name in sorted(set(keys)):
        runs = rows[(rows[LIMIT] == limit) & (rows[REQUESTS] == count) & (rows[NAME] == name)]
        if runs[SEED].duplicated().any():
            raise ValueError(f"several runs of {name}, limit {limit}, {count} requests for a seed")
        whole = runs["end_to_end_s"]
        means = float(runs["inference_s"].mean()), float(whole.mean())
        cells[limit, count, name] = Times(*means, float(whole.min()), float(whole.max()))
    return cells


def draw(rows: pd.DataFrame, ranges: PaperRanges) -> Figure:
    """The figure. Raises `ValueError` where no setting has a run of SamuLLM."""
    cells = over_seeds(rows) if not rows.empty else {}
    ours = [(limit, count) for limit, count, name in cells if name == OURS]
    if not ours:
        raise ValueError("figure 7 needs runs of SamuLLM: run harness/run.py +scenario=ensembling")
    limits = sorted({limit for limit, _ in ours})
    figure = style.new_figure(1400, 120 + 390 * len(limits))
    panels = figure.subplots(len(limits), 1, squeeze=False, sharey=True)[:, 0]
    for panel, limit, letter in zip(panels, limits, "abcdefgh", strict=False):
        groups = {
            count: {
                name: cells[limit, count, name] for name in LABELS if (limit, count, name) in cells
            }
            for at, count in ours
            if at == limit
        }
        _draw_panel(panel, groups, ranges)
        panel.set_title(f"({letter}) Maximum output length limit = {limit}", loc="left")
    _add_legend(figure)
    style.add_footer(figure, footer(rows))
    return figure


def footer(rows: pd.DataFrame) -> str:
    """What the figure rests on."""
    seeds = rows[SEED].nunique()
    over = "1 seed, so no whiskers" if seeds == 1 else f"mean of {seeds} seeds, whiskers min to max"
    return (
        f"Simulated: inference time comes from the cost profile {cost_basis(rows)}. Bars: {over}.\n"
        "Extra time is wall-clock time of the planner, measured on the machine of the run, not the"
        " paper's. Values are relative to SamuLLM: in the bar inference, above it end-to-end."
    )


def _draw_panel(
    panel: Axes, groups: Mapping[int, Mapping[str, Times]], ranges: PaperRanges
) -> None:
    """Bars of one limit; `groups` maps request counts, ascending, to the systems' times."""
    for group, times in enumerate(groups.values()):
        for place, name in enumerate(LABELS):
            if name in times:
                x = group + (place - 1) * BAR
                _draw_bar(panel, x, times[name], unit=times[OURS], colour=COLOURS[name])
    end = len(groups)
    draw_ranges(panel, end, [(COLOURS[name], span) for name, span in ranges.items()])
    ticks = [f"{count:,}\n{times[OURS].end_to_end_s:,.0f} s" for count, times in groups.items()]
    panel.set_xticks([*range(end), end], [*ticks, "paper"])
    panel.tick_params(axis="x", length=0)
    panel.set_xlim(-0.55, end + 0.55)
    panel.axhline(1, color=style.INK, linewidth=0.8, linestyle=":")
    panel.margins(y=0.12)
    panel.grid(axis="y")
    panel.set_xlabel("Number of requests, and SamuLLM's end-to-end time")
    panel.set_ylabel("Running time / SamuLLM's")


def _draw_bar(panel: Axes, x: float, times: Times, *, unit: Times, colour: str) -> None:
    """One system at one setting, in units of SamuLLM's end-to-end time there."""
    inference = times.inference_s / unit.end_to_end_s
    whole = times.end_to_end_s / unit.end_to_end_s
    low, high = times.least_s / unit.end_to_end_s, times.most_s / unit.end_to_end_s
    look: dict[str, Any] = {"color": colour, "edgecolor": style.INK, "linewidth": 0.6}
    panel.bar(x, inference, BAR * 0.92, **look)
    panel.bar(x, whole - inference, BAR * 0.92, inference, hatch=style.HATCH, alpha=0.55, **look)
    if high > low:
        panel.vlines(x, low, high, color=style.INK, linewidth=1.4)
    text: dict[str, Any] = {"ha": "center", "fontsize": 8.5, "color": style.INK}
    box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    in_bar = f"{times.inference_s / unit.inference_s:.2f}"
    panel.text(x, inference / 2, in_bar, va="center", bbox=box, **text)
    above: dict[str, Any] = {"textcoords": "offset points", "va": "bottom", "weight": "bold"}
    panel.annotate(f"{whole:.2f}", (x, max(whole, high)), (0, 3), **above, **text)


def draw_ranges(panel: Axes, x: int, ranges: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """The paper's ranges of end-to-end times, by colour, in a column of their own."""
    panel.axvspan(x - 0.5, x + 0.55, color=style.GRID, alpha=0.35, linewidth=0)
    width = 0.88 / len(ranges)
    for place, (colour, (low, high)) in enumerate(ranges):
        middle = x + (place - (len(ranges) - 1) / 2) * width
        panel.bar(middle, high - low, 0.86 * width, bottom=low, color=colour, alpha=0.4)
        for value in (low, high):
            panel.text(middle, value + 0.02, f"{value:.1f}", ha="center", fontsize=8.5)


def _add_legend(figure: Figure) -> None:
    patches = [
        Patch(facecolor=COLOURS[name], edgecolor=style.INK, label=label)
        for name, label in LABELS.items()
    ]
    patches += [
        Patch(facecolor="white", edgecolor=style.INK, label="inference time"),
        Patch(facecolor="white", edgecolor=style.INK, hatch=style.HATCH, label="extra time"),
        Patch(facecolor=style.GRID, label="paper's range of end-to-end over all its settings"),
    ]
    figure.legend(handles=patches, loc="outside upper center", ncols=len(patches))
