"""Limits of an engine that runs are compared under: slots and tokens of an iteration."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import pandas as pd

LIMITS = ("max_num_seqs", "max_num_batched_tokens")


def with_limits(plain: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a cell with its `limits`, where given, in place of its policy's."""
    limits = {limit: value for limit, value in plain["limits"].items() if value is not None}
    return plain | {"policy": _limited(plain["policy"], limits)}


def _limited(node: Any, limits: Mapping[str, int]) -> Any:
    """A part of a configuration with these values wherever it has their keys."""
    if isinstance(node, dict):
        return {key: limits.get(key, _limited(value, limits)) for key, value in node.items()}
    return node


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


def loose_limits(rows: pd.DataFrame, given: Container[str]) -> list[str]:
    """Sentences on limits of the engine that are `given` and no batch reaches.

    The engine's are the most that policies may ask for; a policy's own rule may stay below.
    """
    said = []
    for limit in LIMITS:
        own, rule = f"config.engine.{limit}", f"config.policy.rule.{limit}"
        if f"engine.{limit}" in given and own in rows and rule in rows:
            numbers = rows[[own, rule]].apply(pd.to_numeric, errors="coerce")
            tighter = _values(numbers[rule][numbers[rule] < numbers[own]])
            if tighter:
                said.append(
                    f"engine.{limit} is the most that a policy may ask for; batches here have at "
                    f"most {' and '.join(tighter)} (policy.rule.{limit})"
                )
    return said


def _values(column: "pd.Series[float]") -> Sequence[str]:
    found = pd.to_numeric(column, errors="coerce").dropna().unique()
    return [f"{value:,.0f}" for value in sorted(found)]
