"""SeaLLM's figures: metrics of every system against a setting, and gains beside what is printed.

Lines are means over seeds with their 95% intervals as bands; what the paper prints is dashed.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.claims.effects import ALL, SEED, Cells, Measure, curve, figures, ratio, select
from harness.costs.model_facts import model_facts
from harness.runs.basis import cost_basis
from harness.runs.stats import geometric_mean_of, mean_of
from plots import style
from plots.inputs import Inputs
from systems.seallm.claims import (
    ALIKE,
    ALPASERVE,
    ALPASERVE_PROGRAM,
    BASELINES,
    BUDGET,
    BURSTS,
    DEGREE,
    EIGHT,
    ERROR,
    FCFS,
    FIXED,
    GPUS,
    HALF_DRIFT,
    LONG,
    MEASURES,
    MORE,
    MUXSERVE,
    NO_DRIFT,
    RATE,
    SCALES,
    SEALLM,
    SHORT,
    SKEW,
    TAIL,
    TPOT,
    TTFT,
    VLLM,
    VLLM_TP2,
    WITH_FCFS,
    WITH_SKIP_JOIN,
    ZIPF,
)
from systems.seallm.measures import attainment, attainment_at, normalized_latency, placement_s

PAIRS = (
    ("Llama-2-7b-hf", "Llama-2-7b-hf"),
    ("Llama-2-7b-hf", "Llama-2-13b-hf"),
    ("Llama-2-13b-hf", "Llama-2-7b-hf"),
)
"""Figure 9: a model, and the one that it shares the cache with."""
BLOCK_TOKENS = 16
_SPLIT_BYTES = 2 * 2 * 128 * BLOCK_TOKENS
"""Keys and values of two bytes for one head of 128."""

Sides = Mapping[str, tuple[Mapping[str, Any], str]]
"""What is drawn: name -> selector and colour."""

SYSTEMS: Sides = {
    "SeaLLM": (SEALLM, style.BLUE),
    "vLLM": (VLLM, style.ORANGE),
    "vLLM, TP 2": (VLLM_TP2, style.RED),
    "AlpaServe": (ALPASERVE, style.GREEN),
    "AlpaServe, its program's search": (ALPASERVE_PROGRAM, style.INK),
    "MuxServe": (MUXSERVE, style.PURPLE),
}
DRAWN: Sides = {name: SYSTEMS[name] for name in ("SeaLLM", "vLLM", "AlpaServe", "MuxServe")}
"""Of figures 12 and 13."""
MOST_SHARE, SLOWS = "most_gpu_share", "oversubscription_slows"
ON_ONE: Sides = {
    "doubling budget": ({"policy": BUDGET, MOST_SHARE: 1.0}, style.BLUE),
    "FCFS": ({"policy": FCFS, MOST_SHARE: 1.0}, style.ORANGE),
    "round robin": ({"policy": "service_round_robin", MOST_SHARE: 1.0}, style.GREEN),
    "side by side": ({"policy": "muxserve", MOST_SHARE: 1.0}, style.PURPLE),
    "1.2 of the SMs, slower": ({"policy": "muxserve", MOST_SHARE: 1.2, SLOWS: True}, style.RED),
    "1.2, not slower": ({"policy": "muxserve", MOST_SHARE: 1.2, SLOWS: False}, style.INK),
}
"""Orders of a group of two services on one GPU; the last three are MuxServe's."""
PARTS: Sides = {
    "SeaLLM": (SEALLM, style.BLUE),
    "FCFS (-F)": (WITH_FCFS, style.ORANGE),
    "skip-join (-M)": (WITH_SKIP_JOIN, style.GREEN),
    "fixed placement (-A)": (FIXED, style.PURPLE),
    "no sharing (-P)": (VLLM, style.RED),
}
Panels = tuple[tuple[str, Measure, bool], ...]
"""Title and figure of each, and whether its scale is logarithmic."""
LABELS = {
    RATE: "requests per second",
    GPUS: "GPUs",
    SKEW: "consecutive requests of a service",
    ERROR: "error of answers over their length",
    DEGREE: "tensor parallelism",
}
LATENCY = "normalized latency"
ATTAINED = "SLO attainment"

