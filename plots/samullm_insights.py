"""SamuLLM's figures 2, 3, 4 and 10, its insights.

Figures 2 and 4 are drawn from tables that `harness.tools.fitting.shapes` derives from measured
rows, 3 and 10 from runs.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from harness.claims.effects import run_in
from plots import style
from plots.inputs import Inputs
from systems.samullm.measures import chunks_of, derived_table, iterations_s, running_requests

UNITS = {
    "forward_s": ("(a) computation", "10^12 FLOPs"),
    "prepare_s": ("(b) input preparation", "padded tokens"),
    "sample_s": ("(c) sampling", "context tokens"),
}
DOCUMENTS, SEED = "config.workload.documents", "config.seed"
PRINTED_DOCUMENTS, PRINTED_CHUNKS = 100, {"median": 3, "longest": 60}  # of figure 10


def figure2(_: Inputs) -> Figure:
    """Distributions of output lengths by region of the prompt's length and by category."""
    content = derived_table("lengths_by_prompt.json")
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


def figure4(_: Inputs) -> Figure:
    """Lines through the components of a decode iteration at fixed numbers of requests."""
    content = derived_table("linear_latency.json")
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


def figure3(inputs: Inputs) -> Figure:
    """Running requests by iteration, on real vLLM and on the simulator. ValueError without runs."""
    rows = inputs.runs["running_requests"]
    if len(rows) != 2:
        raise ValueError(
            f"figure 3 needs 2 runs, not {len(rows)}: make setup-vllm, then harness/run.py "
            "+scenario=running_requests"
        )
    figure = style.new_figure(1200, 480)
    panels = figure.subplots(1, 2, sharey=True, sharex=True)
    for panel, (_, row) in zip(panels, rows.sort_values("engine").iterrows(), strict=True):
        run = run_in(str(row["folder"]))
        running = running_requests(run)
        panel.plot(np.arange(len(running)), running, color=style.BLUE, linewidth=1.2)
        panel.set_title(f"{row['engine']}: {iterations_s(run):.1f} s", loc="left")
        panel.set_xlabel("iteration")
    panels[0].set_ylabel("running requests")
    style.add_footer(
        figure,
        "A model of random weights (m100) with 400 requests on one machine's CPU; the paper shows "
        "vicuna-13b on an A100. Seconds: sum over iterations.",
    )
    return figure


def figure10(inputs: Inputs) -> Figure:
    """Chunks of the documents of one workload, longest first. ValueError without a run."""
    rows = inputs.runs["chain_summary"]
    rows = rows[rows[DOCUMENTS] == PRINTED_DOCUMENTS] if len(rows) else rows
    if rows.empty:
        raise ValueError("figure 10 needs a run: run harness/run.py +scenario=chain_summary")
    run = rows.sort_values(SEED, kind="stable").iloc[0]
    chunks = sorted(chunks_of(run_in(str(run["folder"]))), reverse=True)
    figure = style.new_figure(1000, 420)
    panel = figure.subplots()
    panel.bar(np.arange(len(chunks)), chunks, width=1.0, color=style.BLUE)
    for name, value in PRINTED_CHUNKS.items():
        panel.axhline(value, color=style.RED, linewidth=1, linestyle="--")
        panel.text(len(chunks), value, f"the paper's {name}: {value}", ha="right", va="bottom")
    panel.set_xlabel("document")
    panel.set_ylabel("chunks of 2048 tokens")
    style.add_footer(
        figure,
        f"{run[DOCUMENTS]} documents of our workload, seed {run[SEED]}: median "
        f"{np.median(chunks):g}, longest {max(chunks)}. The paper's are not published; ours are "
        "lognormal with its median and its longest document.",
    )
    return figure
