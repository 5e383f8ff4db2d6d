"""The figures that a check is about, from the runs of its scenario or from its table.

Only runs of one program and of one variant count (`record.current`): the paper's, or that
of its authors' program.
"""

import itertools
import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.claims.checks import DERIVED, Check, Matcher, over_range
from harness.claims.narrowing import SEED, NotRunError, Table, all_of, fits
from harness.claims.quantities import Measured, Setting, short
from harness.claims.settling import STATED, Specification
from harness.runs.record import current
from harness.runs.stats import Floats


def measure(
    check: Check,
    summaries: pd.DataFrame | Table,
    variant: str = "paper",
    spec: Specification = STATED,
    like: Specification | None = None,
) -> tuple[list[Measured], pd.DataFrame]:
    """Figures over every baseline (or of the system alone), and the runs they come from.

    Of a specification other than the stated one only the settings and seeds count that were run
    for it; with `like` those that were run for that one. Raises `NotRunError` where runs are
    missing or not told apart.
    """
    check = over_range(check, spec)
    narrowed = spec if like is None else like
    table = summaries if isinstance(summaries, Table) else Table(summaries)
    rows = table.rows_for(check, variant, narrowed.choices)
    settings = _settings(check, rows)
    sides = _sides(check, rows, spec)
    own = [*itertools.chain(*sides)]
    theirs = own if like is None else [*itertools.chain(*_sides(check, rows, like))]
    if narrowed.varied:
        settings = [s for s in settings if all(_has(part, _seen_by(it, s)) for it, part in theirs)]
    parts = _at(settings, own)
    beside = [] if like is None else _at(settings, theirs)
    seeds = _seeds([*parts, *beside], every=not narrowed.varied)
    if not seeds:
        place = _place(spec.choices) if spec.varied else "the settings of the paper"
        raise NotRunError(f"no runs of {check.scenario} at {place}")
    tables = [
        sum(
            (_table(check, settings, seeds, side=part, matcher=plain) for plain, part in side),
            np.zeros(()),
        )
        for side in sides
    ]
    used = pd.concat(parts)
    return _measured(check, settings, tables), used.loc[~used.index.duplicated()]


Side = list[tuple[Matcher, pd.DataFrame]]


def _at(settings: Sequence[Setting], pairs: Side) -> list[pd.DataFrame]:
    """The runs at any of the settings, of each matcher; none without a setting."""
    if not settings:
        return []
    return [_in(part, [_seen_by(plain, one) for one in settings]) for plain, part in pairs]


def _sides(check: Check, rows: pd.DataFrame, spec: Specification) -> list[Side]:
    """The runs of the system and of each baseline under a specification, by their matchers."""
    return [
        [
            (plain, rows[fits(rows, plain) & _chosen(rows, check, plain, spec)])
            for plain in _summands(matcher)
        ]
        for matcher in (check.system, *check.baselines)
    ]


def _seen_by(matcher: Matcher, setting: Setting) -> Setting:
    """A setting as the runs have it that fit a matcher: what it names itself is that everywhere."""
    return {column: matcher.get(column, value) for column, value in setting.items()}


def _measured(
    check: Check, settings: Sequence[Setting], tables: Sequence[Floats]
) -> list[Measured]:
    """The system's figures beside each baseline's, or alone."""
    columns = [{"column": name} for name in check.columns] if len(check.columns) > 1 else [{}]
    against = list(zip(check.baselines, tables[1:], strict=True)) or [({}, tables[0])]
    return [
        Measured(
            label=" ".join(str(v) for v in matcher.values() if not isinstance(v, Mapping)),
            quantity=check.quantity,
            settings=[{**setting, **column} for setting in settings for column in columns],
            system=tables[0],
            baseline=baseline,
            of_averages=check.average == "figures",
        )
        for matcher, baseline in against
    ]


def choice_column(key: str, columns: Container[str]) -> str:
    """The summary column of an open choice: of a config group the file that was chosen."""
    chosen = f"config.chosen.{key}"
    return chosen if chosen in columns else f"config.{key}"


def _chosen(
    rows: pd.DataFrame, check: Check, matcher: Matcher, spec: Specification
) -> "pd.Series[bool]":
    """Which rows have a specification's value for every choice that the side leaves open."""
    keep = all_of(rows)
    for key, value in spec.choices.items():
        column = choice_column(key, rows)
        if column in rows and column not in matcher and not check.fixes(column):
            keep &= with_value(rows[column], value, nothing=spec.has_nothing(key))
    return keep


def with_value(column: "pd.Series[Any]", value: object, *, nothing: bool) -> "pd.Series[bool]":
    """Where a column has a value of an open choice, or the configuration has no such key.

    With `nothing` one of the choice's values is null, and an empty cell means that.
    """
    if value is None:
        return column.isna()
    said = "+".join(map(str, value)) if isinstance(value, list) else value
    equal = column == said
    return equal if nothing else equal | column.isna()


def _has(rows: pd.DataFrame, setting: Setting) -> bool:
    return not _in(rows, [setting]).empty


def _seeds(parts: Sequence[pd.DataFrame], *, every: bool) -> list[object]:
    """The seeds of any part, or those that all have."""
    sets = [set(part[SEED]) for part in parts] or [set()]
    found: list[object] = sorted(set.union(*sets) if every else set.intersection(*sets))
    return found


