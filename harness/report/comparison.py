"""What a comparison found, as sentences, tables, a CSV file and a plot."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from harness.runs.figures import header_of
from harness.runs.trace_intervals import ATTAINMENT

JUDGED = (
    *("ttft_s_mean", "ttft_s_p99", "tpot_s_mean", "jct_s_mean", "jct_s_p99"),
    *(ATTAINMENT, "goodput_per_s", "requests_per_s"),
)
NOT_TOLD = "not told"
BETTER_HIGH = frozenset({ATTAINMENT, "goodput_per_s", "requests_per_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison found.

    `figures` has a row per load, policy and figure: its value, the ends of its interval over blocks
    of the trace (NaN: not told), and the same of its ratio to the figure of `reference`, with the
    range of the ratio over drawn costs at the own rate. `sign` is 1 where the policy is better than
    the reference beyond noise, -1 where it is worse, 0 where they are alike, NaN where that is not
    told. `best` has by load and figure the best policy, and those that are not worse beyond noise
    or not told apart from it. Loads are shares of `capacity_per_s`, requests a second; `own_load`
    is the trace's. `basis` are lines that say what was compared, `left_out` policies that could not
    serve the load and why.
    """

    figures: pd.DataFrame
    best: pd.DataFrame
    reference: str
    capacity_per_s: float
    own_load: float
    basis: tuple[str, ...]
    limits: pd.DataFrame
    left_out: Mapping[str, str]
    about: str


def answer(found: Comparison) -> list[str]:
    """Three sentences: attainment and mean JCT at the own rate, and attainment at other loads."""
    figures = set(found.best["figure"])
    first = ATTAINMENT if ATTAINMENT in figures else "jct_s_mean"
    said = [f"At the trace's own rate, load {found.own_load:.2f}: {_winner(found, first)}."]
    if first == ATTAINMENT:
        said.append(f"Of answers: {_winner(found, 'jct_s_mean')}.")
    best = found.best[(found.best["figure"] == first) & (found.best["load"] != found.own_load)]
    by_policy: dict[str, list[str]] = {}
    for row in best.to_dict("records"):
        word_ = _beats(found, row["load"], first) or f"no policy beyond {found.reference}"
        by_policy.setdefault(word_, []).append(f"{row['load']:.2f}")
    each = "; ".join(f"{name} at {', '.join(loads)}" for name, loads in by_policy.items())
    return [*said, f"Best {header_of(first)} at other loads: {each}."]


def _best(found: Comparison, load: float, figure: str) -> dict[str, str]:
    """The row of `best`."""
    rows = found.best[(found.best["load"] == load) & (found.best["figure"] == figure)]
    return {str(name): str(value) for name, value in rows.iloc[0].items()}


def _beats(found: Comparison, load: float, figure: str) -> str | None:
    """The best policy where it beats the reference beyond noise, `NOT_TOLD`, or else None."""
    best = _best(found, load, figure)
    if best["policy"] == found.reference or found.reference in best["alike"].split():
        return None
    return NOT_TOLD if found.reference in best["not_told"].split() else best["policy"]


def _winner(found: Comparison, figure: str) -> str:
    """Which policy is best in a figure at the own rate, by how much, and how sure."""
    name = header_of(figure)
    rows = found.figures[found.figures["load"] == found.own_load]
    rows = rows[rows["figure"] == figure].set_index("policy")
    best = _best(found, found.own_load, figure)
    policy, beats = best["policy"], _beats(found, found.own_load, figure)
    row, reference = rows.loc[policy].astype(float, errors="ignore"), found.reference
    other = float(rows["value"].to_dict()[reference])
    size = f"{row['value']:.3g} against {other:.3g} of {reference}"
    if not np.isnan(row["ratio"]):
        size += f", {row['ratio']:.2f}x [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
    if row["costs_high"] > row["costs_low"]:
        size += f", {row['costs_low']:.2f} to {row['costs_high']:.2f}x as costs may be off"
    if beats == NOT_TOLD:
        return f"whether {policy} has a better {name} than {reference} is not told ({size})"
    if beats is None:
        more = "" if policy == reference else f" ({policy}: {size})"
        return f"no policy beats {reference} in {name} beyond noise{more}"
    alike = [it for it in best["alike"].split() if it != reference]
    more = f"; {', '.join(alike)} alike" if alike else ""
    return f"{policy} has the best {name}, {size}{more}"


def shown(found: Comparison, console: Console) -> None:
    """Print what was found: the answer, the figures at the own rate, the best by load."""
    for line in answer(found):
        console.print(line, highlight=False)
    unlike = [str(it) for it in found.limits if found.limits[it].nunique() > 1]
    for it in unlike:
        most = found.limits[it].max()
        less = [
            f"{policy} {value:,.0f}" for policy, value in found.limits[it].items() if value < most
        ]
        console.print(f"unlike limits: {it} {', '.join(less)} against {most:,.0f}", highlight=False)
    own = found.figures[found.figures["load"] == found.own_load]
    names = [name for name in JUDGED if (own["figure"] == name).any()]
    table = Table(box=box.SIMPLE_HEAD, title=f"at the trace's own rate, load {found.own_load:.2f}")
    headings = [it.replace("_", " ") for it in unlike]
    for heading in ("policy", *headings, *(header_of(name) for name in names)):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    order = sorted(own["policy"].unique(), key=lambda name: name != found.reference)
    for policy in order:
        by_name = own[own["policy"] == policy].set_index("figure")
        limits = [f"{found.limits[it].to_dict()[policy]:,.0f}" for it in unlike]
        table.add_row(str(policy), *limits, *(_cell(by_name.loc[name]) for name in names))
    console.print(table)
    console.print(_best_table(found, names))
    console.print(f"{found.about}; rates are until the last answer", highlight=False)


def _cell(row: "pd.Series[float]") -> str:
    """A figure, its interval, and + or - where it is better or worse than the reference's."""
    mark = {1.0: " +", -1.0: " -"}.get(float(row["sign"]), "")
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
    return f"{row['value']:.3g}{interval}{mark}"


def _best_table(found: Comparison, names: Sequence[str]) -> Table:
    """The policy that beats the reference most, by figure and load."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"best beyond noise; -: no policy beats {found.reference}; ?: not told",
    )
    loads = sorted(found.best["load"].unique())
    for heading in ("figure", *(f"load {load:.2f}" for load in loads)):
        table.add_column(heading)
    for name in names:
        cells = [_beats(found, load, name) or "-" for load in loads]
        table.add_row(header_of(name), *("?" if it == NOT_TOLD else it for it in cells))
    return table


def written(found: Comparison, folder: Path) -> list[Path]:
    """Write figures.csv and loads.png; their paths."""
    os.environ.setdefault("MPLBACKEND", "agg")
    from plots.compare import plot

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "figures.csv", folder / "loads.png"]
    found.figures.to_csv(paths[0], index=False, float_format="%.6g")
    plot(found.figures, found.reference, found.own_load, "\n".join(found.basis)).savefig(paths[1])
    return paths
