"""The runs and columns that a check may ask for: of thousands and a hundred, over and over."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import pandas as pd

from harness.claims.checks import Check, Matcher
from harness.claims.derived.columns import with_derived
from harness.claims.quantities import short
from harness.claims.reading import Claim
from harness.runs.record import current

SEED = "config.seed"
VARIED = "config.varied"
"""The open choice that a run is a variation of; empty for the scenario's own cells."""

_ALWAYS = {
    *(SEED, "config.variant", "code", "started", "engine"),
    *("folder", "unfinished", "outside_profile_share"),
}
_BASIS = "costs."


def narrowed(rows: pd.DataFrame, claim: Claim, check: Check) -> pd.DataFrame:
    """The same runs with the columns that the check and the claim's open choices name.

    And with those of the configuration in which any two of them differ: they tell runs apart.
    """
    if rows.empty:
        return rows
    named = _ALWAYS | {*_texts(check), *(text for one in claim.open for text in _texts(one.checks))}
    for one in claim.open:
        named |= {f"config.{one.key}", f"config.chosen.{one.key}"}
    config = [name for name in rows.columns if str(name).startswith("config.")]
    values = rows[config].to_numpy(object)
    named |= {config[at] for at in (values != values[0]).any(0).nonzero()[0]}
    return rows[[n for n in rows.columns if n in named or str(n).startswith(_BASIS)]].copy()


def _texts(of: object) -> Iterator[str]:
    """All texts in it."""
    if isinstance(of, str):
        yield of
    elif isinstance(of, Check):
        yield from _texts([getattr(of, one.name) for one in fields(of)])
    elif isinstance(of, Mapping):
        yield from _texts([*of.keys(), *of.values()])
    elif isinstance(of, Sequence):
        for one in of:
            yield from _texts(one)


class NotRunError(Exception):
    """The runs that a check needs are not all there; the text says what is missing."""


class NoGainError(Exception):
    """The runs are there, but what a check takes of them is not defined; the text says why."""


@dataclass(frozen=True, slots=True)
class Table:
    """The runs of a scenario, and what was taken of them: specifications ask for the same."""

    runs: pd.DataFrame
    _taken: dict[object, pd.DataFrame] = field(default_factory=dict)

    def rows_for(self, check: Check, variant: str, choices: Collection[str]) -> pd.DataFrame:
        """The runs that count, with the columns that the check derives from their folders.

        Of the variations of a scenario those of the claim's own open choices count.
        """
        words = (variant, frozenset(choices), f"{check.where} {check.derive}")
        if words not in self._taken:
            self._taken[words] = self._take(check, variant, choices)
        return self._taken[words]

    def _take(self, check: Check, variant: str, choices: Collection[str]) -> pd.DataFrame:
        rows = current(self.runs, variant)
        if VARIED in rows:
            rows = rows[rows[VARIED].fillna("").isin(["", *choices])]
        rows = rows[fits(rows, check.where)]
        if check.derive and "folder" not in rows:
            raise NotRunError(f"no folders of runs of {check.scenario}")
        return with_derived(rows, check.derive)


def all_of(rows: pd.DataFrame) -> "pd.Series[bool]":
    """A mask to narrow: rows are copied once, which are many columns wide."""
    return pd.Series(True, index=rows.index)


def fits(rows: pd.DataFrame, matcher: Matcher) -> "pd.Series[bool]":
    """Which rows have these values. Raises NotRunError where there is no such column."""
    keep = all_of(rows)
    for column, value in matcher.items():
        if column not in rows:
            raise NotRunError(f"no runs with {short(column)} {value}")
        keep &= rows[column] == value
    return keep