def _summands(matcher: Matcher) -> list[Matcher]:
    """The matchers whose runs' figures are added up; one where nothing is to be added."""
    found: list[Matcher] = [{}]
    for column, value in matcher.items():
        added = value["sum"] if isinstance(value, Mapping) else [value]
        words = (one if isinstance(one, Mapping) else {column: one} for one in added)
        found = [{**before, **one} for one in words for before in found]
    return found


def _table_of(check: Check) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads((DERIVED / check.table).read_text(encoding="utf-8"))
    return content


def knows(check: Check, key: str, summaries: pd.DataFrame, variant: str) -> bool:
    """Whether what a check is about has an open choice at all; true where nothing was run."""
    if check.table:
        return any(key in row for row in _table_of(check)["rows"])
    rows = current(summaries, variant)
    return rows.empty or choice_column(key, rows) in rows


def measure_table(check: Check, spec: Specification = STATED) -> tuple[Measured, str]:
    """Figures of a table that others measured, and what they rest on; seeds do not come into it."""
    content = _table_of(check)
    rows = pd.DataFrame(content["rows"])
    rows = rows[fits(rows, check.where)]
    for key, value in spec.choices.items():
        if key in rows:
            rows = rows[with_value(rows[key], value, nothing=spec.has_nothing(key))]
    if rows.empty:
        raise NotRunError(f"no rows of {check.table} with {_place(spec.choices)}")
    figures = rows[[*check.columns]].to_numpy(np.float64).reshape(1, -1)
    several = len(check.columns) > 1
    settings: list[Setting] = [
        {str(name): row[str(name)] for name in check.settings}
        | ({"column": column} if several else {})
        for row in rows.to_dict("records")
        for column in check.columns
    ]
    measured = Measured(
        label="", quantity="value", settings=settings, system=figures, baseline=figures
    )
    return measured, f"{content.get('kind', 'measured')}: {content['about']}; {content['source']}"


def _settings(check: Check, rows: pd.DataFrame) -> list[Setting]:
    """Every combination of the settings the check asks for and of those run between its ends."""
    if rows.empty:
        raise NotRunError(f"no runs of {check.scenario}")
    if not isinstance(check.settings, Mapping):
        return list(check.settings)
    absent = [column for column in (SEED, *check.settings) if column not in rows]
    if absent:
        raise NotRunError(f"the runs of {check.scenario} have no {', '.join(absent)}")
    values = []
    for column, asked in check.settings.items():
        if "each" in asked:
            values.append(list(asked["each"]))
        else:
            low, high = asked["between"]
            ran = {value for value in rows[column] if low <= value <= high}
            values.append(sorted(ran | {low, high}))
    return [dict(zip(check.settings, found, strict=True)) for found in itertools.product(*values)]


def _in(rows: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """The rows at any of the settings."""
    keys = list(settings[0])
    wanted = {tuple(setting.values()) for setting in settings}
    keep = [key in wanted for key in zip(*(rows[key] for key in keys), strict=True)]
    found: pd.DataFrame = rows.loc[keep] if keys else rows
    return found


def _table(
    check: Check,
    settings: Sequence[Setting],
    seeds: Sequence[object],
    *,
    side: pd.DataFrame,
    matcher: Matcher,
) -> Floats:
    """Figures [seeds, settings x columns] of the system's or a baseline's runs."""
    needed = [*check.columns, *([check.minus] if check.minus else [])]
    absent = [name for name in needed if name not in side]
    if absent:
        raise NotRunError(f"the summaries of {check.scenario} have no {', '.join(absent)}")
    keys = [*(settings[0] if settings else ()), SEED]
    numbers: dict[tuple[object, ...], list[int]] = {}
    for number, values_there in enumerate(zip(*(side[key] for key in keys), strict=True)):
        numbers.setdefault(values_there, []).append(number)
    values = side[needed].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    table = np.full((len(seeds), len(settings), len(check.columns)), np.nan)
    for (i, seed), (j, setting) in itertools.product(enumerate(seeds), enumerate(settings)):
        found = numbers.get((*_seen_by(matcher, setting).values(), seed), [])
        place = {**matcher, **setting, SEED: seed}
        figures = values[_only(side, found, place)]
        table[i, j] = figures[: len(check.columns)] - (figures[-1] if check.minus else 0.0)
        if not np.isfinite(table[i, j]).all():
            raise NotRunError(f"no figure for {_place(place)}")
    return table.reshape(len(seeds), -1)


def _only(side: pd.DataFrame, found: Sequence[int], place: Setting) -> int:
    """The number of the one row that fits."""
    if not found:
        raise NotRunError(f"no run for {_place(place)}")
    if len(found) > 1:
        config = side.iloc[[*found]].filter(like="config.").astype(str)
        differ = [str(name) for name in config if config[name].nunique() > 1]
        raise NotRunError(f"{len(found)} runs fit {_place(place)}: {', '.join(differ)} differ")
    return found[0]


def _place(place: Setting) -> str:
    return ", ".join(f"{short(key)} {value}" for key, value in place.items())
