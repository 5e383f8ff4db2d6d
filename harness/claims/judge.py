"""What a paper claims beside what was run here: `python -m harness.claims <paper> [--strict]`.

Reads results/claims/<paper>.yaml and the run folders it points to, prints one row per claim and
writes results/claims/<paper>_verdicts.json. With --strict it fails unless every claim that has a
check is at least reproduced in its direction.

A claim's `check` (or a list of them, all of which must hold) says in data how it is tested:

    rule       range | mean | within | bound | trend, see `harness.claims.verdicts`
    scenario   the folder below results/
    code       what is otherwise for --variant code: a mapping of these words
    table      instead of a scenario a file of harness/profiles/shapes, derived from measurements:
               each row is a setting, named by the columns in `settings`
    columns    summary column, or several; each is then a setting of its own
    minus      a summary column taken off first
    derive     columns that are worked out from a run's folder: {name: module:function}
    quantity   value | speedup | gain | reduction
    where      columns and their values that every run must have
    system     the same, for the runs of the system
    baselines  the same, one for each baseline; none for `value`
               where a value is {sum: [a, b]}, the figures of the runs with a and with b are added
    settings   column: {each: [a, b]} exactly these; {between: [a, b]} both, and all run in between
               or a list of settings, each with its columns and values
    paper      the figure or [low, high] as printed; the claim's own where it is left out
    step       of the last printed digit
    tolerance  (range) relative, at both ends; (mean) relative
    take, side, at     (bound) largest | smallest, at_most | at_least, the setting it is found at
    against, expect    (trend) a settings column, falling | rising

A claim is *not run* where it has no check, where a run is missing for any system, setting and seed,
or where several runs fit one of them. Only runs of the newest program and of one variant count
(`record.current`): the paper's, or with --variant code that of its authors' program.
"""

import argparse
import importlib
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from harness.claims import verdicts
from harness.claims.verdicts import Band, Measured, Outcome, Setting, Verdict, short
from harness.paths import PROFILES
from harness.runs.config import VARIANTS
from harness.runs.record import ROOT, current, read_summaries
from harness.runs.stats import Floats

SEED = "config.seed"
Matcher = Mapping[str, object]


class NotRunError(Exception):
    """The runs that a check needs are not all there; the text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How one statement is tested; the module says what each field means."""

    rule: str
    columns: Sequence[str]
    scenario: str = ""
    code: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    derive: Mapping[str, str] = field(default_factory=dict)
    paper: float | Sequence[float] | None = None
    step: float = 0.0
    quantity: str = "value"
    minus: str | None = None
    where: Matcher = field(default_factory=dict)
    system: Matcher = field(default_factory=dict)
    baselines: Sequence[Matcher] = ()
    settings: Mapping[str, Mapping[str, Sequence[Any]]] | Sequence[Setting] = field(
        default_factory=dict
    )
    tolerance: float = 0.0
    take: str = ""
    side: str = ""
    at: Setting = field(default_factory=dict)
    against: str = ""
    expect: str = ""

    @property
    def band(self) -> Band:
        """The printed range; a single figure is both of its ends."""
        if self.paper is None:
            raise ValueError(f"rule {self.rule} needs a figure of the paper")
        low, high = self.paper if isinstance(self.paper, Sequence) else (self.paper, self.paper)
        return Band(low, high, self.step)


WORDS: Mapping[str, tuple[str, ...]] = {
    "rule": ("range", "mean", "within", "bound", "trend"),
    "quantity": tuple(verdicts.QUANTITIES),
    "take": ("", "largest", "smallest"),
    "side": ("", "at_most", "at_least"),
    "expect": ("", "falling", "rising"),
}


def read_claims(path: Path) -> list[dict[str, Any]]:
    """The claims of a paper. Raises `ValueError` where the file is absent or a check is wrong."""
    if not path.is_file():
        raise ValueError(f"there are no claims at {path}")
    claims: list[dict[str, Any]] = yaml.safe_load(path.read_text())["claims"]
    for claim in claims:
        read_checks(claim)
    return claims


