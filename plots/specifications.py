"""Specification curves of a paper: every claim over what its paper leaves open.

One panel a claim: its figure under every setting, sorted, with 95% intervals over seeds, beside the
paper's; below it marks say which value each choice has there. The stated setting is ringed.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from plots import style

Row = Mapping[str, Any]

COLUMNS = 3
WIDTH_PIXELS = 1650
CURVE_PIXELS, CHOICE_PIXELS, AROUND_PIXELS = 190, 20, 90
LABEL_LETTERS = 30
COLOURS = {
    "agrees": style.BLUE,
    "direction only": style.ORANGE,
    "differs": style.RED,
    "cannot be told": style.INK,
    "not run": style.GRID,
}
MARKERS = {
    "agrees": "o",
    "direction only": "D",
    "differs": "X",
    "cannot be told": "_",
    "not run": ".",
}


def curves_of(rows: Sequence[Row]) -> list[Row]:
    """The claims with a curve to draw: several settings, of which one has a figure."""
    return [
        row
        for row in rows
        if len(row["specifications"]) > 1
        and any(one["value"] is not None for one in row["specifications"])
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """The curves of claims as a verdict file has them. Raises ValueError where there is none."""
    shown = curves_of(rows)
    if not shown:
        raise ValueError("no claim has been judged under several settings")
    lines = [shown[at : at + COLUMNS] for at in range(0, len(shown), COLUMNS)]
    choices = [max(len(_choices(row)) for row in line) for line in lines]
    heights = [CURVE_PIXELS + AROUND_PIXELS + CHOICE_PIXELS * count for count in choices]
    figure = style.new_figure(WIDTH_PIXELS, 130 + sum(heights))
    grid = figure.add_gridspec(ceil(len(shown) / COLUMNS), COLUMNS, height_ratios=heights)
    for at, (line, count) in enumerate(zip(lines, choices, strict=True)):
        for column, row in enumerate(line):
            ratios = [CURVE_PIXELS, CHOICE_PIXELS * count]
            inner = grid[at, column].subgridspec(2, 1, height_ratios=ratios, hspace=0.02)
            upper = figure.add_subplot(inner[0])
            _panel(upper, figure.add_subplot(inner[1], sharex=upper), row, count)
    _legend(figure)
    return figure


def _panel(upper: Axes, lower: Axes, row: Row, lines: int) -> None:
    found = sorted(row["specifications"], key=_rank)
    name = row["id"].partition(".")[2]
    upper.set_title(f"{name}: {row['verdict']}", loc="left", fontsize=10)
    if row["band"]:
        low, high = row["band"]
        upper.axhspan(low, high, color=style.GREEN, alpha=0.25, linewidth=0)
        for end in {low, high}:
            upper.axhline(end, color=style.GREEN, linewidth=1)
    choices = _choices(row)
    _draw(upper, lower, found, choices)
    upper.tick_params(labelbottom=False, bottom=False, labelsize=9)
    upper.margins(y=0.15)
    lower.set_yticks(range(len(choices)), [_label(*choice) for choice in choices], fontsize=8)
    lower.set_ylim(lines - 0.5, -0.5)
    lower.set_xlim(-0.6, len(found) - 0.4)
    lower.set_xticks([])
    lower.grid(visible=False)
    for side in ("left", "bottom"):
        lower.spines[side].set_visible(False)
    lower.tick_params(left=False)


def _draw(
    upper: Axes, lower: Axes, found: Sequence[Row], choices: Sequence[tuple[str, object]]
) -> None:
    """The figures of settings above, the values of their choices below."""
    others = [
        (at, place)
        for at, one in enumerate(found)
        for place, choice in enumerate(choices)
        if not _is_chosen(one, *choice)
    ]
    lower.plot(*_columns(others), "s", color=style.GRID, markersize=2)
    # One artist for all that look alike: there are a hundred thousand marks.
    for agreement, colour in COLOURS.items():
        alike = [(at, one) for at, one in enumerate(found) if one["agreement"] == agreement]
        _marks(upper, alike, colour, MARKERS[agreement])
        chosen = [
            (at, place)
            for at, one in alike
            for place, choice in enumerate(choices)
            if _is_chosen(one, *choice)
        ]
        lower.plot(*_columns(chosen), "s", color=colour, markersize=5)
    stated = [(at, one["value"]) for at, one in enumerate(found) if not one["varied"]]
    there = [point for point in stated if point[1] is not None]
    upper.plot(*_columns(there), "o", color=style.INK, fillstyle="none", markersize=12)


def _marks(axes: Axes, alike: Sequence[tuple[int, Row]], colour: str, marker: str) -> None:
    """Figures of settings that agree alike, with their intervals."""
    there = [(at, one) for at, one in alike if one["value"] is not None]
    spans = [(at, one["low"], one["high"]) for at, one in there if one["low"] is not None]
    if spans:
        at, low, high = _columns(spans)
        axes.vlines(at, low, high, color=colour, linewidth=1.5)
    points = [(at, one["value"]) for at, one in there]
    axes.plot(*_columns(points), marker, color=colour, markersize=6)


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    """Their columns; two empty ones where there are no rows."""
    return tuple(map(list, zip(*rows, strict=True))) or ([], [])


def _is_chosen(one: Row, key: str, value: object) -> bool:
    return str(one["choices"][key]) == str(value)


def _rank(one: Row) -> tuple[bool, float]:
    return one["value"] is None, one["value"] or 0.0


def _choices(row: Row) -> list[tuple[str, object]]:
    """Every key with each of its values, the stated one first."""
    return [(one["key"], value) for one in row["open"] for value in one["values"]]


def _label(key: str, value: object) -> str:
    """The last word of a key, and the value; a long one is cut."""
    text = f"{key.rpartition('.')[2].replace('_', ' ')} {value}"
    return text if len(text) <= LABEL_LETTERS else f"{text[: LABEL_LETTERS - 1]}…"


def _legend(figure: Figure) -> None:
    marks = [
        Line2D([], [], color=COLOURS[name], marker=MARKERS[name], label=name)
        for name in ("agrees", "direction only", "differs", "cannot be told")
    ]
    stated = Line2D([], [], color=style.INK, marker="o", linestyle="", label="stated setting")
    stated.set(fillstyle="none", markersize=12)
    paper = Patch(color=style.GREEN, alpha=0.4, label="the paper's figure or range")
    figure.legend(handles=[*marks, stated, paper], loc="outside upper left", ncols=5, fontsize=10)
    style.add_footer(
        figure,
        "Every claim under each value of what its paper leaves open, one choice changed at a time, "
        "sorted by outcome; bars are 95% intervals over seeds. Of a range over settings the mean "
        "is shown, of a trend the weakest rank correlation. Squares below a point: the values of "
        "the choices there, the stated one first.",
    )
