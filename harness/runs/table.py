"""The table a scenario prints: one row per setting, means over seeds, against a reference."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from harness.costs.model import ENGINE
from harness.costs.model_names import model_of, shown_name
from harness.runs.basis import outside_note
from harness.runs.figures import COUNTED, header_of, span_of, unit_of
from harness.runs.limits import POLICY, limits_of, limits_sentence
from harness.runs.record import NOTES
from harness.runs.trace_intervals import BLOCK, KEY

SYSTEM = "config.system.name"
FAILED = "failed"
"""Columns of `read_summaries`, and one that rows of cells that failed have beside their system."""

UNFINISHED = "unfinished"
"""Summary column: requests that a run was cut off before it had answered."""

HIT_RATIO = "prefix_hit_ratio"
"""Summary column, shown wherever a run has it: the share of prompt tokens found in a cache."""
COUNT = "jct_s_count"
"""Summary column: requests that latencies are of."""

NAMES = {"system": SYSTEM}
"""Summary columns of axes that are config groups."""

DIGITS = {
    **{"inference_s": 1, "extra_s": 2, "end_to_end_s": 1, "gpu_idle_s": 0, "gpu_loading_s": 0},
    **{"tpot_s_mean": 4, "tpot_s_p99": 4},
}
"""Digits behind the point; other figures have as many as the smallest needs for three."""
COMPARED = ("inference_s", "end_to_end_s", "jct_s_mean", "jct_s_p99")
"""Figures that are also shown as multiples of the reference's."""


def column_of(axis: str) -> str:
    """Where the value on an axis is found in `read_summaries`."""
    return NAMES.get(axis, f"config.{axis}")


def print_cells(
    rows: pd.DataFrame,
    settings: Mapping[str, Mapping[str, object]],
    compare: Mapping[str, object],
    *,
    shows: Sequence[str],
    console: Console | None = None,
) -> None:
    """Print what the rows of `read_summaries` say, and what their seconds rest on.

    `settings` gives each run's value on every axis; `compare` may name an `axis` and the
    `reference` on it; `shows` are the summary columns to print. A file gets the whole width that
    the table needs. Rows that are `failed` have no figures and are counted.
    """
    console = console or Console(markup=False)
    table, caption = as_table(rows, settings, compare, shows)
    if limits := limits_sentence(_ran(rows)):
        console.print(limits, highlight=False)
    console.print(basis(_ran(rows)), highlight=False)
    print_table(table, console, caption=caption)


def print_table(
    table: pd.DataFrame, console: Console, title: str | None = None, caption: str | None = None
) -> None:
    """Print a frame of texts, its index on the left.

    No cell and no word of a header breaks: a file gets the whole width that this needs, and what is
    wider than a terminal goes on there, close together.
    """
    heads = [*map(str, table.index.names), *map(str, table.columns)]
    places = table.index.to_frame().astype(str).to_numpy()
    lines = np.hstack([places, table.astype(str).to_numpy()]).tolist()
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title)
    shown.caption, shown.caption_justify = caption, "left"
    for place, head in enumerate(heads):
        least = max(map(len, [*head.split(), *(line[place] for line in lines)]))
        side: Literal["left", "right"] = "left" if place < table.index.nlevels else "right"
        shown.add_column(head, justify=side, min_width=least)
    for line in lines:
        shown.add_row(*line)
    if console.is_terminal and _width(shown) > console.width:
        shown.padding = (0, 0)
        for column in shown.columns:
            column.width = column.min_width
    console.width = max(_width(shown), console.width)
    console.print(shown)


def print_varied(
    keys: Sequence[str], *, left_out: Sequence[str] = (), console: Console | None = None
) -> None:
    """Print how many variations of each key were run, and which keys were left out."""
    console = console or Console(markup=False)
    if keys:
        counts = ", ".join(f"{keys.count(key)} of {key}" for key in dict.fromkeys(keys))
        console.print(f"and variations: {counts}", highlight=False)
    if left_out:
        console.print(
            f"variations=true adds other values of {', '.join(left_out)}", highlight=False
        )


def _ran(rows: pd.DataFrame) -> pd.DataFrame:
    """Without failed cells."""
    return rows[~_failed(rows)]


def _failed(rows: pd.DataFrame) -> pd.Series:
    """Whether each row is one of a cell that failed."""
    return rows[FAILED].fillna("").ne("") if FAILED in rows else pd.Series(False, index=rows.index)


def _width(table: Table) -> int:
    console = Console(width=10_000, markup=False)
    return Measurement.get(console, console.options, table).maximum