def read_checks(claim: Mapping[str, Any]) -> list[Check]:
    """The checks of a claim. Raises `ValueError` for a word or a key that is not known."""
    given = claim.get("check", [])
    found = []
    for raw in given if isinstance(given, list) else [given]:
        unknown = {*raw, *raw.get("code", ())} - {one.name for one in fields(Check)}
        if unknown:
            raise ValueError(f"{claim['id']}: a check has no {', '.join(sorted(unknown))}")
        figures = {} if claim["kind"] == "shape" else {"paper": claim["paper"]}
        check = Check(**(figures | raw))
        for (name, known), either in itertools.product(
            WORDS.items(), (check, replace(check, **check.code))
        ):
            if (said := getattr(either, name)) not in known:
                raise ValueError(f"{claim['id']}: {name} is one of {', '.join(known)}, not {said}")
        found.append(check)
    return found


def judge(check: Check, summaries: pd.DataFrame, variant: str = "paper") -> Outcome:
    """Verdict of one check over the runs of its scenario, or its table."""
    if check.table:
        return _judge_table(check)
    try:
        measured, used = measure(check, summaries, variant)
    except NotRunError as missing:
        return Outcome(Verdict.NOT_RUN, "", str(missing))
    unfinished = int(used["unfinished"].sum()) if "unfinished" in used else 0
    outcome = replace(_apply(check, measured), seeds=measured[0].seeds, basis=basis(used))
    return verdicts.gated(outcome, unfinished=unfinished)


def _judge_table(check: Check) -> Outcome:
    """Verdict over rows that others measured; seeds do not come into it."""
    content = json.loads((PROFILES / "shapes" / check.table).read_text(encoding="utf-8"))
    rows = _fitting(pd.DataFrame(content["rows"]), check.where)
    figures = rows[[*check.columns]].to_numpy(np.float64).T
    settings: list[Setting] = [
        {str(name): row[str(name)] for name in check.settings} for row in rows.to_dict("records")
    ]
    measured = Measured(
        label="", quantity="value", settings=settings, system=figures, baseline=figures
    )
    return replace(
        _apply(check, [measured]),
        basis=f"{content.get('kind', 'measured')}: {content['about']}; {content['source']}",
    )


def basis(used: pd.DataFrame) -> str:
    """What the seconds of these runs rest on: cost profiles with their relative fit errors.

    Services whose costs were not measured themselves are named with what stands in for them.
    """
    if "costs.profile" not in used:
        return "profile not stated"
    prefix = "costs.source."
    borrowed = {
        f"{column.removeprefix(prefix)}: {source}"
        for column in used.columns
        if column.startswith(prefix)
        for source in used[column].dropna().unique()
        if source != "measured"
    }
    named = used.reindex(columns=["costs.profile", "costs.fit_error"]).drop_duplicates()
    texts = [
        f"{name} (fit error {error:.1%})" if pd.notna(error) else f"{name} (fit error not stated)"
        for name, error in named.itertuples(index=False)
    ]
    return ", ".join([*sorted(texts), *sorted(borrowed)])


def _apply(check: Check, measured: Sequence[Measured]) -> Outcome:
    if check.rule == "bound":
        return verdicts.judge_bound(
            measured, check.band, take=check.take, side=check.side, at=check.at
        )
    if check.rule == "trend":
        return verdicts.judge_trend(measured, against=check.against, expect=check.expect)
    if check.rule == "within":
        return verdicts.worst([verdicts.judge_within(one, check.band) for one in measured])
    judge_each = verdicts.judge_mean if check.rule == "mean" else verdicts.judge_range
    return verdicts.worst(
        [judge_each(one, check.band, tolerance=check.tolerance) for one in measured]
    )


def measure(
    check: Check, summaries: pd.DataFrame, variant: str = "paper"
) -> tuple[list[Measured], pd.DataFrame]:
    """Figures over every baseline (or of the system alone), and the runs they come from.

    Raises `NotRunError` where runs are missing or not told apart.
    """
    rows = _derived(check, _fitting(current(summaries, variant), check.where))
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


