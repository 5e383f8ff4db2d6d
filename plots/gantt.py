"""Which GPU did what when: `python -m plots.gantt RUN_FOLDER` draws gantt.png into the run folder.

Bars are busy stretches coloured by service; hatched bars are loads; what is empty is idle.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.patches import Patch

from plots import style

WIDTH, HEIGHT = 1400, 520  # pixels


def draw(gpu: pd.DataFrame, *, basis: str, folder: Path) -> list[Path]:
    """Draw the intervals of gpu.parquet; returns the files written."""
    figure = style.new_figure(WIDTH, HEIGHT)
    panel = figure.subplots()
    services = sorted({_service(group) for group in gpu["group"]})
    colours = dict(
        zip(services, [plt.get_cmap("tab20")(i % 20) for i in range(len(services))], strict=True)
    )
    for row in gpu.to_dict("records"):
        is_load = row["use"] == "loading"
        panel.barh(
            row["gpu"],
            row["end_s"] - row["start_s"],
            left=row["start_s"],
            height=0.8,
            color="white" if is_load else colours[_service(row["group"])],
            edgecolor=colours[_service(row["group"])],
            hatch="///" if is_load else None,
            linewidth=0.5,
        )
    count = int(gpu["gpu"].max()) + 1
    panel.set_yticks(range(count), [f"GPU {i}" for i in range(count)])
    panel.invert_yaxis()
    panel.set_xlim(0, gpu["end_s"].max())
    panel.set_xlabel("seconds (simulated); hatched: loading, empty: idle")
    handles = [Patch(color=colours[service], label=service) for service in services]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    style.add_footer(figure, f"Simulated on {basis}.")
    return style.save(figure, folder / "gantt")


def _service(group: str) -> str:
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