def basis(rows: pd.DataFrame) -> str:
    """Sentence: simulated with which profile and error, or measured, and on what."""
    kinds = sorted(set(rows["engine"])) if "engine" in rows else []
    measured = [kind for kind in kinds if kind.startswith("measured")]
    if measured and len(measured) == len(kinds):
        return f"seconds {'; '.join(measured)}"
    if measured:
        rest = rows[~rows["engine"].isin(measured)]
        return f"seconds {'; '.join(measured)}, and where the engine says so {basis(rest)}"
    sources = rows[[name for name in rows.columns if name.startswith("costs.source.")]]
    sources = sources.dropna(axis=1, how="all")  # what only others of this scenario have run
    served, profiled = _served(sources), _profiled(rows, sources)
    said = [*served, *(outside_note(rows) if served else ()), *profiled]
    return (
        f"simulated seconds, {'; '.join(said)}; "
        "extra s: planning, measured wall-clock on the machine that ran it"
        f"{''.join(f'; {note}' for note in (*_assumed(sources), *notes_of(rows)))}"
    )


def _served(sources: pd.DataFrame) -> list[str]:
    """Of kinds of engines with named terms: what the seconds of each model rest on."""
    found: dict[str, list[str]] = {}
    for column in sources:
        for source in sources[column].dropna().unique():
            if source.startswith(ENGINE):
                found.setdefault(source.partition("; ")[0], []).append(place_name(str(column)))
    return [f"{said} ({', '.join(sorted(set(places)))})" for said, places in found.items()]


def _profiled(rows: pd.DataFrame, sources: pd.DataFrame) -> list[str]:
    """Of profiles: their names and errors, and how many pairs were measured."""
    is_served = sources.apply(lambda column: column.dropna().str.startswith(ENGINE).all())
    pairs = sources.loc[:, ~is_served] if len(sources.columns) else sources
    if len(sources.columns) and pairs.empty:
        return []
    profiles = ", ".join(sorted(set(rows["costs.profile"])))
    errors = pd.to_numeric(rows["costs.fit_error"], errors="coerce").dropna()
    low, high = f"{errors.min():.1%}", f"{errors.max():.1%}"
    error = "unknown" if errors.empty else low if low == high else f"{low} to {high}"
    other = [name for name in pairs if not (pairs[name].dropna() == "measured").all()]
    roofline = any(pairs[name].dropna().str.startswith("roofline").any() for name in other)
    return [
        f"{_engines(rows)}profile {profiles} (median error of a decode iteration: {error}"
        f"{', of the roofline of vLLM 0.3 in eager mode on models left out' if roofline else ''}; "
        f"{len(pairs.columns) - len(other)} of {len(pairs.columns)} pairs of model and "
        f"tensor parallelism measured{_stand_ins(pairs)}"
        f"{''.join(f'; {note}' for note in outside_note(rows))})"
    ]


def _engines(rows: pd.DataFrame) -> str:
    """The kinds of engines, where rows say them."""
    if "costs.engine" not in rows:
        return ""
    return f"{ENGINE}{', '.join(sorted(set(rows['costs.engine'].dropna())))}, "


def place_name(column: str) -> str:
    """The model and degree of a column of sources; of a config its folder, which has the name."""
    service, _, degree = column.removeprefix("costs.source.").rpartition(" ")
    return f"{shown_name(model_of(service))} {degree}"


def _stand_ins(sources: pd.DataFrame) -> str:
    """Which models were measured in place of others that have the same matrices."""
    labels = {str(label) for name in sources for label in sources[name].dropna()}
    start = "measured on "
    found = sorted(label.removeprefix(start) for label in labels if label.startswith(start))
    return f", others on {' and '.join(found)}, which has the same matrices" if found else ""


def notes_of(rows: pd.DataFrame) -> list[str]:
    """What was assumed or left out, with the policies of the runs that it is about where few."""
    if NOTES not in rows:
        return []
    policies = rows[POLICY].astype(str) if POLICY in rows else pd.Series("", rows.index)
    about: dict[str, set[str]] = {}
    for policy, said in zip(policies, rows[NOTES], strict=True):
        for note in filter(None, said.split("; ")):
            about.setdefault(note, set()).add(policy)
    every = set(policies)
    return [
        note if about[note] == every else f"{note}: {', '.join(sorted(about[note]))}"
        for note in sorted(about)
    ]


def _assumed(sources: pd.DataFrame) -> list[str]:
    """What the facts of models assume, which follows the source of their costs."""
    found = set()
    for column in sources:
        model = place_name(str(column)).rpartition(" ")[0]
        for source in sources[column].dropna():
            if assumed := source.partition("; ")[2]:
                found.add(f"assumed of {model}: {assumed}")
    return sorted(found)


