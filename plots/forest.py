"""Forest plot of a paper's claims: share of the claimed effect with its interval."""

from collections.abc import Sequence
from math import isfinite, isnan

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.claims.judge import Judged
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
ROW_PIXELS, MOST_ROW_PIXELS, REST_PIXELS = 880, 18, 90
LETTERS = 78


def draw(judged: Sequence[Judged]) -> Figure:
    """A row per claim in their order; at most about 1,000 pixels tall."""
    row_pixels = min(MOST_ROW_PIXELS, ROW_PIXELS / max(len(judged), 1))
    figure = style.new_figure(1000, round(row_pixels * len(judged)) + REST_PIXELS)
    axes = figure.subplots()
    letters = min(8.5, row_pixels * 0.52)
    axes.axvspan(*NEAR, color=style.GREEN, alpha=0.12, linewidth=0)
    axes.axvline(1, color=style.INK, linewidth=1)
    axes.axvline(0, color=style.INK, linewidth=0.6, linestyle=":")
    for place, one in enumerate(judged):
        _row(axes, place, one, letters)
    axes.set_xlim(*SHOWN)
    axes.set_ylim(len(judged) - 0.4, -0.6)
    axes.set_yticks(range(len(judged)), [_label(one) for one in judged], fontsize=letters)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(
        "share of the claimed effect: 0 none, 1 as printed; band 2/3 to 3/2; bars: 95% intervals",
        fontsize=8.5,
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


def _row(axes: Axes, place: int, one: Judged, letters: float) -> None:
    found = one.verdict
    colour = COLOURS[found.word]
    axes.text(SHOWN[1] + 0.06, place, found.word, color=colour, fontsize=letters, va="center")
    if isnan(found.share):
        return
    low, high = (
        min(max(end, SHOWN[0]), SHOWN[1]) if isfinite(end) else found.share
        for end in (found.share_low, found.share_high)
    )
    axes.plot([low, high], [place, place], color=colour, linewidth=1.4, solid_capstyle="butt")
    at = min(max(found.share, SHOWN[0]), SHOWN[1])
    mark = "o" if at == found.share else "<" if at == SHOWN[0] else ">"
    axes.plot(at, place, marker=mark, markersize=4.5, color=colour, clip_on=False)
