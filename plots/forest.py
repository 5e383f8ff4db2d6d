"""Forest plot of a paper's claims: share of the claimed effect with its interval.

Narrow, with each label above its bar, so that a page on a telephone (390 pixels) shows letters that
can be read.
"""

from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.claims.paper import Judged
from harness.claims.verdicts import NEAR, Word
from plots import style

COLOURS = {
    Word.HOLDS: style.GREEN,
    Word.PARTLY: style.ORANGE,
    Word.FAILS: style.RED,
    Word.UNTESTED: "#888888",
}
SHOWN = (-0.5, 2.5)
"""Shares beyond stand at the edge, as arrows."""
WIDTH_PIXELS, ROW_PIXELS, REST_PIXELS = 520, 28, 80
LETTERS, POINTS = 62, 9.5
"""Of a label: the most letters, and their size; 13 pixels, 10 on a telephone."""


def draw(judged: Sequence[Judged]) -> Figure:
    """A label and a bar per claim that has a share, in their order."""
    shown = [one for one in judged if not isnan(one.verdict.share)]
    figure = style.new_figure(WIDTH_PIXELS, ROW_PIXELS * len(shown) + REST_PIXELS)
    axes = figure.subplots()
    axes.axvspan(*NEAR, color=style.GREEN, alpha=0.12, linewidth=0)
    axes.axvline(1, color="#999999", linewidth=1)
    axes.axvline(0, color="#999999", linewidth=0.8, linestyle=":")
    for place, one in enumerate(shown):
        _row(axes, place, one)
    axes.set_xlim(*SHOWN)
    axes.set_ylim(len(shown) - 0.6, -0.8)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=POINTS)
    axes.spines["left"].set_visible(False)
    count = len(judged) - len(shown)
    left = f"; {count} claim{' has' if count == 1 else 's have'} no size" if count else ""
    axes.set_xlabel(
        "share of the claimed effect: 0 none, 1 as printed\n"
        f"band: 2/3 to 3/2; bars: 95% intervals{left}",
        fontsize=POINTS,
    )
    return figure


def _label(one: Judged) -> str:
    """Figure, group unless it names its claims in brackets, claim; long groups are cut."""
    claim = one.claim
    group = "" if claim.group.endswith(")") else claim.group
    says = _cut(claim.says, LETTERS - len(claim.figure))
    room = LETTERS - len(claim.figure) - len(says)
    parts = (claim.figure, _cut(group, room) if room > 6 else "", says)
    return ": ".join(filter(None, parts))


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 3].rstrip()}..."


def _row(axes: Axes, place: int, one: Judged) -> None:
    """The label and the word above, the bar below them."""
    found = one.verdict
    colour = COLOURS[found.word]
    beside: dict[str, Any] = {"fontsize": POINTS, "va": "center", "clip_on": False}
    axes.text(SHOWN[0], place - 0.42, _label(one), color=style.INK, **beside)
    axes.text(SHOWN[1], place - 0.42, found.word, color=colour, ha="right", **beside)
    low, high = (
        min(max(end, SHOWN[0]), SHOWN[1]) if isfinite(end) else found.share
        for end in (found.share_low, found.share_high)
    )
    axes.plot([low, high], [place, place], color=colour, linewidth=2, solid_capstyle="butt")
    at = min(max(found.share, SHOWN[0]), SHOWN[1])
    mark = "o" if at == found.share else "<" if at == SHOWN[0] else ">"
    axes.plot(at, place, marker=mark, markersize=6, color=colour, clip_on=False)
