"""SamuLLM's figures 8, 12 and 14: running times as bars.

As in the paper each bar is inference time below and extra (planning) time above, relative to
SamuLLM at the same setting, in figure 14 to the same system as it is: the inference time in the
middle, the end-to-end time on top. Bars are means over seeds, whiskers their range; the paper's
ranges of end-to-end times over all settings stand in a column of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.runs.basis import cost_basis
from plots import style
from plots.inputs import Claims, Inputs, span_of
from plots.samullm_fig7 import draw_ranges

SEED = "config.seed"
TIMES = ("inference_s", "end_to_end_s")
Matcher = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of every group: runs that match, or the sum over several that do.

    `claim` has the range that the paper prints for it, `reference` is the place of the bar that it
    is relative to.
    """

    label: str
    colour: str
    runs: tuple[Matcher, ...]
    claim: str = ""
    reference: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """A figure: groups along the axis, the same bars in each."""

    scenario: str
    title: str
    groups: Mapping[str, Matcher]
    bars: tuple[Bar, ...]


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
_VERSUS = {"max_heuristic": "fig8.vs-max", "min_heuristic": "fig8.vs-min"}
_KEPT = {"config.system.placement.preemption": False}
_AS_IT_IS = {"config.system.placement.preemption": True, **_UNKNOWN}


def _variant(
    label: str, colour: str, name: str, more: Matcher = MappingProxyType({}), claim: str = ""
) -> Bar:
    """A system with preemption and without known lengths but for `more`, of figure 14."""
    runs = (_system(name, **{**_AS_IT_IS, **more}),)
    return Bar(label, colour, runs, claim, reference=0 if name == "samullm" else 3)


FIGURES: Mapping[str, Bars] = {
    "fig8": Bars(
        scenario="routing",
        title="LLM routing",
        groups={
            "output lengths unknown": {"config.workload.answers": "own", **_UNKNOWN},
            "output lengths known": {"config.workload.answers": "published", **_KNOWN},
        },
        bars=tuple(
            Bar(label, colour, (_system(name),), _VERSUS.get(name, ""))
            for label, colour, name in _NAMES
        ),
    ),
    "fig12": Bars(
        scenario="mixed",
        title="Chain summary (documents) with LLM ensembling (5,000 requests)",
        groups={
            f"({count}, 5000)": {"config.workload.parts.summary.documents": count}
            for count in (100, 400, 500)
        },
        bars=(
            *(
                Bar(
                    label,
                    colour,
                    (_system(name, **_BOTH),),
                    "fig12.vs-heuristics" if name in _VERSUS else "",
                )
                for label, colour, name in _NAMES
            ),
            Bar(
                "SamuLLM, one application after the other",
                style.SKY,
                (_system("samullm", **_SUMMARY), _system("samullm", **_ENSEMBLE)),
                "fig12.together",
            ),
        ),
    ),
    "fig14": Bars(
        scenario="ablation",
        title="Variants on the mixed application (500, 5000)",
        groups={
            f"ensembling limit {limit}": {"config.workload.parts.ensemble.max_output_tokens": limit}
            for limit in (256, 512)
        },
        bars=(
            _variant("Ours (SamuLLM)", style.BLUE, "samullm"),
            _variant("no preemption", style.SKY, "samullm", _KEPT, "fig14.preemption"),
            _variant("known lengths", style.PURPLE, "samullm", _KNOWN, "fig14.known-lengths"),
            _variant("Min-heuristic", style.GREEN, "min_heuristic"),
            _variant(
                "Min, no preemption", style.RED, "min_heuristic", _KEPT, "fig14.preemption-min"
            ),
            _variant(
                "Min, known lengths", style.ORANGE, "min_heuristic", _KNOWN, "fig14.known-lengths"
            ),
        ),
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
    figure = style.new_figure(max(900, 200 + 75 * (len(what.groups) + 1) * len(what.bars)), 560)
    panel = figure.subplots()
    ticks = []
    for place, (name, group) in enumerate(what.groups.items()):
        times = [times_of(rows, group, bar) for bar in what.bars]
        for at, bar in enumerate(what.bars):
            reference = times[bar.reference].mean()
            _draw_bar(panel, place, at, len(what.bars), times[at], reference, bar)
        ticks.append(f"{name}\n{times[0]['end_to_end_s'].mean():,.0f} s")
    ranges = [(bar.colour, span_of(printed[bar.claim])) for bar in what.bars if bar.claim]
    draw_ranges(panel, len(ticks), ranges)
    panel.set_xticks(range(len(ticks) + 1), [*ticks, "paper"])
    panel.tick_params(axis="x", length=0)
    panel.axhline(1, color=style.INK, linewidth=0.8, linestyle=":")
    own = any(bar.reference for bar in what.bars)
    relative = "the same system as it is" if own else "SamuLLM"
    panel.set_ylabel(f"relative to {relative}")
    panel.set_title(what.title, loc="left")
    handles = [Patch(facecolor=bar.colour, label=bar.label) for bar in what.bars]
    handles.append(Patch(facecolor="white", edgecolor=style.INK, hatch=style.HATCH, label="extra"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    style.add_footer(
        figure,
        f"Simulated: cost profile {cost_basis(rows)}.\nBars: mean of {rows[SEED].nunique()} seeds, "
        f"whiskers min to max; in the bar inference, above it end to end, relative to {relative}; "
        "below each group SamuLLM's end-to-end time. Right: the paper's ranges of end-to-end time.",
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
