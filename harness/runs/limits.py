"""Limits of an engine that runs are compared under: slots and tokens of an iteration."""

from collections.abc import Sequence

import pandas as pd

LIMITS = ("max_num_seqs", "max_num_batched_tokens")


def unlike_limits(rows: pd.DataFrame) -> str | None:
    """A sentence where runs of a comparison differ in limits; None where all are equal.

    `rows` are those of `read_summaries`.
    """
    said = []
    for limit in LIMITS:
        column = f"config.policy.rule.{limit}"
        if column in rows and len(values := _values(rows[column])) > 1:
            said.append(f"{limit} of {', '.join(values[:-1])} and {values[-1]}")
    return f"compared under unlike limits: {'; '.join(said)}" if said else None


def _values(column: "pd.Series[float]") -> Sequence[str]:
    found = pd.to_numeric(column, errors="coerce").dropna().unique()
    return [f"{value:,.0f}" for value in sorted(found)]
