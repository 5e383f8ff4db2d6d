"""How every figure looks: size, colours, hatching, footer, files."""

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")

DOTS_PER_INCH = 100
FOOTER_PIXELS = 7.1  # of a letter
# Okabe and Ito's colours, told apart by readers with any common colour vision deficiency.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
RED, SKY, PURPLE = "#D55E00", "#56B4E9", "#CC79A7"
INK, GRID = "#222222", "#D0D0D0"
HATCH = "////"

SETTINGS: dict[Any, Any] = {
    "font.size": 11,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
}


LEGEND_KEY_PIXELS, LEGEND_PIXELS = 70, 8
"""About the width of a legend's entry without its label, and of a letter."""


def new_figure(width_pixels: int, height_pixels: int) -> Figure:
    """An empty figure in the house style, its size as in the PNG."""
    mpl.rcParams.update(SETTINGS)
    inches = (width_pixels / DOTS_PER_INCH, height_pixels / DOTS_PER_INCH)
    return Figure(figsize=inches, dpi=DOTS_PER_INCH, layout="constrained")


def add_legend(figure: Figure) -> None:
    """The legend of the first panel, above all panels: in one line where the width allows it."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    width = figure.get_size_inches()[0] * DOTS_PER_INCH
    needed = sum(LEGEND_KEY_PIXELS + LEGEND_PIXELS * len(label) for label in labels)
    ncols = -(-len(labels) // max(1, -(-needed // int(width))))
    figure.legend(handles, labels, loc="outside upper center", ncols=ncols)


def add_footer(figure: Figure, text: str) -> None:
    """What the figure is: measured or simulated, on what, over how many seeds."""
    width = int(figure.get_size_inches()[0] * DOTS_PER_INCH / FOOTER_PIXELS)
    text = text.replace("$", r"\$")  # of a file's name, not of a formula
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, width)]
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=9.5, color=INK)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.png and `stem`.pdf, the same bytes for the same figure; their paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, pdf = stem.with_suffix(".png"), stem.with_suffix(".pdf")
    figure.savefig(png, metadata={"Software": None})
    figure.savefig(pdf, metadata={"CreationDate": None})
    return [png, pdf]