def _summands(matcher: Matcher) -> list[Matcher]:
    """The matchers whose runs' figures are added up; one where nothing is to be added."""
    values = [value["sum"] if isinstance(value, Mapping) else [value] for value in matcher.values()]
    return [dict(zip(matcher, chosen, strict=True)) for chosen in itertools.product(*values)]


def _derived(check: Check, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the columns that a check derives from run folders."""
    if check.derive and "folder" not in rows:
        raise NotRunError(f"no folders of runs of {check.scenario}")
    for name, place in check.derive.items():
        module, _, function = place.partition(":")
        figure = getattr(importlib.import_module(module), function)
        rows = rows.assign(**{name: [figure(Path(folder)) for folder in rows["folder"]]})
    return rows


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


def verdict_of(
    claim: Mapping[str, Any], summaries: Callable[[str], pd.DataFrame], variant: str = "paper"
) -> dict[str, Any]:
    """One row of the table: the claim's facts, our figures and the verdict.

    `summaries` gives the runs of a scenario.
    """
    checks = read_checks(claim)
    if variant == "code":
        checks = [replace(check, **check.code) for check in checks]
    outcomes = [judge(check, summaries(check.scenario), variant) for check in checks]
    outcome = verdicts.worst(outcomes or [Outcome(Verdict.NOT_RUN, "", "no check")])
    facts = {key: claim.get(key) for key in ("id", "where", "metric", "kind", "paper")}
    note = "; ".join(filter(None, (outcome.note, claim.get("note"))))
    ours = {"ours": outcome.ours, "seeds": outcome.seeds, "basis": outcome.basis}
    return facts | ours | {"verdict": str(outcome.verdict), "note": note}


def _figure(paper: object) -> str:
    """A figure of the paper as text."""
    if isinstance(paper, list):
        return " to ".join(str(value) for value in paper)
    if isinstance(paper, dict):
        return ", ".join(f"{key} {value}" for key, value in paper.items())
    return str(paper)


LEAST_WIDTH = 150  # characters; a pipe reports 80, which no column of sentences survives
COLOURS = {"reproduced": "green", "direction only": "yellow", "not reproduced": "red"}


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="Claims of the paper beside what was run here", title_justify="left")
    table.add_column("claim", no_wrap=True)
    table.add_column("paper", overflow="fold", ratio=3)
    table.add_column("ours [95% over seeds]", overflow="fold", ratio=4)
    table.add_column("verdict", no_wrap=True)
    table.add_column("note", overflow="fold", ratio=5)
    for row in rows:
        style = COLOURS.get(row["verdict"], "dim")
        table.add_row(
            row["id"], _figure(row["paper"]), row["ours"], row["verdict"], row["note"], style=style
        )
    console = Console()
    console.width = max(console.width, LEAST_WIDTH)
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and write the verdicts; the exit status."""
    parser = argparse.ArgumentParser(description="Hold a paper's claims against the runs.")
    parser.add_argument("paper", help="a file of results/claims, without .yaml")
    parser.add_argument("--strict", action="store_true", help="fail unless every check holds")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    parser.add_argument("--variant", choices=VARIANTS, default="paper")
    given = parser.parse_args(arguments)
    folder = given.results / "claims"
    try:
        claims = read_claims(folder / f"{given.paper}.yaml")
        summaries = cache(lambda scenario: read_summaries(given.results / scenario))
        rows = [verdict_of(claim, summaries, given.variant) for claim in claims]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    name = "verdicts" if given.variant == "paper" else f"verdicts_{given.variant}"
    (folder / f"{given.paper}_{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    _print(rows)
    checked = {claim["id"] for claim in claims if "check" in claim}
    bad = (Verdict.NOT_REPRODUCED, Verdict.NOT_RUN)
    return int(given.strict and any(row["id"] in checked and row["verdict"] in bad for row in rows))


if __name__ == "__main__":
    sys.exit(main())