COMPARED: Sides = {
    "vLLM": (VLLM, style.ORANGE),
    "AlpaServe": (ALPASERVE, style.GREEN),
    "FCFS": (WITH_FCFS, style.RED),
    "skip-join queues": (WITH_SKIP_JOIN, style.BLUE),
    "fixed placement": (FIXED, style.PURPLE),
}
"""What SeaLLM is compared with under every condition."""
HERE = "reference"
CONDITIONS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, str]]] = {
    "popularity of services, 35/s": (
        "seallm_rates",
        {RATE: 35},
        {ALIKE: "alike", HERE: "Azure's\nfunctions", ZIPF: "Zipf 1"},
    ),
    "gaps between requests of a service, 35/s": (
        "seallm_rates",
        {RATE: 35},
        {HERE: "CV 1", BURSTS: "CV 4"},
    ),
    "services on 32 GPUs, 35/s": (
        "seallm_rates",
        {RATE: 35},
        {EIGHT: "8", HERE: "16", MORE: "24"},
    ),
    "drift of rates (sigma of the logarithm), 20 minutes at 20/s": (
        "seallm_drift",
        {},
        {NO_DRIFT: "0", HALF_DRIFT: "0.5", HERE: "1"},
    ),
}
"""Panels: the scenario, what is fixed, and variations from left to right with their words."""
WORDS: Mapping[str, str] = {
    "latency": "x lower normalized latency",
    "tail": "x lower P99 latency",
    "slo": "x higher SLO attainment",
}


