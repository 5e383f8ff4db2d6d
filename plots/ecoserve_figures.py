"""EcoServe's figures, in the units in which the paper claims them; crosses are the paper's."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness.claims.effects import SEED, EffectKind, Measure, figures, select
from harness.claims.verdicts import verdict_of
from harness.runs.basis import cost_basis
from harness.workloads.lengths import Paired
from plots import style
from plots.inputs import Inputs
from systems.ecoserve.claims import BESTS, PARTS, paper
from systems.ecoserve.effects import (
    DATA,
    FULL,
    JCT,
    KV,
    LATENCY_TIMES,
    LETTERS,
    LOAD,
    MODELS,
    NORMALIZED,
    TABLES,
    VARIANTS,
    VLLM,
    at,
    orca_of,
    seconds_of,
)
from systems.ecoserve.measures import (
    groups_of,
    nested_share,
    throughput_per_s,
    within_limit,
)

LINES = {VLLM: style.ORANGE, "fastgen": style.GREEN, "orca": style.INK, "ecoserve_full": style.BLUE}
SCHEDULERS = {
    "vllm": "vLLM V1",
    VLLM: "vLLM (swap)",
    "orca": "ORCA",
    "fastgen": "FastGen",
    "fastserve": "FastServe",
    "srtf_max": "SRTF",
    "multires": "MultiRes",
    "synccoupled": "SyncCoupled",
    "syncfastgen": "SyncFastGen",
    "ecoserve_sd": "SyncDecoupled",
}
COLOURS = {"alpaca": style.GREEN, "sharegpt": style.BLUE, "bookcorpus": style.ORANGE}
SCHEDULING = {"fastserve": 0.17, "multires": 0.34, "synccoupled": 0.0214}
"""Scheduling time over JCT that section 2.2 prints."""
GROUP_SIZES = (2, 4, 12)
SEEDS, ANSWERS = 10, 2000


def schedulers(inputs: Inputs) -> Figure:
    """Figure 1: mean JCT, throughput and KV utilization by scheduler and data set."""
    figure = style.new_figure(1240, 470)
    shown: Sequence[tuple[Measure, str]] = (
        (JCT, "mean JCT, s"),
        (throughput_per_s, "requests answered per s"),
        (KV, "KV utilization"),
    )
    places = np.arange(len(SCHEDULERS))[::-1]
    grid = figure.subplots(1, len(shown), sharey=True)
    for axes, (measure, words) in zip(grid, shown, strict=True):
        for nth, (data, label) in enumerate(DATA.items()):
            cells = inputs.runs[f"ecoserve_{data}"]
            values = [mean_of(cells, measure, at(one, data, "oracle")) for one in SCHEDULERS]
            axes.barh(places + 0.25 * (1 - nth), values, 0.25, color=COLOURS[data], label=label)
        axes.set_title(words, fontsize=10)
        axes.grid(axis="x")
        if measure is not KV:
            axes.set_xscale("log")
    grid[0].set_yticks(places, list(SCHEDULERS.values()))
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    _footer(figure, cells)
    return figure


def groups(inputs: Inputs) -> Figure:
    """Figure 2: share of SyncCoupled's length groups with at least so many requests."""
    figure = style.new_figure(620, 400)
    axes = figure.subplots()
    places = np.arange(len(GROUP_SIZES))
    cells = inputs.runs["ecoserve_groups"]
    for nth, (data, label) in enumerate(DATA.items()):
        shares = [
            mean_of(cells, _groups_measure(least), {"table": TABLES[data]}) for least in GROUP_SIZES
        ]
        axes.bar(places + 0.25 * nth, shares, 0.25, color=COLOURS[data], label=label)
    for data, least in (("alpaca", 12), ("sharegpt", 12), ("bookcorpus", 2)):
        x = GROUP_SIZES.index(least) + 0.25 * list(DATA).index(data)
        axes.plot(x, paper.claims[f"fig2.groups-{data}"].paper, "x", color=style.RED, ms=9, mew=2)
    axes.set_xticks(places + 0.25, [f"at least {least}" for least in GROUP_SIZES])
    axes.set(xlabel="requests in the group", ylabel="share of groups")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    _footer(figure, cells)
    return figure


def _groups_measure(least: int) -> Measure:
    return lambda folder: groups_of(folder, least)


