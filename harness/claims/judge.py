"""Whether a claim of a paper holds: its checks applied to the runs that are there.

Every specification (the stated setting, and each further value of what the paper leaves open) is
judged on its own runs; `harness.claims.settling` makes the verdict of them. A finding is *not run*
where a run is missing for any system, setting and seed, or where several runs fit one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from harness.claims import verdicts
from harness.claims.apart import Counting, are_apart, extremes, turned
from harness.claims.checks import Check, is_range
from harness.claims.findings import Agreement, Finding
from harness.claims.measure import knows, measure, measure_table
from harness.claims.narrowing import NoGainError, NotRunError, Table, narrowed
from harness.claims.quantities import Measured
from harness.claims.reading import Claim
from harness.claims.settling import (
    STATED,
    Specification,
    Verdict,
    gated,
    settle,
    specifications,
    worst,
)
from harness.claims.trends import judge_trend
from harness.runs.basis import cost_basis

Summaries = Callable[[str], pd.DataFrame]


def judge(
    check: Check,
    summaries: pd.DataFrame | Table,
    variant: str = "paper",
    spec: Specification = STATED,
    like: Specification | None = None,
) -> Finding:
    """Finding of one check under one specification, over the runs of its scenario or its table.

    With `like` at the settings and seeds alone at which that one was run.
    """
    try:
        if check.table:
            measured_there, stated = measure_table(check, spec)
            found = _apply(check, [measured_there])
            return replace(
                found, ours=found.ours.replace(" (1 seed)", ""), seeds=None, basis=stated
            )
        measured, used = measure(check, summaries, variant, spec, like)
        found = _apply(check, measured)
    except NotRunError as missing:
        return Finding(Agreement.NOT_RUN, "", str(missing))
    except NoGainError as undefined:
        return Finding(Agreement.UNTOLD, "", str(undefined))
    unfinished = int(used["unfinished"].sum()) if "unfinished" in used else 0
    places = sum(len(one.settings) for one in measured)
    # What the seconds rest on is said of the stated setting alone.
    basis = "" if spec.varied else cost_basis(used)
    found = replace(found, basis=basis, settings=places)
    return gated(found, unfinished=unfinished)


def _apply(check: Check, measured: Sequence[Measured]) -> Finding:
    if not all(one.comparable for one in measured):
        raise NoGainError(f"no {check.quantity} can be taken of figures that are not positive")
    if check.rule == "bound":
        return verdicts.judge_bound(
            measured, check.band, take=check.take, side=check.side, at=check.at
        )
    if check.rule == "trend":
        return judge_trend(measured, against=check.against, expect=check.expect)
    judge_each = {
        "range": verdicts.judge_range,
        "figure": verdicts.judge_figure,
        "within": verdicts.judge_within,
    }[check.rule]
    return worst([judge_each(one, check.band, tolerance=check.tolerance) for one in measured])


def verdict_of(claim: Claim, summaries: Summaries, variant: str = "paper") -> dict[str, Any]:
    """One row of the verdict file: the claim's facts, our figures and the verdict.

    `summaries` gives the runs of a scenario.
    """
    said = {"id": claim.id, "quote": claim.quote, "where": claim.where}
    said |= {"quantity": claim.quantity, "kind": claim.kind, "paper": claim.paper}
    opened = [{"key": o.key, "values": [*o.values], "source": o.source} for o in claim.open]
    rest: dict[str, Any] = {
        "ours": "",
        "seeds": None,
        "basis": "",
        "open": opened,
        "specifications": [],
    }
    if claim.input or claim.not_testable:
        verdict = Verdict.INPUT if claim.input else Verdict.NOT_TESTABLE
        note = "; ".join(filter(None, (claim.input or claim.not_testable, claim.note)))
        return said | {"band": None, "verdict": str(verdict), "note": note} | rest
    claim = claim.of(variant)
    checks = claim.checks
    found = _findings(claim, checks, summaries, variant)
    verdict, why = settle(found)
    stated = found[0][1]
    note = "; ".join(filter(None, (why, stated.note if why != stated.note else "", claim.note)))
    rest |= {"ours": stated.ours, "seeds": stated.seeds, "basis": stated.basis}
    rest["specifications"] = [_as_row(spec, one) for spec, one in found]
    band = None if checks[0].rule == "trend" else [checks[0].band.low, checks[0].band.high]
    return said | {"band": band, "verdict": str(verdict), "note": note} | rest


def _findings(
    claim: Claim, checks: Sequence[Check], summaries: Summaries, variant: str
) -> list[tuple[Specification, Finding]]:
    """A finding for every specification, the stated one first."""
    pairs = [
        (check, Table(narrowed(rows, claim, check)))
        for check in checks
        for rows in [pd.DataFrame() if check.table else summaries(check.scenario)]
    ]
    opened = {one.key: one.values for one in claim.open}
    ranges = [key for key in opened if any(is_range(check, key, opened[key]) for check in checks)]
    specs = specifications(opened, ranges)
    for key in (one.key for one in claim.open if not one.checks):
        if not any(knows(check, key, table.runs, variant) for check, table in pairs):
            lost = Finding(Agreement.NOT_RUN, "", f"no run has {key}")
            return [(spec, lost) for spec in specs if not spec.over]
    found: list[tuple[Specification, Finding]] = []
    for spec in specs:
        one = _under(claim, pairs, variant, spec)
        if spec.varied and spec.varied not in ranges:
            like = next(pair for pair in found if _is_without(pair[0], spec))
            one = _comparable(one, claim, pairs, variant, like=like, spec=spec)
        if one.agreement is not Agreement.NOT_RUN or not spec.over:
            found.append((spec, one))
    return found


def _is_without(other: Specification, spec: Specification) -> bool:
    """Whether `other` differs from `spec` by the value of its varied choice alone."""
    key = spec.varied
    return other.varied in ("", spec.over) and other.choices == {
        **spec.choices,
        key: other.choices[key],
    }


def _under(
    claim: Claim,
    pairs: Sequence[tuple[Check, Table]],
    variant: str,
    spec: Specification,
    like: Specification | None = None,
) -> Finding:
    """What all checks of a claim find under a specification, read as it says."""
    read = _read(claim, pairs, spec)
    return worst([judge(check, rows, variant, spec, like) for check, rows in read])


def _read(
    claim: Claim, pairs: Sequence[tuple[Check, Table]], spec: Specification
) -> list[tuple[Check, Table]]:
    """The checks as a specification reads them, and their runs."""
    words = [one.checks.get(spec.choices.get(one.key), {}) for one in claim.open if one.checks]
    found = []
    for check, rows in pairs:
        for changed in filter(None, words):
            check = check.read(changed)
        found.append((check, rows))
    return found


def _comparable(
    finding: Finding,
    claim: Claim,
    pairs: Sequence[tuple[Check, Table]],
    variant: str,
    *,
    like: tuple[Specification, Finding],
    spec: Specification,
) -> Finding:
    """The finding, unless it is noise, or fewer settings or seeds, that makes it what it is.

    Another value of an open choice says something where the stated one (`like`) agrees as far at
    these settings and seeds as at all of its own and, if it agrees otherwise than that, where its
    figures are others than the stated one's by more than noise.
    """
    if not finding.is_told:
        return finding
    if (finding.settings, finding.seeds) != (like[1].settings, like[1].seeds):
        again = _under(claim, pairs, variant, like[0], spec)
        if again.agreement is not like[1].agreement:
            stated = f"{again.ours} ({again.agreement})"
            note = f"at fewer settings or seeds, where the stated value is {stated}, too"
            return replace(finding, agreement=Agreement.UNTOLD, note=note)
    if finding.agreement is like[1].agreement or _is_apart(claim, pairs, variant, like[0], spec):
        return finding
    note = f"{finding.agreement}, but no different from the stated value beyond noise"
    return replace(finding, agreement=Agreement.UNTOLD, note=note)


def _is_apart(
    claim: Claim,
    pairs: Sequence[tuple[Check, Table]],
    variant: str,
    like: Specification,
    spec: Specification,
) -> bool:
    """Whether the figures of a check that has turned can be told from those under `like`."""
    for (own, table), (stated, _) in zip(
        _read(claim, pairs, spec), _read(claim, pairs, like), strict=True
    ):
        if own.table or _asks_otherwise(own, stated):
            return True  # of tables there are no seeds; another question has another answer
        # A claim of one check has turned by that one.
        if len(pairs) > 1 and (
            judge(own, table, variant, spec).agreement
            is judge(stated, table, variant, like, spec).agreement
        ):
            continue
        ours, _ = measure(own, table, variant, spec)
        theirs, _ = measure(stated, table, variant, like, spec)
        if are_apart(ours, theirs, _that_count(own)):
            return True
    return False


def _that_count(check: Check) -> Counting:
    """Which figures of a check that has turned have made it turn."""
    if check.rule == "range":
        return partial(turned, band=check.band, tolerance=check.tolerance)
    return partial(extremes, take=check.take)


def _asks_otherwise(own: Check, stated: Check) -> bool:
    """Whether one reading of a check holds its figures against another one than the other."""
    asked = ("rule", "paper", "step", "tolerance", "take", "side", "at", "against", "expect")
    return any(getattr(own, name) != getattr(stated, name) for name in asked)


def _as_row(spec: Specification, found: Finding) -> dict[str, Any]:
    """A specification as the verdict file has it."""
    figure = found.figure
    value, low, high = (figure.value, figure.low, figure.high) if figure else (None, None, None)
    return {
        "choices": dict(spec.choices),
        "varied": spec.varied,
        "over": spec.over,
        "agreement": str(found.agreement),
        "value": value,
        "low": low,
        "high": high,
        "ours": found.ours,
        "note": found.note,
    }
