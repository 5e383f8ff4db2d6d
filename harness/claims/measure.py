"""The figures that a check is about, from the runs of its scenario or from its table.

Only runs of the newest program and of one variant count (`record.current`): the paper's, or that
of its authors' program.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.claims.checks import Check, Matcher
from harness.claims.derived.columns import with_derived
from harness.claims.verdicts import Measured, Setting, short
from harness.paths import PROFILES
from harness.runs.record import current
from harness.runs.stats import Floats

SEED = "config.seed"


class NotRunError(Exception):
    """The runs that a check needs are not all there; the text says what is missing."""


def measure(
    check: Check, summaries: pd.DataFrame, variant: str = "paper"
) -> tuple[list[Measured], pd.DataFrame]:
    """Figures over every baseline (or of the system alone), and the runs they come from.

    Raises `NotRunError` where runs are missing or not told apart.
    """
    rows = _rows(check, summaries, variant)
    settings = _settings(check, rows)
    matchers = (check.system, *check.baselines)
    sides = [
        pd.concat([_in(_fitting(rows, plain), settings) for plain in _summands(matcher)])
        for matcher in matchers
    ]
    seeds = sorted({seed for side in sides for seed in side[SEED]})
    if not seeds:
        raise NotRunError(f"no runs of {check.scenario} at the settings of the paper")
    tables = [
        sum(
            (_table(check, settings, seeds, side=side, matcher=m) for m in _summands(matcher)),
            np.zeros(()),
        )
        for side, matcher in zip(sides, matchers, strict=True)
    ]
    columns = [{"column": name} for name in check.columns] if len(check.columns) > 1 else [{}]
    against = list(zip(check.baselines, tables[1:], strict=True)) or [({}, tables[0])]
    measured = [
        Measured(
            label=" ".join(str(v) for v in matcher.values() if not isinstance(v, Mapping)),
            quantity=check.quantity,
            settings=[{**setting, **column} for setting in settings for column in columns],
            system=tables[0],
            baseline=baseline,
        )
        for matcher, baseline in against
    ]
    used = pd.concat(sides)
    return measured, used.loc[~used.index.duplicated()]


def _rows(check: Check, summaries: pd.DataFrame, variant: str) -> pd.DataFrame:
    """The runs that count, with the columns that the check derives from their folders."""
    rows = _fitting(current(summaries, variant), check.where)
    if check.derive and "folder" not in rows:
        raise NotRunError(f"no folders of runs of {check.scenario}")
    return with_derived(rows, check.derive)


def _summands(matcher: Matcher) -> list[Matcher]:
    """The matchers whose runs' figures are added up; one where nothing is to be added."""
    values = [value["sum"] if isinstance(value, Mapping) else [value] for value in matcher.values()]
    return [dict(zip(matcher, chosen, strict=True)) for chosen in itertools.product(*values)]


def measure_table(check: Check) -> tuple[Measured, str]:
    """Figures of a table that others measured, and what they rest on; seeds do not come into it."""
    content = json.loads((PROFILES / "derived" / check.table).read_text(encoding="utf-8"))
    rows = _fitting(pd.DataFrame(content["rows"]), check.where)
    figures = rows[[*check.columns]].to_numpy(np.float64).T
    settings: list[Setting] = [
        {str(name): row[str(name)] for name in check.settings} for row in rows.to_dict("records")
    ]
    measured = Measured(
        label="", quantity="value", settings=settings, system=figures, baseline=figures
    )
    return measured, f"{content.get('kind', 'measured')}: {content['about']}; {content['source']}"


def _fitting(rows: pd.DataFrame, matcher: Matcher) -> pd.DataFrame:
    for column, value in matcher.items():
        if column not in rows:
            raise NotRunError(f"no runs with {short(column)} {value}")
        rows = rows[rows[column] == value]
    return rows


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
    table = np.full((len(seeds), len(settings), len(check.columns)), np.nan)
    for (i, seed), (j, setting) in itertools.product(enumerate(seeds), enumerate(settings)):
        place = {**matcher, **setting, SEED: seed}
        row = _only(_fitting(side, place), place)
        figures = np.array([row[name] for name in needed], dtype=np.float64)
        table[i, j] = figures[: len(check.columns)] - (figures[-1] if check.minus else 0.0)
        if not np.isfinite(table[i, j]).all():
            raise NotRunError(f"no figure for {_place(place)}")
    return table.reshape(len(seeds), -1)


def _only(rows: pd.DataFrame, place: Setting) -> Mapping[str, Any]:
    """The one row that fits."""
    if rows.empty:
        raise NotRunError(f"no run for {_place(place)}")
    if len(rows) > 1:
        config = rows.filter(like="config.").astype(str)
        differ = [str(name) for name in config if config[name].nunique() > 1]
        raise NotRunError(f"{len(rows)} runs fit {_place(place)}: {', '.join(differ)} differ")
    return {str(name): value for name, value in rows.iloc[0].items()}


def _place(place: Setting) -> str:
    return ", ".join(f"{short(key)} {value}" for key, value in place.items())
