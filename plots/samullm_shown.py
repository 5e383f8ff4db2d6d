"""SamuLLM's figures 2, 3, 4 and 10, its insights: `python -m plots.samullm_shown fig2`.

Figures 2 and 4 are drawn from tables that `harness.fitting.shapes` derives from measured rows, 3
and 10 from runs; written are results/figures/samullm_<figure>.png and .pdf.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.paths import PROFILES
from harness.runs.record import ROOT, current, read_summaries
from plots import style
from plots.samullm_shapes import chunks_of

UNITS = {
    "forward_s": ("(a) computation", "10^12 FLOPs"),
    "prepare_s": ("(b) input preparation", "padded tokens"),
    "sample_s": ("(c) sampling", "context tokens"),
}
DOCUMENTS = 100


def figure2(results: Path) -> Figure:
    """Distributions of output lengths by region of the prompt's length and by category."""
    content = _table("lengths_by_prompt.json")
    rows = content["rows"]
    figure = style.new_figure(1200, 520)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, kind, letter in zip(panels, ("region", "category"), "ab", strict=True):
        for row in (row for row in rows if row["kind"] == kind):
            share = np.linspace(0, 1, len(row["tokens"]))
            label = f"{row['group']} ({row['count']}; D {row['distance']:.2f})"
            panel.plot(row["tokens"], share, label=label)
        panel.set_title(f"({letter}) by {kind}", loc="left")
        panel.set_xlabel("output tokens")
        panel.set_xlim(0, 1000)
        panel.legend(fontsize=9)
    panels[0].set_ylabel("share of requests")
    style.add_footer(
        figure,
        f"Measured: {content['about']}; {content['source']}. The paper's own answers to No Robots "
        "are not published by prompt. In brackets the number of requests and the largest "
        "difference from the distribution of all others.",
    )
    return figure


def figure4(results: Path) -> Figure:
    """Lines through the components of a decode iteration at fixed numbers of requests."""
    content = _table("linear_latency.json")
    figure = style.new_figure(1500, 520)
    panels = figure.subplots(1, len(UNITS))
    for panel, (part, (title, unit)) in zip(panels, UNITS.items(), strict=True):
        rows = [r for r in content["rows"] if r["part"] == part and r["phase"] == "decode"]
        for row, shade in zip(
            rows, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(rows))), strict=True
        ):
            x = np.array([row["low"], row["high"]])
            label = f"{row['requests']} ({row['explained']:.2f})"
            panel.plot(x, 1e3 * (row["base_s"] + row["per_x_s"] * x), color=shade, label=label)
        panel.set_title(f"{title}: {rows[0]['explained_median']:.2f}", loc="left")
        panel.set_xlabel(unit)
        panel.set_ylabel("milliseconds")
        panel.set_ylim(bottom=0)
        panel.legend(title="requests", fontsize=8, ncols=2)
    style.add_footer(
        figure,
        f"Measured: {content['about']}; {content['source']}. Lines fitted to decode iterations at "
        "a fixed number of requests; in brackets the share of the variance that each explains, in "
        "the titles its median over all numbers of requests.",
    )
    return figure


def figure3(results: Path) -> Figure:
    """Running requests by iteration, on real vLLM and on the simulator. ValueError without runs."""
    rows = current(read_summaries(results / "running_requests"))
    if len(rows) != 2:
        raise ValueError(
            f"figure 3 needs 2 runs, not {len(rows)}: make setup-vllm, then harness/run.py "
            "+scenario=running_requests"
        )
    figure = style.new_figure(1200, 480)
    panels = figure.subplots(1, 2, sharey=True, sharex=True)
    for panel, (_, row) in zip(panels, rows.sort_values("engine").iterrows(), strict=True):
        steps = pd.read_parquet(Path(str(row["folder"])) / "iterations.parquet")
        steps = steps.loc[steps.index.repeat(steps["iterations"])]
        running = (steps["prefill_requests"] + steps["decode_requests"]).to_numpy()
        seconds = float((steps["duration_s"] / steps["iterations"]).sum())
        panel.plot(np.arange(len(running)), running, color=style.BLUE, linewidth=1.2)
        panel.set_title(f"{row['engine']}: {seconds:.1f} s", loc="left")
        panel.set_xlabel("iteration")
    panels[0].set_ylabel("running requests")
    style.add_footer(
        figure,
        "A model of random weights (m100) with 400 requests on one machine's CPU; the paper shows "
        "vicuna-13b with 1000 requests on an A100. Seconds: sum over iterations.",
    )
    return figure


def figure10(results: Path) -> Figure:
    """Chunks of the documents of one workload, longest first. ValueError without a run."""
    rows = current(read_summaries(results / "chain_summary"))
    at = {"config.workload.documents": DOCUMENTS, "config.seed": 0}
    for column, value in at.items():
        rows = rows[rows[column] == value] if column in rows else rows[:0]
    if rows.empty:
        raise ValueError("figure 10 needs a run: run harness/run.py +scenario=chain_summary")
    chunks = chunks_of(Path(str(rows["folder"].iloc[0]))).sort_values(ascending=False)
    figure = style.new_figure(1000, 420)
    panel = figure.subplots()
    panel.bar(np.arange(len(chunks)), chunks.to_numpy(), width=1.0, color=style.BLUE)
    panel.set_xlabel("document")
    panel.set_ylabel("chunks of 2048 tokens")
    style.add_footer(
        figure,
        f"{DOCUMENTS} documents of our workload, seed 0: median {chunks.median():g}, longest "
        f"{chunks.max()}. The paper's are not published; ours are lognormal with its median and "
        "its longest document.",
    )
    return figure


FIGURES: Mapping[str, Callable[[Path], Figure]] = {
    "fig2": figure2,
    "fig3": figure3,
    "fig4": figure4,
    "fig10": figure10,
}


def _table(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PROFILES / "shapes" / name).read_text(encoding="utf-8"))
    return content


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw figures; the exit status."""
    parser = argparse.ArgumentParser(description="Draw what SamuLLM's insights rest on.")
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    given = parser.parse_args(arguments)
    try:
        for name in given.figures:
            figure = FIGURES[name](given.results)
            for path in style.save(figure, given.results / "figures" / f"samullm_{name}"):
                print(path)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