def as_table(
    rows: pd.DataFrame,
    settings: Mapping[str, Mapping[str, object]],
    compare: Mapping[str, object],
    shows: Sequence[str],
) -> tuple[pd.DataFrame, str]:
    """Texts by setting in the order of the matrix, then the compared axis, its reference first.

    And what the table is of, for below it.
    """
    axis = str(compare["axis"]) if compare else "system"
    places = _places(rows, settings, axis)
    keys = list(places.columns)
    limits = _unlike(rows, keys)
    spans = [it for name in shows for it in (*span_of(name), *_blocks_of(name)) if it in rows]
    left = rows.get(UNFINISHED, pd.Series(0.0, index=rows.index)).rename(UNFINISHED)
    shows, lacks = _there(rows, shows)
    figures = rows[[name for name in (*shows, *spans) if name != UNFINISHED]].join(left)
    frame = pd.concat([places, limits, figures.astype(float), _failed(rows).rename(FAILED)], axis=1)
    grouped = frame.groupby(keys, sort=False, dropna=False)
    lost = grouped[FAILED].sum()
    means = grouped.mean().assign(**{"seeds": grouped.size() - lost, FAILED: lost}).reset_index()
    varies = axis in places and places[axis].nunique() > 1
    reference = _plain(compare["reference"]) if compare and varies else None
    means = _ordered(means, keys, axis, reference)
    columns = _settings(means, keys, list(map(str, limits)), shows)
    columns += _figures(means, keys, axis, reference, shows)
    heads, cells = zip(*columns, strict=True)
    index = pd.MultiIndex.from_arrays(cells[: len(keys)], names=heads[: len(keys)])
    table = pd.concat(map(pd.Series, cells[len(keys) :]), axis=1, keys=heads[len(keys) :])
    caption = _caption(sorted(set(means["seeds"]) - {0}), axis, reference) + _samples(rows, lacks)
    return table.set_axis(index), caption