def padding(inputs: Inputs) -> Figure:
    """Figure 4: mean JCT of SyncDecoupled against padding, over that without padding."""
    figure = style.new_figure(620, 400)
    axes = figure.subplots()
    cells = inputs.runs["ecoserve_padding"]
    _against_best(axes, cells, "padding", "ecoserve_sd", "fig4.padding")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    _footer(figure, cells)
    return figure


def factors(inputs: Inputs) -> Figure:
    """Figure 12: mean JCT against each constant, over the least, and attainment by SLO scale."""
    figure = style.new_figure(1240, 400)
    first, *others = figure.subplots(1, 4)
    cells, light = inputs.runs["ecoserve_slo"], together(inputs)
    for data, words in DATA.items():
        own = select(cells, {"table": TABLES[data]})
        scales, seconds = sorted(own["scale"].unique()), seconds_of(light, data)
        met = [
            mean_of(
                own,
                partial(within_limit, seconds=seconds, scale=one),
                at(FULL, data) | {"scale": one},
            )
            for one in scales
        ]
        first.plot(scales, met, "o-", ms=4, color=COLOURS[data], label=words)
    first.set(xlabel="SLO scale", ylabel="share within the SLO")
    for axes, (id, scenario, policy, axis, _, _) in zip(others, BESTS[1:], strict=True):
        _against_best(axes, inputs.runs[f"ecoserve_{scenario}"], axis, policy, id)
    figure.legend(*others[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    _footer(figure, cells)
    return figure


def _against_best(axes: Axes, cells: pd.DataFrame, axis: str, policy: str, id: str) -> None:
    """Mean JCT against an axis, over its least; a cross where the paper has the least."""
    label: str | None = "least in the paper"
    for data, words in DATA.items():
        own = select(cells, {"table": TABLES[data]})
        found = figures(own, JCT, at(policy, data), [axis]).mean()
        times = found / found.min()
        axes.plot(times.index, times, "o-", ms=4, color=COLOURS[data], label=words)
        best = paper.claims[f"{id}-{data}"].paper
        y = np.interp(float(np.max(best)), times.index.to_numpy(float), times.to_numpy(float))
        axes.plot(best, y, "x", color=style.RED, ms=9, mew=2, label=label)
        label = None
    axes.set(xlabel=axis.replace("_", " "), ylabel="mean JCT over the least")


def rates(inputs: Inputs) -> Figure:
    """Figure 10: normalized latency against load, a panel per model and data set."""
    figure = style.new_figure(1110, 900)
    grid = figure.subplots(len(MODELS), len(DATA))
    for row, (model, model_words) in zip(grid, MODELS.items(), strict=True):
        for axes, (data, words) in zip(row, DATA.items(), strict=True):
            cells = inputs.runs[f"ecoserve_rates_{data}{model}"]
            for policy, colour in LINES.items():
                found = figures(cells, NORMALIZED, at(orca_of(policy, model), data), [LOAD])
                label = SCHEDULERS.get(policy, "EcoServe")
                axes.plot(found.columns, found.mean(), "o-", ms=3, color=colour, label=label)
            base = figures(cells, NORMALIZED, at(VLLM, data), [LOAD])
            limit_s = LATENCY_TIMES * float(base[base.columns.min()].mean())
            axes.axhline(limit_s, color=style.RED, ls="--", lw=1, label="where rates are read")
            axes.set(xscale="log", yscale="log", title=f"{words}, {model_words}")
            axes.minorticks_off()
            shown = [0.1, 0.5, 1.0]
            axes.set_xticks(shown, [f"{load:g}" for load in shown])
        row[0].set_ylabel("seconds per answer token")
    for axes in grid[-1]:
        axes.set_xlabel("load, of what vLLM serves")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    _footer(figure, pd.concat(inputs.runs.values(), ignore_index=True))
    return figure


def parts(inputs: Inputs) -> Figure:
    """Figure 11: what each variant gains over vLLM; of several settings least to most."""
    cells = together(inputs)
    figure = style.new_figure(1240, 400)
    grid = figure.subplots(1, len(PARTS))
    places = np.arange(len(VARIANTS))
    for axes, (stem, kind, says, _, _) in zip(grid, PARTS, strict=True):
        claims = [paper.claims[f"fig11.{stem}-{one}"] for one in VARIANTS]
        found = [verdict_of(one.effect(cells), one.paper) for one in claims if one.effect]
        # A difference of shares is no ratio and has no bar.
        ours = [np.nan if one.kind is EffectKind.DIFFERENCE else one.ours for one in found]
        ends = [one.span or (one.low, one.high) for one in found]
        errors = np.abs(np.transpose(ends) - np.asarray([one.ours for one in found]))
        axes.bar(places, ours, yerr=errors, color=style.BLUE, label="ours")
        printed = [one.paper for one in claims]
        axes.plot(places, printed, "x", color=style.RED, ms=9, mew=2, label="paper")
        axes.set_xticks(places, LETTERS)
        where = "eight overloaded settings" if kind is EffectKind.RANGE else "Alpaca, OPT-13B"
        axes.set_title(f"{says}, {where}", fontsize=9)
        axes.set_ylabel("share" if kind is EffectKind.REDUCTION else "times vLLM's")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    _footer(figure, cells)
    return figure


def loads(inputs: Inputs) -> Figure:
    """Mean JCT over that of vLLM with swapping against load, a panel per data set; OPT-13B."""
    figure = style.new_figure(1110, 420)
    grid = figure.subplots(1, len(DATA), sharey=True)
    for axes, (data, words) in zip(grid, DATA.items(), strict=True):
        cells = inputs.runs[f"ecoserve_rates_{data}"]
        base = figures(cells, JCT, at(VLLM, data), [LOAD])
        for policy, colour in LINES.items():
            ratio = (figures(cells, JCT, at(policy, data), [LOAD]) / base).mean()
            label = SCHEDULERS.get(policy, "EcoServe")
            axes.plot(ratio.index, ratio, "o-", ms=4, color=colour, label=label)
        axes.axhline(1 - 0.83, color=style.RED, ls="--", lw=1, label="EcoServe, paper")
        axes.set(yscale="log", xlabel="load, of what vLLM serves", title=words)
        axes.minorticks_off()
        axes.set_ylim(0.1, 12)
        axes.set_yticks([0.2, 0.5, 1, 2, 5, 10], ["0.2", "0.5", "1", "2", "5", "10"])
    grid[0].set_ylabel("mean JCT over that of vLLM (swap)")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    _footer(figure, cells)
    return figure


def decisions(inputs: Inputs) -> Figure:
    """Scheduling time over the makespan, measured; crosses are the paper's, over JCT."""
    cells = inputs.runs["ecoserve_decisions"]
    shares = cells.groupby("policy", sort=False)["scheduling_share"].mean()
    figure = style.new_figure(720, 420)
    axes = figure.subplots()
    places = np.arange(len(shares))[::-1]
    axes.barh(places, shares, color=style.BLUE, label="ours")
    there = [dict(zip(shares.index, places, strict=True))[one] for one in SCHEDULING]
    axes.plot(
        list(SCHEDULING.values()), there, "x", color=style.RED, ms=9, mew=2, label="paper, over JCT"
    )
    axes.set_yticks(places, list(shares.index))
    axes.set(xscale="log", xlabel="scheduling time over the makespan")
    axes.grid(axis="x")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    seeds = cells[SEED].nunique()
    style.add_footer(
        figure,
        f"Measured seconds of deciding and filling batches in simulated runs, {seeds} seeds.",
    )
    return figure


def nesting(inputs: Inputs) -> Figure:
    """The share of answer tokens that guests can hold at all, by data set and buffer."""
    figure = style.new_figure(600, 400)
    axes = figure.subplots()
    places = np.arange(len(DATA))
    for nth, (buffer_share, colour) in enumerate(((0.0, style.GREEN), (0.15, style.BLUE))):
        shares = [
            [nested_share(answers(data, seed).tolist(), buffer_share) for seed in range(SEEDS)]
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


def together(inputs: Inputs) -> pd.DataFrame:
    """The cells of all scenarios, with a column that names the scenario."""
    runs = [one.assign(scenario=name) for name, one in inputs.runs.items()]
    return pd.concat(runs, ignore_index=True)


def mean_of(cells: pd.DataFrame, measure: Measure, selected: Mapping[str, object]) -> float:
    """A figure averaged over seeds."""
    return float(figures(cells, measure, dict(selected)).mean().iloc[0])


def _footer(figure: Figure, cells: pd.DataFrame) -> None:
    style.add_footer(
        figure, f"Simulated: cost profile {cost_basis(cells)}. {cells[SEED].nunique()} seeds."
    )
