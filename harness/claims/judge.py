"""Whether a claim of a paper holds: its checks applied to the runs that are there.

A claim is *not run* where it has no check, where a run is missing for any system, setting and seed,
or where several runs fit one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from harness.claims import verdicts
from harness.claims.checks import Check, read_checks
from harness.claims.measure import NotRunError, measure, measure_table
from harness.claims.verdicts import Measured, Outcome, Verdict
from harness.runs.basis import cost_basis


def judge(check: Check, summaries: pd.DataFrame, variant: str = "paper") -> Outcome:
    """Verdict of one check over the runs of its scenario, or its table."""
    if check.table:
        measured_there, stated = measure_table(check)
        return replace(_apply(check, [measured_there]), basis=stated)
    try:
        measured, used = measure(check, summaries, variant)
    except NotRunError as missing:
        return Outcome(Verdict.NOT_RUN, "", str(missing))
    unfinished = int(used["unfinished"].sum()) if "unfinished" in used else 0
    outcome = replace(_apply(check, measured), seeds=measured[0].seeds, basis=cost_basis(used))
    return verdicts.gated(outcome, unfinished=unfinished)


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
