"""How a claim of a paper is tested: the words of a `check` in results/claims/<paper>.yaml.

    rule       range | figure | within | bound | trend, see `harness.claims.verdicts`
    scenario   the folder below results/
    code       what is otherwise for --variant code: a mapping of these words
    table      instead of a scenario a file of harness/profiles/derived, derived from measurements:
               each row is a setting, named by the columns in `settings`
    columns    summary column, or several; each is then a setting of its own
    minus      a summary column taken off first
    derive     columns that are worked out from a run's folder: {name: module:function}, the
               functions being those of `harness.claims.derived`
    quantity   value | difference | speedup | gain | reduction
    where      columns and their values that every run must have
    system     the same, for the runs of the system
    baselines  the same, one for each baseline; none for `value`
               where a value is {sum: [a, b]}, the figures of the runs with a and with b are added;
               instead of a value there may be columns and their values, also of a setting
    settings   column: {each: [a, b]} exactly these; {between: [a, b]} both, and all run in between
               or a list of settings, each with its columns and values
    average    ratios | figures: on average over settings it is the mean of what each setting
               gives, or what the means of the figures give
    paper      the figure or [low, high] as printed; the claim's own where it is left out
    step       of the last printed digit
    tolerance  (range, figure, within) share of the claimed effect that ours may be off by
    take, side, at     (bound) largest | smallest | mean, at_most | at_least, the setting where
    against, expect    (trend) a settings column, falling | rising

Of a choice that the claim leaves open a check takes the runs with its value. A side (`system` or a
baseline) that names the choice's column itself keeps its own value, and a run whose configuration
has no such key counts for every value.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from harness.claims.derived.columns import named
from harness.claims.quantities import QUANTITIES, Setting
from harness.claims.settling import Specification
from harness.claims.verdicts import TOLERANCE, Band
from harness.costs.model_facts import unknown_name
from harness.paths import PROFILES
from harness.runs.metrics import FIGURES, NESTED
from harness.schema import STRICT, NotNegative, fits

Matcher = Mapping[str, object]
NAME = re.compile(r"\w[\w.-]{0,99}")
"""Of a scenario, whose folder bears it."""
DERIVED = PROFILES / "derived"
"""Where tables are that were derived from measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How one statement is tested; the module says what each field means."""

    __pydantic_config__ = STRICT

    rule: str
    columns: Sequence[str]
    scenario: str = ""
    code: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    derive: Mapping[str, str] = field(default_factory=dict)
    paper: float | Sequence[float] | None = None
    step: NotNegative = 0.0
    quantity: str = "value"
    minus: str | None = None
    where: Matcher = field(default_factory=dict)
    system: Matcher = field(default_factory=dict)
    baselines: Sequence[Matcher] = ()
    settings: Mapping[str, Mapping[str, Sequence[Any]]] | Sequence[Setting] = field(
        default_factory=dict
    )
    average: str = "ratios"
    tolerance: NotNegative = TOLERANCE
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

    def read(self, words: Mapping[str, Any]) -> "Check":
        """The check with other words. Raises ValueError for what it may not say."""
        return _shaped({one.name: getattr(self, one.name) for one in fields(self)} | {**words})

    def fixes(self, column: str) -> bool:
        """Whether every run that it is about has one value of a column, or each setting its own."""
        placed = self.settings if isinstance(self.settings, Mapping) else self.settings[0]
        sides = [self.system, *self.baselines]
        return column in self.where or column in placed or all(column in one for one in sides)


WORDS: Mapping[str, tuple[str, ...]] = {
    "rule": ("range", "figure", "within", "bound", "trend"),
    "quantity": tuple(QUANTITIES),
    "average": ("ratios", "figures"),
    "take": ("", "largest", "smallest", "mean"),
    "side": ("", "at_most", "at_least"),
    "expect": ("", "falling", "rising"),
}


def read_check(raw: Mapping[str, Any]) -> Check:
    """A check from its words. Raises `ValueError` for a word or a value that is not known."""
    _known({**raw, **raw.get("code", {})})
    for word in ("rule", "columns"):
        if word not in raw:
            raise ValueError(f"a check has no {word}")
    check = _shaped(raw)
    if check.code:
        check.read(check.code)
    return check


def _shaped(words: Mapping[str, Any]) -> Check:
    """A check of these words. Raises ValueError for what they may not be, alone and together."""
    _known(words)
    check = fits(words, Check, "check")
    _check_settings(check)
    _refuse_twice("columns", check.columns)
    for side in (check.system, *check.baselines):
        for column, value in side.items():
            if isinstance(value, Mapping) and not (
                [*value] == ["sum"] and isinstance(value["sum"], list) and value["sum"]
            ):
                raise ValueError(f"{column}={value} is neither a value nor {{sum: [a, b]}}")
    for column, place in check.derive.items():
        try:
            named(place)
        except ValueError as error:
            raise ValueError(f"derive.{column}={error}") from None
    _check(check)
    return check


def _check_settings(check: Check) -> None:
    """Raise ValueError for settings that no run can have, or that would count twice."""
    listed: Sequence[Setting] = []
    if isinstance(check.settings, Mapping):
        for name, of in check.settings.items():
            if of or not check.table:  # of a table every row has its own
                _check_values(f"settings.{name}", of)
    else:
        listed = check.settings
        if not listed:
            raise ValueError(f"settings={listed} has no setting")
        _refuse_twice("settings", listed)
    for setting in (*listed, check.at):
        for column, value in setting.items():
            if isinstance(value, list | Mapping):
                raise ValueError(f"{column}={value} is no single value of a setting")


def _check_values(name: str, of: Mapping[str, Sequence[Any]]) -> None:
    """Raise ValueError where a setting is not given by its values or by the ends of them."""
    if [*of] not in (["each"], ["between"]):
        raise ValueError(f"{name}={of} is neither {{each: []}} nor {{between: []}}")
    [(word, values)] = of.items()
    if not values or any(isinstance(value, list | Mapping) for value in values):
        raise ValueError(f"{name}.{word}={values} is not a list of single values")
    is_span = len(values) == 2 and all(map(_is_number, values)) and values[0] <= values[1]
    if word == "between" and not is_span:
        raise ValueError(f"{name}.between={values} is not [smallest, largest]")
    _refuse_twice(name, values)


def _refuse_twice(name: str, values: Sequence[object]) -> None:
    """Raise ValueError for what would count twice."""
    if twice := doubled(values):
        raise ValueError(f"{name}={values} has {twice[0]} twice")


def doubled(values: Sequence[object]) -> list[object]:
    """Those that are there more than once."""
    return [value for value in values if [*values].count(value) > 1]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _known(words: Mapping[str, Any]) -> None:
    known = dict.fromkeys(one.name for one in fields(Check))
    for word, value in words.items():
        if word not in known:
            raise ValueError(f"{word}={value}: {unknown_name('word of a check', str(word), known)}")


def _check(check: Check) -> None:
    for name, known in WORDS.items():
        if (said := getattr(check, name)) not in known:
            raise ValueError(f"{name}={said} is none of {', '.join(filter(None, known))}")
    if not check.columns:
        raise ValueError(f"columns={check.columns} is not a list of columns")
    for name in {"bound": ("take", "side"), "trend": ("against", "expect")}.get(check.rule, ()):
        if not getattr(check, name):
            raise ValueError(f"rule={check.rule} needs {name}")
    _check_together(check)
    if check.rule != "trend":
        _check_figures(check.rule, check.paper)


def _check_together(check: Check) -> None:
    """Raise ValueError for words that are right alone and say nothing together."""
    if bool(check.table) == bool(check.scenario):
        raise ValueError(f"scenario={check.scenario}, table={check.table}: one of them is needed")
    if check.scenario and not NAME.fullmatch(check.scenario):
        raise ValueError(f"scenario={check.scenario} is no name of a folder below results")
    if check.scenario:
        _check_columns(check)
    if check.table and not (DERIVED / check.table).is_file():
        known = {path.name: path for path in DERIVED.glob("*.json")}
        raise ValueError(unknown_name("table", check.table, known))
    _check_places(check)
    compared = check.quantity != "value"
    if compared != bool(check.baselines):
        need = "needs baselines" if compared else "has no baselines"
        raise ValueError(f"quantity={check.quantity} {need}")
    if check.average == "figures" and len(check.columns) > 1:
        raise ValueError(f"average=figures: {', '.join(check.columns)} have no average together")
    if check.rule == "within" and compared:
        raise ValueError(
            f"rule=within, quantity={check.quantity}: what is compared is a range, a figure or a "
            "bound, or no effect would pass for a small one"
        )


def _check_places(check: Check) -> None:
    """Raise ValueError for a column that the settings do not have, or no numbers to go along."""
    listed = check.settings if isinstance(check.settings, Sequence) else [check.settings]
    columns = dict.fromkeys(["column", *itertools.chain(*listed)])
    for column in (*check.at, *([check.against] if check.against else [])):
        if column not in columns:
            raise ValueError(unknown_name("column of the settings", column, columns))
    for value in _values_along(check) if check.against else ():
        if not _is_number(value):
            raise ValueError(f"against={check.against}: {value} is no number to go along")


def _values_along(check: Check) -> list[object]:
    """What the settings name of the column that a trend goes along."""
    if isinstance(check.settings, Sequence):
        return [setting.get(check.against) for setting in check.settings]
    return [*itertools.chain(*check.settings.get(check.against, {}).values())]


def _check_columns(check: Check) -> None:
    """Raise ValueError for a column that no run has; a misspelt one would only look not run."""
    known = dict.fromkeys((*FIGURES, *check.derive))
    for name in (*check.columns, *([check.minus] if check.minus else [])):
        if name not in known and not name.startswith(NESTED):
            raise ValueError(unknown_name("figure of a run", name, known))


def _check_figures(rule: str, said: Any) -> None:
    """Raise ValueError where the paper's figures are none that ours can be held against."""
    both = said if isinstance(said, list) and len(said) == 2 else [said]
    if not all(map(_is_number, both)):
        raise ValueError(f"rule={rule} needs a figure or two of the paper, not paper={said}")
    if both[0] > both[-1]:
        raise ValueError(f"paper={said} is not [smallest, largest]")


def over_range(check: Check, spec: Specification) -> Check:
    """The check over the values that a choice of a range names, where that is one of its settings.

    What a figure of a paper is averaged over may be what it leaves open.
    """
    if not isinstance(check.settings, Mapping):
        return check
    ranges: dict[str, Any] = {
        f"config.{key}": {"each": value}
        for key, value in spec.choices.items()
        if is_range(check, key, [value])
    }
    return replace(check, settings={**check.settings, **ranges})


def is_range(check: Check, key: str, values: Sequence[object]) -> bool:
    """Whether the values of an open choice are lists of a check's settings."""
    return f"config.{key}" in check.settings and all(isinstance(value, list) for value in values)