def _settings(
    means: pd.DataFrame, keys: Sequence[str], limits: Sequence[str], shows: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Headers and cells of axes and limits, and of counts of runs and requests where they tell."""
    columns = [(_header(key, keys), [_text(value) for value in means[key]]) for key in keys]
    columns += [(it.replace("_", " "), [_number(value, 0) for value in means[it]]) for it in limits]
    if means["seeds"].nunique() > 1:
        columns.append(("seeds", [_text(value) for value in means["seeds"]]))
    if means[FAILED].any():
        columns.append((FAILED, [_text(value) for value in means[FAILED]]))
    if means[UNFINISHED].any() and UNFINISHED not in shows:
        columns.append((UNFINISHED, [f"{value:,.0f}" for value in means[UNFINISHED]]))
    return columns


def _places(
    rows: pd.DataFrame, settings: Mapping[str, Mapping[str, object]], axis: str
) -> pd.DataFrame:
    """Each run's values on the axes that vary, and its system; the compared axis is last."""
    places = pd.DataFrame.from_dict({run: settings[run] for run in rows.index}, orient="index")
    places = places.map(_plain).drop(columns="seed", errors="ignore").reindex(rows.index)
    places["system"] = rows[column_of("system")]
    kept = [
        name
        for name in places
        if name in ("system", axis) or places[name].nunique(dropna=False) > 1
    ]
    return places[sorted(kept, key=lambda name: (name == axis, name == "system"))]


def _unlike(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Limits in which rows differ; those that are an axis stand there."""
    limits = limits_of(rows)
    axes = {key.rpartition(".")[2] for key in keys}
    return limits[[it for it in limits if it not in axes and limits[it].nunique() > 1]]


def _ordered(
    means: pd.DataFrame, keys: Sequence[str], axis: str, reference: Hashable
) -> pd.DataFrame:
    """Every column's values in the order in which they first appear, the reference first."""
    ranks = pd.DataFrame({key: pd.factorize(means[key], use_na_sentinel=False)[0] for key in keys})
    if reference is not None:
        ranks.loc[means[axis] == reference, axis] = -1
    return means.loc[ranks.sort_values(list(keys), kind="stable").index]


def _figures(
    means: pd.DataFrame,
    keys: Sequence[str],
    axis: str,
    reference: Hashable,
    shows: Sequence[str],
) -> list[tuple[str, list[str]]]:
    """Headers and cells of the figures, and how many times the reference's in the same setting.

    Beside a figure that was drawn again with other costs stands the interval of that figure.
    """
    columns = []
    for figure in shows:
        digits = DIGITS.get(figure, _digits(figure, means[figure]))
        name = header_of(figure)
        columns.append((name, _with_blocks(means, figure, digits)))
        if all(span in means for span in span_of(figure)):
            ends = zip(*(means[span] for span in span_of(figure)), strict=True)
            cells = [f"{_number(low, digits)} to {_number(high, digits)}" for low, high in ends]
            columns.append(("95% by cost error", cells))
        if reference is not None and figure in COMPARED:
            columns.append(("x", _times(means, figure, keys, axis, reference)))
    return columns


def _blocks_of(figure: str) -> tuple[str, str]:
    """Columns with the ends of a figure's interval over blocks of a trace."""
    return f"{KEY}.{figure}.low", f"{KEY}.{figure}.high"


def _with_blocks(means: pd.DataFrame, figure: str, digits: int) -> list[str]:
    """Cells of a figure, with its interval over blocks of the trace where it has one."""
    cells = [_number(value, digits) for value in means[figure]]
    low, high = _blocks_of(figure)
    if low not in means:
        return cells
    ends = zip(cells, means[low], means[high], strict=True)
    return [
        cell if np.isnan(a) else f"{cell} [{_number(a, digits)}, {_number(b, digits)}]"
        for cell, a, b in ends
    ]


def _digits(figure: str, values: "pd.Series[float]") -> int:
    """Digits behind the point with which the smallest value has three, one to four of them."""
    if unit_of(figure) in COUNTED:
        return 0
    sizes = values.abs()[values != 0].dropna()
    return int(np.clip(2 - np.floor(np.log10(sizes.min())), 1, 4)) if len(sizes) else 1


def _number(value: float, digits: int) -> str:
    """A figure; of what has none, a dash; of what would round to 0, two significant digits."""
    if 0 < abs(value) < 0.5 * 10**-digits:
        return f"{value:.2g}"
    return "-" if np.isnan(value) else f"{value:,.{digits}f}"


def _times(
    means: pd.DataFrame, figure: str, keys: Sequence[str], axis: str, reference: Hashable
) -> list[str]:
    here = means[means[axis] == reference]
    # Of an axis that says nothing to the reference it has one value only.
    others = [key for key in keys if key != axis and here[key].nunique(dropna=False) != 1]
    settings = list(means[others].itertuples(index=False, name=None))
    of_reference = {
        setting: value
        for setting, value, place in zip(settings, means[figure], means[axis], strict=True)
        if place == reference
    }
    return [
        _number(value / of_reference[setting], 2) if setting in of_reference else "-"
        for setting, value in zip(settings, means[figure], strict=True)
    ]


def _caption(seeds: Sequence[int], axis: str, reference: Hashable) -> str:
    count = f"{seeds[0]} seed{'s' * (seeds[0] != 1)}" if len(seeds) == 1 else "the seeds"
    text = "1 seed" if seeds == [1] else f"means over {count}"
    if reference is not None:
        text += f"; x: times that of {_header(axis, [axis])} {reference}, in the same setting"
    return text


def _there(rows: pd.DataFrame, shows: Sequence[str]) -> tuple[list[str], list[str]]:
    """The figures that any run has, all where there are none, and the others."""
    if HIT_RATIO in rows and rows[HIT_RATIO].notna().any():
        shows = list(dict.fromkeys((*shows, HIT_RATIO)))
    lacks = [name for name in shows if rows[name].isna().all()]
    there = [name for name in shows if name not in lacks]
    return (there, lacks) if there else (list(shows), [])


def _samples(rows: pd.DataFrame, lacks: Sequence[str]) -> str:
    """How many requests the figures are of, and which have no value."""
    block = rows.get(f"{KEY}.{BLOCK}", pd.Series(np.nan, rows.index))
    said = ""
    if (block > 0).any():
        said = f"; [ ]: 95% over blocks of {block.max():,.0f} requests of the trace"
    if block.notna().any():
        said += "; a trace is one sample, of which seeds draw nothing"
    if COUNT in rows and rows[COUNT].notna().any():
        least, most = rows[COUNT].min(), rows[COUNT].max()
        count = f"{least:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"
        said += f"; {count} requests a run"
    if lacks:
        said += f"; no value of {', '.join(map(header_of, lacks))}"
    return said


def _header(axis: str, axes: Sequence[str]) -> str:
    """The last part of a dotted key where that is clear, with spaces to break a line at."""
    last = axis.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == last for other in axes) == 1
    return (last if alone else axis).replace("_", " ")


def _plain(value: object) -> Hashable:
    """A value as something that can be grouped by: lists as text."""
    return value if isinstance(value, Hashable) else str(value)


def _text(value: object) -> str:
    """A cell: whole numbers with separators."""
    is_count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)
