"""SamuLLM's figures 8, 12 and 14: running times as bars.

As in the paper each bar is inference time below and extra (planning) time above, relative to
SamuLLM at the same setting: the inference time in the middle, the end-to-end time on top. Bars are
means over seeds, whiskers their range; the paper's ranges over all settings are named below.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.runs.basis import cost_basis
from plots import style
from plots.inputs import Claims, Inputs

SEED = "config.seed"
TIMES = ("inference_s", "end_to_end_s")
Matcher = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of every group: runs that match, or the sum over several that do."""

    label: str
    colour: str
    runs: tuple[Matcher, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """A figure: groups along the axis, the same bars in each; the first is the reference."""

    scenario: str
    title: str
    groups: Mapping[str, Matcher]
    bars: tuple[Bar, ...]
    claims: Mapping[str, str]


def _system(name: str, **more: object) -> Matcher:
    return {"config.system.name": name, **more}


_KNOWN = {"config.predictor.name": "oracle"}
_UNKNOWN = {"config.predictor.name": "none"}
_BOTH = {"config.workload.only": "summary+ensemble"}
_SUMMARY = {"config.workload.only": "summary"}
# The same beside any number of documents, and run with one of them.
_ENSEMBLE = {"config.workload.only": "ensemble", "config.workload.parts.summary.documents": 100}
_NAMES = (
    ("Ours (SamuLLM)", style.BLUE, "samullm"),
    ("Max-heuristic", style.ORANGE, "max_heuristic"),
    ("Min-heuristic", style.GREEN, "min_heuristic"),
)
_KEPT, _CHANGED = (
    {"config.system.placement.preemption": False},
    {"config.system.placement.preemption": True},
)

FIGURES: Mapping[str, Bars] = {
    "fig8": Bars(
        scenario="routing",
        title="LLM routing",
        groups={
            "output lengths unknown": {"config.workload.answers": "own", **_UNKNOWN},
            "output lengths known": {"config.workload.answers": "published", **_KNOWN},
        },
        bars=tuple(Bar(label, colour, (_system(name),)) for label, colour, name in _NAMES),
        claims={"Max": "samullm.fig8.vs-max", "Min": "samullm.fig8.vs-min"},
    ),
    "fig12": Bars(
        scenario="mixed",
        title="Chain summary (documents) with LLM ensembling (5,000 requests)",
        groups={
            f"({count}, 5000)": {"config.workload.parts.summary.documents": count}
            for count in (100, 400, 500)
        },
        bars=(
            *(Bar(label, colour, (_system(name, **_BOTH),)) for label, colour, name in _NAMES),
            Bar(
                "SamuLLM, one application after the other",
                style.SKY,
                (_system("samullm", **_SUMMARY), _system("samullm", **_ENSEMBLE)),
            ),
        ),
        claims={
            "heuristics": "samullm.fig12.vs-heuristics",
            "one after the other": "samullm.fig12.together",
        },
    ),
    "fig14": Bars(
        scenario="ablation",
        title="Variants on the mixed application (500, 5000)",
        groups={
            f"ensembling limit {limit}": {"config.workload.parts.ensemble.max_output_tokens": limit}
            for limit in (256, 512)
        },
        bars=(
            Bar("Ours (SamuLLM)", style.BLUE, (_system("samullm", **_CHANGED, **_UNKNOWN),)),
            Bar("no preemption", style.SKY, (_system("samullm", **_KEPT, **_UNKNOWN),)),
            Bar("known lengths", style.PURPLE, (_system("samullm", **_CHANGED, **_KNOWN),)),
            Bar(
                "Min-heuristic",
                style.GREEN,
                (_system("min_heuristic", **_CHANGED, **_UNKNOWN),),
            ),
            Bar(
                "Min, no preemption",
                style.RED,
                (_system("min_heuristic", **_KEPT, **_UNKNOWN),),
            ),
            Bar(
                "Min, known lengths",
                style.ORANGE,
                (_system("min_heuristic", **_CHANGED, **_KNOWN),),
            ),
        ),
        claims={
            "no preemption": "samullm.fig14.preemption",
            "Min without over with": "samullm.fig14.preemption-min",
            "known over unknown": "samullm.fig14.known-lengths",
        },
    ),
}


def times_of(rows: pd.DataFrame, group: Matcher, bar: Bar) -> pd.DataFrame:
    """Times by seed, added over the runs of the bar. Raises ValueError where one is missing."""
    total: pd.DataFrame | None = None
    for matcher in bar.runs:
        found = rows
        for column, value in {**group, **matcher}.items():
            found = found[found[column] == value] if column in found else found[:0]
        if found.empty or found[SEED].duplicated().any():
            raise ValueError(f"{bar.label} at {dict(group)} has {len(found)} runs, not one a seed")
        times = found.set_index(SEED)[list(TIMES)]
        total = times if total is None else total + times
    assert total is not None
    return total


def plot(inputs: Inputs) -> Figure:
    """The figure of that name. Raises ValueError where runs are missing."""
    what = FIGURES[inputs.name]
    return draw(what, inputs.runs[what.scenario], inputs.printed)


def draw(what: Bars, rows: pd.DataFrame, printed: Claims) -> Figure:
    """The figure. Raises ValueError where runs are missing."""
    if rows.empty:
        raise ValueError(f"no runs are there: run harness/run.py +scenario={what.scenario}")
    figure = style.new_figure(max(900, 200 + 75 * len(what.groups) * len(what.bars)), 560)
    panel = figure.subplots()
    ticks = []
    for place, (name, group) in enumerate(what.groups.items()):
        reference = times_of(rows, group, what.bars[0]).mean()
        for at, bar in enumerate(what.bars):
            _draw_bar(panel, place, at, len(what.bars), times_of(rows, group, bar), reference, bar)
        ticks.append(f"{name}\n{reference['end_to_end_s']:,.0f} s")
    panel.set_xticks(range(len(ticks)), ticks)
    panel.tick_params(axis="x", length=0)
    panel.set_ylabel("relative to SamuLLM")
    panel.set_title(what.title, loc="left")
    handles = [Patch(facecolor=bar.colour, label=bar.label) for bar in what.bars]
    handles.append(Patch(facecolor="white", edgecolor=style.INK, hatch=style.HATCH, label="extra"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    paper = "; ".join(
        f"{name} {_text(printed[claim]['paper'])}" for name, claim in what.claims.items()
    )
    style.add_footer(
        figure,
        f"Simulated: cost profile {cost_basis(rows)}.\nBars: mean of {rows[SEED].nunique()} seeds, "
        "whiskers min to max; in the bar inference, above it end to end, relative to SamuLLM; "
        f"below each group its end-to-end time.\nThe paper's ratios: {paper}.",
    )
    return figure


def _draw_bar(
    panel: Axes,
    place: int,
    at: int,
    count: int,
    times: pd.DataFrame,
    reference: "pd.Series[float]",
    bar: Bar,
) -> None:
    width = 0.85 / count
    x = place + (at - (count - 1) / 2) * width
    unit_s = reference["end_to_end_s"]
    inference, whole = times["inference_s"].mean() / unit_s, times["end_to_end_s"].mean() / unit_s
    panel.bar(x, inference, 0.92 * width, color=bar.colour)
    panel.bar(
        x,
        whole - inference,
        0.92 * width,
        bottom=inference,
        color="white",
        edgecolor=bar.colour,
        hatch=style.HATCH,
        linewidth=0.6,
    )
    spread = times["end_to_end_s"] / unit_s
    panel.errorbar(
        x,
        whole,
        yerr=[[whole - spread.min()], [spread.max() - whole]],
        color=style.INK,
        linewidth=0.8,
        capsize=2,
    )
    ratio = times["inference_s"].mean() / reference["inference_s"]
    panel.text(x, inference / 2, f"{ratio:.2f}", ha="center", va="center", fontsize=9)
    panel.text(x, spread.max() + 0.01, f"{whole:.2f}", ha="center", va="bottom", fontsize=9)


def _text(paper: object) -> str:
    return " to ".join(map(str, paper)) if isinstance(paper, list) else str(paper)
