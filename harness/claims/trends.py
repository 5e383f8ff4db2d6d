"""The rule `trend` of `harness.claims.verdicts`: how a quantity changes along one setting."""

from collections.abc import Sequence

import numpy as np

from harness.claims.findings import Agreement, Finding
from harness.claims.quantities import Measured
from harness.claims.verdicts import MATTERS, NOISY, span_of, stands_out
from harness.runs.stats import Estimate, Floats, mean_of


def judge_trend(measured: Sequence[Measured], *, against: str, expect: str) -> Finding:
    """Rule `trend`. `expect` is falling or rising."""
    curves = [curve for one in measured for curve in one.curves(against)]
    sign = 1 if expect == "rising" else -1
    found = [correlation_of(curve.correlations()) for curve in curves]
    sure = [
        stands_out(one, sign, 0.0) and sign * curve.change() > MATTERS
        for one, curve in zip(found, curves, strict=True)
    ]
    _, _, text = span_of(found)
    worst = min(found, key=lambda one: sign * one.value)
    note = "rank correlation"
    if all(sure):
        return Finding(Agreement.AGREES, text, note, worst, measured[0].seeds)
    doubtful = [curve.name for ok, curve in zip(sure, curves, strict=True) if not ok]
    note += f"; not {expect} for certain: {'; '.join(doubtful)}"
    together = correlation_of(np.mean([curve.correlations() for curve in curves], axis=0))
    changed = sign * float(np.mean([curve.change() for curve in curves])) > MATTERS
    agreement = Agreement.DIFFERS
    if all(
        ok or (one.meets(0.0, 0.0) and abs(curve.change()) > MATTERS)
        for ok, one, curve in zip(sure, found, curves, strict=True)
    ):
        agreement, note = Agreement.UNTOLD, f"{note}; {NOISY}"
    elif changed and stands_out(together, sign, 0.0):
        agreement = Agreement.DIRECTION
    return Finding(agreement, text, note, worst, measured[0].seeds)


def correlation_of(values: Floats) -> Estimate:
    """Mean over seeds; no correlation is beyond 1."""
    found = mean_of(values)
    low, high = (
        None if end is None else min(max(end, -1.0), 1.0) for end in (found.low, found.high)
    )
    return Estimate(found.value, low, high, found.count)