def _lines(
    axes: Axes, cells: Cells, measure: Measure, sides: Sides, along: str, *, log: bool = False
) -> None:
    """The measure of every side against an axis, on a logarithmic scale where it spans orders."""
    for label, (at, colour) in sides.items():
        found = figures(cells, measure, at, [along])
        means = [mean_of(found[value].to_numpy(float)) for value in found]
        x = found.columns.to_numpy(float)
        axes.plot(x, [one.value for one in means], "o-", color=colour, markersize=4, label=label)
        low, high = zip(*(one.ends for one in means), strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    if log:
        least = min(np.min(np.asarray(line.get_ydata(), float)) for line in axes.lines)
        axes.set_yscale("log")
        axes.set_ylim(bottom=least / 2)  # intervals of means may reach below 0
    axes.set_xlabel(LABELS[along])


def _gains(axes: Axes, inputs: Inputs, cells: Cells, kind: str, ids: Mapping[str, str]) -> None:
    """Gains of SeaLLM by rate, and what is printed; `ids` maps names of sides to claims."""
    every = {**SYSTEMS, **PARTS}
    for label, id in ids.items():
        at, colour = every[label]
        above, below = (SEALLM, at) if kind == "slo" else (at, SEALLM)
        found = curve(cells, MEASURES[kind], of=above, over=below, along=RATE).sort_index()
        x = found.index.to_numpy(float)
        axes.plot(x, found["value"], "o-", color=colour, markersize=4)
        axes.fill_between(x, found["low"], found["high"], color=colour, alpha=0.15, lw=0)
        printed = inputs.printed[id].paper
        assert isinstance(printed, tuple)
        axes.axhline(printed[1], color=colour, linestyle="--", linewidth=1.2)
    axes.axhline(1, color=style.INK, linewidth=0.8)
    axes.set_yscale("log")
    axes.set_title(WORDS[kind], loc="left", fontsize=11)
    axes.set_xlabel(LABELS[RATE])


def _finish(figure: Figure, cells: Cells, more: str = "") -> Figure:
    """Legend and footer."""
    style.add_legend(figure)
    most = cells[SEED].nunique()
    fewer = cells.groupby("system")[SEED].nunique().get("muxserve") if "system" in cells else None
    seeds = f"{most} seeds" if fewer in (None, most) else f"{most} seeds (MuxServe {fewer})"
    style.add_footer(
        figure,
        f"Simulated: cost profile {cost_basis(cells)}. Means over {seeds} with their 95% "
        f"intervals. {more}",
    )
    return figure


PRINTED = "Dashed: paper, up to."


_BOTH: Panels = (
    (LATENCY, normalized_latency, True),
    (ATTAINED, attainment, False),
)


def rates(inputs: Inputs) -> Figure:
    """Figure 6."""
    cells = inputs.runs["seallm_rates"]
    figure = style.new_figure(1150, 760)
    grid = figure.subplots(2, 3)
    panels: Panels = (
        (LATENCY, normalized_latency, True),
        ("P99 latency in s", TAIL, True),
        (ATTAINED, attainment, False),
    )
    for axes, (title, measure, log) in zip(grid[0], panels, strict=True):
        _lines(axes, cells, measure, SYSTEMS, RATE, log=log)
        axes.set_title(title, loc="left", fontsize=11)
    names = dict(zip(BASELINES, ("vLLM", "AlpaServe", "MuxServe"), strict=True))
    for axes, kind in zip(grid[1], MEASURES, strict=True):
        _gains(axes, inputs, cells, kind, {name: f"fig6.{kind}-{it}" for it, name in names.items()})
    return _finish(figure, cells, PRINTED)


def ablation(inputs: Inputs) -> Figure:
    """Figure 8."""
    cells = inputs.runs["seallm_rates"]
    figure = style.new_figure(900, 720)
    grid = figure.subplots(2, 2)
    _lines(grid[0][0], cells, normalized_latency, PARTS, RATE, log=True)
    _lines(grid[0][1], cells, attainment, PARTS, RATE)
    grid[0][0].set_title(LATENCY, loc="left", fontsize=11)
    grid[0][1].set_title(ATTAINED, loc="left", fontsize=11)
    names = dict(zip(list(PARTS)[1:4], ("order", "order", "fixed"), strict=True))
    for axes, kind in zip(grid[1], ("latency", "slo"), strict=True):
        _gains(axes, inputs, cells, kind, {name: f"fig8.{it}-{kind}" for name, it in names.items()})
    return _finish(figure, cells, PRINTED)


def _panels(
    inputs: Inputs,
    scenario: str,
    sides: Sides,
    along: str,
    panels: Panels,
    more: str = "",
) -> Figure:
    """A row of metrics against an axis."""
    cells = inputs.runs[scenario]
    figure = style.new_figure(max(600, 400 * len(panels)), 430)
    for axes, (title, measure, log) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        _lines(axes, cells, measure, sides, along, log=log)
        axes.set_title(title, loc="left", fontsize=11)
    return _finish(figure, cells, more)


def tokens(inputs: Inputs) -> Figure:
    """Figure 7."""
    panels: Panels = (
        ("mean TTFT in s", TTFT, True),
        ("mean TPOT in s", TPOT, False),
    )
    return _panels(inputs, "seallm_rates", SYSTEMS, RATE, panels)


def scales(inputs: Inputs) -> Figure:
    """Figure 10."""
    panels = tuple((f"SLO scale {scale:g}", attainment_at(scale), False) for scale in SCALES[::2])
    return _panels(inputs, "seallm_rates", SYSTEMS, RATE, panels)


def density(inputs: Inputs) -> Figure:
    """Figure 11."""
    sides = {name: of for name, of in SYSTEMS.items() if name != "vLLM, TP 2"}
    return _panels(inputs, "seallm_density", sides, GPUS, _BOTH)


def skew(inputs: Inputs) -> Figure:
    """Figure 12."""
    return _panels(inputs, "seallm_skew", DRAWN, SKEW, _BOTH)


def noise(inputs: Inputs) -> Figure:
    """Figure 13."""
    sides = {name: of for name, of in DRAWN.items() if name != "MuxServe"}
    return _panels(inputs, "seallm_noise", sides, ERROR, _BOTH)


def search(inputs: Inputs) -> Figure:
    """Figure 14."""
    sides = {name: SYSTEMS[name] for name in ("SeaLLM", "AlpaServe", "MuxServe")}
    panels: Panels = (("seconds of all searches of a run", placement_s, False),)
    more = "Measured wall-clock of one core; the paper has at most 60 s."
    return _panels(inputs, "seallm_density", sides, GPUS, panels, more)


def sharing(inputs: Inputs) -> Figure:
    """Two services on one GPU."""
    panels: Panels = (
        (LATENCY, normalized_latency, True),
        ("mean TTFT in s", TTFT, True),
        ("mean TPOT in s", TPOT, False),
    )
    more = "Llama-2-7b and 13b on one A100; the last three: MuxServe."
    return _panels(inputs, "seallm_sharing", ON_ONE, RATE, panels, more)


def degrees(inputs: Inputs) -> Figure:
    """Figure 3."""
    cells = inputs.runs["seallm_degrees"]
    figure = style.new_figure(900, 430)
    sides = {
        "Llama-2-13b, 2,048 tokens": (LONG, style.ORANGE),
        "Llama-2-7b, 64 tokens": (SHORT, style.BLUE),
    }
    for axes, (title, measure) in zip(
        figure.subplots(1, 2),
        (("prefill of 8 in s", TTFT), ("decode of 8 in s", TPOT)),
        strict=True,
    ):
        _lines(axes, cells, measure, sides, DEGREE, log=True)
        axes.set_title(title, loc="left", fontsize=11)
    return _finish(figure, cells)


def conditions(inputs: Inputs) -> Figure:
    """SeaLLM's gains in normalized latency where one condition of the reference is changed."""
    figure = style.new_figure(1150, 820)
    for axes, (title, (scenario, at, settings)) in zip(
        figure.subplots(2, 2).flat, CONDITIONS.items(), strict=True
    ):
        every = {HERE: inputs.runs[scenario], **inputs.varied.get(scenario, {})}
        cells = {name: select(every[name], at) for name in settings if name in every}
        for nth, (label, (of, colour)) in enumerate(COMPARED.items()):
            found = {
                list(settings).index(name) + 0.04 * (nth - 2): geometric_mean_of(
                    ratio(one, normalized_latency, of=of, over=SEALLM).samples[ALL]
                )
                for name, one in cells.items()
                if (one[list(of)] == pd.Series(of)).all(axis=1).any()
            }
            axes.errorbar(
                list(found),
                [one.value for one in found.values()],
                np.transpose(
                    [[one.value - one.ends[0], one.ends[1] - one.value] for one in found.values()]
                ),
                fmt="o-",
                color=colour,
                markersize=4,
                capsize=3,
                label=label,
            )
        axes.set_xticks(range(len(settings)), list(settings.values()))
        axes.axhline(1, color=style.INK, linewidth=0.8)
        axes.set_yscale("log")
        axes.set_title(title, loc="left", fontsize=11)
    more = (
        "Vertical: times lower normalized latency of SeaLLM. Drift and other variations: 5 seeds."
    )
    return _finish(figure, inputs.runs["seallm_rates"], more)


def blocks(inputs: Inputs) -> Figure:
    """Figure 9, as a table of arithmetic (section 4.4).

    A split block holds the keys and values of one head of one layer. A merged block is the least
    common multiple of both models' blocks; a second index tells a model's blocks in it apart.
    """
    rows = [
        (
            f"{of} beside {other}",
            f"{heads(of):,}",
            f"{math.lcm(heads(of), heads(other)) * _SPLIT_BYTES / 2**20:.0f} MiB",
            f"{math.lcm(heads(of), heads(other)) // heads(of):,}",
            f"{heads(of):,} x",
        )
        for of, other in PAIRS
    ]
    columns = (
        "",
        "split blocks of a\nblock of tokens",
        "a merged\nblock",
        "blocks of tokens\nin a merged block",
        "split block table\nover merged",
    )
    figure = style.new_figure(1000, 300)
    axes = figure.subplots()
    axes.set_axis_off()
    table = axes.table(rows, colLabels=columns, loc="center", cellLoc="center")
    table.auto_set_font_size(False)
    table.set_fontsize(10)
    table.scale(1.0, 2.0)
    style.add_footer(
        figure,
        f"Arithmetic, blocks of {BLOCK_TOKENS} tokens in two bytes; the paper: 1,024 x for "
        "Llama2-7B. Seconds of the kernels need hardware.",
    )
    return figure


def heads(model: str) -> int:
    """Heads whose keys and values a token has, over all layers: split blocks of one block."""
    facts = model_facts(model)
    return facts.layers * facts.kv_heads
