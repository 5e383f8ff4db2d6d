"""How a paper's claims are tested, as its file says it: results/claims/<paper>.yaml.

A claim's `check` (or a list of them, all of which must hold) says in data how it is tested:

    rule       range | mean | within | bound | trend, see `harness.claims.verdicts`
    scenario   the folder below results/
    code       what is otherwise for --variant code: a mapping of these words
    table      instead of a scenario a file of harness/profiles/derived, derived from measurements:
               each row is a setting, named by the columns in `settings`
    columns    summary column, or several; each is then a setting of its own
    minus      a summary column taken off first
    derive     columns that are worked out from a run's folder: {name: module:function}, the
               functions being those of `harness.claims.derived`
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
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from harness.claims import verdicts
from harness.claims.verdicts import Band, Setting

Matcher = Mapping[str, object]


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
