"""EcoServe's figures 10 and 11, in the units in which the paper claims them."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness.claims.effects import SEED, figures
from harness.claims.verdicts import verdict_of
from harness.runs.basis import cost_basis
from harness.workloads.lengths import Paired
from plots import style
from plots.inputs import Inputs
from systems.ecoserve.claims import DATA, PARTS, VARIANTS, at, paper
from systems.ecoserve.measures import NORMALIZED, RATE, nested_share

LINES = {
    "vllm": style.ORANGE,
    "fastgen": style.GREEN,
    "orca": style.INK,
    "ecoserve_full": style.BLUE,
}
SEEDS, ANSWERS = 10, 2000
TABLES = {"alpaca": "alpaca", "sharegpt": "sharegpt_turns", "bookcorpus": "bookcorpus"}


def rates(inputs: Inputs) -> Figure:
    """Normalized latency against the rate, a panel per data set. ClaimError without runs."""
    figure = style.new_figure(1110, 430)
    grid = figure.subplots(1, len(DATA))
    for axes, (data, words) in zip(grid, DATA.items(), strict=True):
        cells = inputs.runs[f"ecoserve_rates_{data}"]
        for policy, colour in LINES.items():
            found = figures(cells, NORMALIZED, at(policy, data, "noisy"), [RATE])
            axes.plot(found.columns, found.mean(), "o-", ms=4, color=colour, label=policy)
        axes.set(xscale="log", yscale="log", xlabel="requests per second", title=words)
    grid[0].set_ylabel("seconds per answer token")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    _footer(figure, cells)
    return figure


def parts(inputs: Inputs) -> Figure:
    """What each variant gains over vLLM; crosses are the paper's. ClaimError without runs."""
    runs = [one.assign(scenario=name) for name, one in inputs.runs.items()]
    cells = pd.concat(runs, ignore_index=True)
    figure = style.new_figure(1240, 400)
    grid = figure.subplots(1, len(PARTS))
    places = np.arange(len(VARIANTS))
    for axes, (stem, _, _, says, _, _) in zip(grid, PARTS, strict=True):
        claims = [paper.claims[f"fig11.{stem}-{one}"] for one in VARIANTS]
        found = [verdict_of(one.effect(cells), one.paper) for one in claims if one.effect]
        ours = [one.ours for one in found]
        errors = [[one.ours - one.low for one in found], [one.high - one.ours for one in found]]
        axes.bar(places, ours, yerr=errors, color=style.BLUE, label="ours")
        printed = [one.paper for one in claims]
        axes.plot(places, printed, "x", color=style.RED, ms=9, mew=2, label="paper")
        axes.set_xticks(places, [one.removeprefix("ecoserve_") for one in VARIANTS])
        axes.set_title(says, fontsize=10)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    _footer(figure, cells)
    return figure


def nesting(inputs: Inputs) -> Figure:
    """The share of answer tokens that guests can hold at all, by data set and buffer."""
    figure = style.new_figure(600, 400)
    axes = figure.subplots()
    places = np.arange(len(DATA))
    for nth, (buffer_share, colour) in enumerate(((0.0, style.GREEN), (0.15, style.BLUE))):
        shares = [
            [nested_share(answers(data, seed), buffer_share) for seed in range(SEEDS)]
            for data in DATA
        ]
        label = f"buffer {buffer_share:g}"
        axes.bar(places + 0.35 * nth, np.mean(shares, axis=1), 0.35, color=colour, label=label)
    axes.set_xticks(places + 0.175, list(DATA.values()))
    axes.set_ylabel("share of answer tokens in lent space")
    figure.legend(loc="outside upper center", ncols=2)
    style.add_footer(figure, f"Lengths alone, known: {ANSWERS} answers, {SEEDS} draws.")
    return figure


def answers(data: str, seed: int) -> NDArray[np.float64]:
    """Lengths of answers of a data set."""
    lengths = Paired(table=TABLES[data], part="all", outputs=None, longest_output_tokens=None)
    streams = (np.random.default_rng([seed, stream]) for stream in range(2))
    return lengths.draw(ANSWERS, *streams).output_tokens.astype(np.float64)


def _footer(figure: Figure, cells: pd.DataFrame) -> None:
    style.add_footer(
        figure, f"Simulated: cost profile {cost_basis(cells)}. {cells[SEED].nunique()} seeds."
    )
