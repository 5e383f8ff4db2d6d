"""Which GPU did what when: `python -m plots.gantt RUN_FOLDER` draws gantt.png into the run folder.

Bars are busy stretches coloured by service; hatched bars are loads; what is empty is idle.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from plots import style

Colours = Mapping[str, tuple[float, float, float, float]]

WIDTH, HEIGHT = 1400, 520  # pixels


def draw(gpu: pd.DataFrame, *, basis: str, folder: Path) -> list[Path]:
    """Draw the intervals of gpu.parquet; returns the files written."""
    figure = style.new_figure(WIDTH, HEIGHT)
    panel = figure.subplots()
    colours = colours_of(gpu)
    draw_panel(panel, gpu, colours)
    panel.set_xlabel("seconds (simulated); hatched: loading, empty: idle")
    add_legend(figure, colours)
    style.add_footer(figure, f"Simulated on {basis}.")
    return style.save(figure, folder / "gantt")


def colours_of(gpu: pd.DataFrame) -> Colours:
    """A colour for every service."""
    services = sorted({service_of(group) for group in gpu["group"]})
    shades = [plt.get_cmap("tab20")(i % 20) for i in range(len(services))]
    return dict(zip(services, shades, strict=True))


def add_legend(figure: Figure, colours: Colours) -> None:
    """Which colour is which service."""
    handles = [Patch(color=colour, label=service) for service, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))


def draw_panel(panel: Axes, gpu: pd.DataFrame, colours: Colours) -> None:
    """Every interval on the GPU's line."""
    for row in gpu.to_dict("records"):
        is_load = row["use"] == "loading"
        panel.barh(
            row["gpu"],
            row["end_s"] - row["start_s"],
            left=row["start_s"],
            height=0.8,
            color="white" if is_load else colours[service_of(row["group"])],
            edgecolor=colours[service_of(row["group"])],
            hatch="///" if is_load else None,
            linewidth=0.5,
        )
    count = int(gpu["gpu"].max()) + 1
    panel.set_yticks(range(count), [f"GPU {i}" for i in range(count)])
    panel.invert_yaxis()
    panel.set_xlim(0, gpu["end_s"].max())
    panel.grid(visible=False)


def service_of(group: str) -> str:
    """Group ids are service@gpus."""
    return group.partition("@")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw a run; the exit status."""
    parser = argparse.ArgumentParser(description="Draw what every GPU did in a run.")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    if not (given.folder / "gpu.parquet").is_file():
        print(f"error: {given.folder} is no run folder: it has no gpu.parquet", file=sys.stderr)
        return 2
    costs = json.loads((given.folder / "provenance.json").read_text())["costs"]
    gpu = pd.read_parquet(given.folder / "gpu.parquet")
    for path in draw(gpu, basis=f"the cost profile {costs['profile']}", folder=given.folder):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
