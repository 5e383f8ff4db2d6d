"""SamuLLM's figure 11, chain summary.

End-to-end time (above) and GPU idle time (below) of the two heuristics over SamuLLM's at the same
setting and seed. As in the paper a panel varies (a) the documents, (b) the evaluations, (c) the
output limit; whiskers are the range over seeds, bands the paper's ranges over all its settings.
"""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.runs.basis import cost_basis
from plots import style
from plots.inputs import Inputs, span_of

NAME, SEED = "config.system.name", "config.seed"
DOCUMENTS, LIMIT = "config.workload.documents", "config.workload.max_output_tokens"
EVALUATIONS = "config.workload.evaluations"
OURS = "samullm"
BASELINES = {"max_heuristic": "Max-heuristic", "min_heuristic": "Min-heuristic"}
COLOURS = {"max_heuristic": style.ORANGE, "min_heuristic": style.GREEN}
FIGURES = {"end_to_end_s": "End-to-end time", "gpu_idle_s": "GPU idle time"}
CLAIMS = {
    ("end_to_end_s", "max_heuristic"): "fig11.vs-max",
    ("end_to_end_s", "min_heuristic"): "fig11.vs-min",
    ("gpu_idle_s", "max_heuristic"): "fig11.idle-max",
    ("gpu_idle_s", "min_heuristic"): "fig11.idle-min",
}
PANELS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "Number of documents": (DOCUMENTS, {EVALUATIONS: 4, LIMIT: 900}),
    "Evaluations of a summary": (EVALUATIONS, {DOCUMENTS: 300, LIMIT: 900}),
    "Maximum output length limit": (LIMIT, {DOCUMENTS: 300, EVALUATIONS: 4}),
}
"""What each panel varies, and what it keeps."""

PaperRatios = Mapping[tuple[str, str], tuple[float, float]]


def plot(inputs: Inputs) -> Figure:
    """The figure, with the paper's ratios by figure and baseline. ValueError without runs."""
    ranges = {key: span_of(inputs.printed[claim]) for key, claim in CLAIMS.items()}
    return draw(inputs.runs["chain_summary"], ranges)


def ratios(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A column of both heuristics over SamuLLM's at the same setting and seed, one row each.

    Raises `ValueError` where SamuLLM has no run.
    """
    keys = [LIMIT, EVALUATIONS, DOCUMENTS, SEED]
    if rows.empty or not (rows[NAME] == OURS).any():
        raise ValueError(
            "figure 11 needs runs of SamuLLM: run harness/run.py +scenario=chain_summary"
        )
    wide = rows.pivot(index=keys, columns=NAME, values=column)
    found = wide[[name for name in BASELINES if name in wide]].div(wide[OURS], axis=0)
    return found.reset_index().melt(id_vars=keys, var_name="name", value_name="ratio").dropna()


def draw(rows: pd.DataFrame, ranges: PaperRatios) -> Figure:
    """The figure. Raises `ValueError` where no setting has a run of SamuLLM."""
    tables = {column: ratios(rows, column) for column in FIGURES}
    figure = style.new_figure(460 * len(PANELS), 900)
    panels = figure.subplots(len(FIGURES), len(PANELS), squeeze=False, sharey="row")
    for line, (column, label) in zip(panels, FIGURES.items(), strict=True):
        for panel, letter, (varied, (axis, kept)) in zip(line, "abc", PANELS.items(), strict=True):
            table = tables[column]
            for key, value in kept.items():
                table = table[table[key] == value]
            _draw_panel(panel, table, axis)
            for name in BASELINES:
                low, high = ranges[column, name]
                panel.axhspan(low, high, color=COLOURS[name], alpha=0.12, linewidth=0)
            panel.set_title(f"({letter}) {label}", loc="left")
            panel.set_xlabel(varied)
        line[0].set_ylabel(f"{label} / SamuLLM's")
    # Where SamuLLM's idle time is next to nothing the ratio has no bound.
    for panel in panels[-1]:
        panel.set_yscale("log")
    lines = [Line2D([], [], color=COLOURS[name], label=label) for name, label in BASELINES.items()]
    figure.legend(handles=lines, loc="outside upper center", ncols=len(lines))
    seeds = rows[SEED].nunique()
    over = "1 seed, so no whiskers" if seeds == 1 else f"mean of {seeds} seeds, whiskers min to max"
    style.add_footer(
        figure,
        f"Simulated: times come from the cost profile {cost_basis(rows)}. {over.capitalize()}.\n"
        "Chunks per document are not published: lognormal with the paper's median and longest "
        "documents. Bands: the paper's ranges over its settings. What is not varied is 300 "
        "documents, 4 evaluations, limit 900.",
    )
    return figure


def _draw_panel(panel: Axes, table: pd.DataFrame, axis: str) -> None:
    for name, part in table.groupby("name"):
        by = part.groupby(axis)["ratio"].agg(["mean", "min", "max"])
        panel.errorbar(
            by.index.to_numpy(),
            by["mean"],
            yerr=[by["mean"] - by["min"], by["max"] - by["mean"]],
            color=COLOURS[str(name)],
            marker="o",
            markersize=5,
            linewidth=1.2,
            elinewidth=0.8,
        )
    panel.axhline(1, color=style.INK, linewidth=0.8, linestyle=":")
    panel.set_xticks(sorted(table[axis].unique()))
    panel.grid(axis="y")
