"""Limits of an engine that runs are compared under: slots and tokens of an iteration."""

from collections.abc import Container, Sequence

import pandas as pd

from harness.config.engine_limits import AUTO, LIMITS, stated_limits, with_limits
from harness.config.paths import PROFILES
from harness.costs.gpu_facts import gpu_facts
from harness.costs.kv_room import default_limits
from harness.runs.config import RunConfig

GPU, PROFILE = "config.hardware.gpu", "config.hardware.profile"
POLICY = "config.chosen.policy"
"""Column of `read_summaries`: the name of the policy's file."""
MOST = dict(zip(LIMITS, (65_536, 2**31), strict=True))


def resolved_limits(config: RunConfig) -> RunConfig:
    """The configuration of a cell with numbers wherever it says `auto` of a limit.

    The engine's are those of a vLLM server on the GPU, or what the policy states where that is
    more; a policy's are those of the engine. Raises ValueError where a policy states more than an
    engine that was given a number.
    """
    hardware, engine = config.hardware, dict(config.engine)
    stated = list(stated_limits(config.policy, "policy"))
    if any(engine.get(limit) == AUTO for limit in LIMITS):
        for limit, number in server_limits(hardware.gpu, hardware.profile).items():
            if engine.get(limit) == AUTO:
                engine[limit] = max([number, *(it for _, name, it in stated if name == limit)])
    for limit in LIMITS:
        if isinstance(engine.get(limit), int) and not 1 <= engine[limit] <= MOST[limit]:
            raise ValueError(
                f"engine.{limit}={engine[limit]}, it must be from 1 to {MOST[limit]:,}"
            )
    for key, limit, number in stated:
        most = engine.get(limit)
        if isinstance(most, int) and number > most:
            raise ValueError(
                f"{key}={number} is more than engine.{limit}={most}, which holds for every policy"
            )
    limits = {limit: engine[limit] for limit in LIMITS if limit in engine}
    parts = {
        key: with_limits(getattr(config, key), limits) for key in ("policy", "system", "workload")
    }
    return config.model_copy(update={"engine": engine, **parts})


def server_limits(gpu: str, profile: str) -> dict[str, int]:
    """Limits of a vLLM server that sets none, on a GPU that may have facts of a profile folder."""
    tokens, requests = default_limits(gpu_facts(gpu, PROFILES / profile))
    return dict(zip(LIMITS, (requests, tokens), strict=True))


def limits_of(rows: pd.DataFrame) -> pd.DataFrame:
    """A column per limit: the engine's, or what the policy states where that is less.

    `rows` are those of `read_summaries`; a limit of which no row says anything has no column.
    """
    found = {}
    for limit in LIMITS:
        own = [
            name
            for name in map(str, rows)
            if name == f"config.engine.{limit}"
            or (name.startswith("config.policy.") and name.endswith(f".{limit}"))
        ]
        least = rows[own].apply(pd.to_numeric, errors="coerce").min(axis=1)
        if least.notna().any():
            found[limit] = least
    return pd.DataFrame(found, index=rows.index)


def limits_sentence(rows: pd.DataFrame) -> str | None:
    """Under which limits runs were compared, and whether these are unlike; None for no runs."""
    limits = limits_of(rows)
    if limits.empty or not len(limits.columns):
        return None
    if unlike := unlike_limits(rows):
        return unlike
    values = {str(limit): limits[limit].max() for limit in limits}
    said = " and ".join(f"{limit} {value:,.0f}" for limit, value in values.items())
    is_default = GPU in rows and all(
        server_limits(str(gpu), str(profile)) == values
        for gpu, profile in rows[[GPU, PROFILE]].drop_duplicates().to_numpy()
    )
    return f"limits: {said}{', the defaults of a vLLM server on this GPU' if is_default else ''}"


def unlike_limits(rows: pd.DataFrame) -> str | None:
    """A sentence where runs of a comparison differ in limits; None where all are equal."""
    limits, said = limits_of(rows), []
    names = rows[POLICY].astype(str) if POLICY in rows else pd.Series("", rows.index)
    for limit in limits:
        values = limits[limit].dropna()
        if values.nunique() < 2:
            continue
        most = values.max()
        below = [
            f"{value:,.0f}{_of_policies(names[values.index][values == value])}"
            for value in sorted(values.unique())
            if value != most
        ]
        said.append(f"{limit} {', '.join(below)} against {most:,.0f}")
    return f"unlike limits: {'; '.join(said)}" if said else None


def _of_policies(names: "pd.Series[str]") -> str:
    """Policies in brackets, where rows name any."""
    there = sorted(filter(None, names.unique()))
    return f" ({', '.join(there)})" if there else ""


def loose_limits(rows: pd.DataFrame, given: Container[str]) -> list[str]:
    """Sentences on limits of the engine that are `given` and that policies state less than."""
    limits, said = limits_of(rows), []
    for limit in limits:
        own = f"config.engine.{limit}"
        if f"engine.{limit}" in given and own in rows:
            tighter = limits[limit][limits[limit] < pd.to_numeric(rows[own], errors="coerce")]
            if len(tighter):
                least = " and ".join(_numbers(tighter))
                said.append(
                    f"engine.{limit} is the most that a policy may have; policies here state "
                    f"{least}"
                )
    return said


def _numbers(column: "pd.Series[float]") -> Sequence[str]:
    return [f"{value:,.0f}" for value in sorted(column.unique())]
