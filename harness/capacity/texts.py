"""What a search found, in sentences and tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.capacity.grid import Trial
from harness.capacity.objectives import Objective
from harness.capacity.search import Margin, Problem, Rated, least_values
from harness.capacity.sureness import Interval
from harness.costs.model_names import shown_name

COUNTS = (*("gpus", "replicas", "tensor_parallel", "max_num_batched_tokens", "max_num_seqs"),)
"""Columns of a curve that are whole numbers, or unknown where no setting keeps the objectives."""
SHOWN = 10
"""Settings of the printed table."""
MILLION = 1e6
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Alike:
    """Settings of equal GPUs, split and policy that give equal values, the first one's rating.

    `tokens`, `requests` and `dispatch` are the limits and dispatch policies among them.
    """

    rated: Rated
    tokens: tuple[int, ...]
    requests: tuple[int, ...]
    dispatch: tuple[str, ...]


def alike(found: Sequence[Rated]) -> list[Alike]:
    """The settings that were served, those that differ in nothing but limits that do not matter."""
    groups: dict[tuple[object, ...], list[Rated]] = {}
    for one in found:
        trial, of = one.trial, one.trial.candidate
        split = of.gpu, of.tensor_parallel, of.expert_parallel, of.policy, trial.replicas
        if one.values_s:
            groups.setdefault((*split, trial.load, *one.values_s), []).append(one)
    return [
        Alike(
            each[0],
            _each(it.trial.candidate.max_num_batched_tokens for it in each),
            _each(it.trial.candidate.max_num_seqs for it in each),
            tuple(dict.fromkeys(it.trial.candidate.dispatch for it in each)),
        )
        for each in groups.values()
    ]


def _each(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def table_of(
    rows: Sequence[Alike], problem: Problem, margins: Mapping[Trial, Margin]
) -> pd.DataFrame:
    """The first settings as texts, a row each."""
    shown = [_row(one, problem, margins.get(one.rated.trial)) for one in rows[:SHOWN]]
    table = pd.DataFrame(shown).set_index("GPUs")
    alike_in = [
        name for name in ("GPU", "expert parallel", "$ an hour") if table[name].eq("").all()
    ]
    return table.drop(columns=alike_in)


def _row(one: Alike, problem: Problem, margin: Margin | None) -> dict[str, str]:
    trial, of = one.rated.trial, one.rated.trial.candidate
    gpus = f"{trial.gpus}" if one.rated.is_least else f"at most {trial.gpus}"
    objectives = zip(problem.objectives, one.rated.values_s, strict=True)
    return {
        "GPUs": gpus if one.rated.is_kept else f"fails with {trial.gpus}",
        "GPU": of.gpu if len(problem.prices) > 1 else "",
        "tensor parallel": f"{of.tensor_parallel}",
        "expert parallel": "yes" if of.expert_parallel else "",
        "replicas": f"{trial.replicas}",
        "tokens": ", ".join(f"{it:,}" for it in one.tokens),
        "requests": ", ".join(f"{it:,}" for it in one.requests),
        "policy": of.policy,
        "dispatch": ", ".join(one.dispatch),
        "$ an hour": f"{one.rated.cost:.2f}" if problem.is_priced else "",
        **{f"{it.name} s": f"{value_s:.3g}" for it, value_s in objectives},
        "margin": "" if margin is None else f"{margin.kept_at:.2f}x",
    }


def values_said(objectives: Sequence[Objective], values_s: Sequence[float]) -> str:
    """The value of each objective beside its limit."""
    pairs = zip(objectives, values_s, strict=True)
    return ", ".join(f"{it.name} {value_s:.3g} s (limit {it.limit_s:g})" for it, value_s in pairs)


def answer(problem: Problem, rows: Sequence[Alike], tokens_per_s: float) -> str:
    """How many GPUs, in which setting; `tokens_per_s` are those of the load."""
    best = rows[0].rated
    trial, of = best.trial, best.trial.candidate
    many = f"{trial.replicas} replicas" if trial.replicas > 1 else "1 replica"
    spent = dollars(best.cost, tokens_per_s) if problem.is_priced else ""
    count = f"{trial.gpus} GPU{'s' * (trial.gpus > 1)} of {of.gpu}"
    return (
        f"{count} keep{'s' * (trial.gpus == 1)} the objectives{spent}: {many} with {of.name}; "
        f"{values_said(problem.objectives, best.values_s)}."
    )


def dollars(dollars_per_h: float, tokens_per_s: float) -> str:
    """What GPUs cost by the hour, and by the tokens of a load, prompts and answers."""
    per_million = dollars_per_h / HOUR_S / tokens_per_s * MILLION
    return f" for ${dollars_per_h:,.2f} an hour (${per_million:,.3g} per million tokens)"


def margin_said(problem: Problem, margin: Margin, requests_per_s: float) -> str:
    """Up to which load the answer keeps the objectives."""
    rate = f"{margin.kept_at * requests_per_s:.3g} requests/s"
    said = f"It keeps the objectives up to {margin.kept_at:.3g} times this load ({rate})"
    if margin.fails_at is None:
        return f"{said}, the most that was tried."
    if not margin.failing_s:
        return f"{said}; at {margin.fails_at:.4g} times it cannot be served."
    pairs = zip(problem.objectives, margin.failing_s, strict=True)
    lost = [f"{it.name} is {value_s:.4g} s" for it, value_s in pairs if not it.is_kept(value_s)]
    return f"{said}; at {margin.fails_at:.4g} times {' and '.join(lost)}."


def intervals_said(
    objectives: Sequence[Objective],
    values_s: Sequence[float],
    found: Sequence[Interval],
    share: float,
) -> str:
    """Intervals over blocks of the trace, and how often all objectives are kept."""
    if not found:
        return "Too few requests for intervals over blocks of the trace."
    each = (
        f"{it.name} {value_s:.3g} s [{span.low_s:.3g}, {span.high_s:.3g}]"
        for it, value_s, span in zip(objectives, values_s, found, strict=True)
    )
    return (
        f"Over blocks of the trace (95%): {', '.join(each)}; {share:.0%} of the draws keep the "
        "objectives."
    )


def costs_said(
    problem: Problem, trial: Trial, error: float, of: str, needed: Sequence[int | None]
) -> str:
    """What the error of the costs, that of `of`, changes in replicas of the answer's setting.

    `needed` are those with iterations slower and faster by it; None where no number keeps the
    objectives.
    """
    if not error:
        return "The profile states no error of its seconds."
    said = f"As the costs may be off by {error:.0%}, their median error ({of})"
    if {*needed} == {trial.replicas}:
        return f"{said}: slower or faster by it, this setting needs as many GPUs."
    slower, faster = (_against(problem, trial, it) for it in needed)
    return (
        f"{said}: with iterations {error:.0%} slower this setting {slower}, with them {error:.0%} "
        f"faster it {faster}."
    )


def _against(problem: Problem, trial: Trial, replicas: int | None) -> str:
    if replicas is None and problem.replicas is not None:
        return "does not keep the objectives"
    if replicas is None:
        return f"needs more than {problem.most_gpus} GPUs"
    more = (replicas - trial.replicas) * trial.candidate.tensor_parallel
    if not more:
        return "needs as many GPUs"
    gpus = "one GPU" if abs(more) == 1 else f"{abs(more)} GPUs"
    return f"needs {gpus} {'more' if more > 0 else 'less'}"


def left_out(found: Sequence[Rated]) -> list[str]:
    """How many settings could not be served, and why: one reason of each kind."""
    reasons: dict[str, list[Rated]] = {}
    for one in found:
        if one.why:
            reasons.setdefault(re.sub(r"[\d,.]+", "0", one.why), []).append(one)
    return [
        f"left out: {len(each)} settings that cannot serve the load, as "
        f"{each[0].trial.candidate.name}: {each[0].why.partition('; ')[0]}"
        for each in reasons.values()
    ]


def unmet(problem: Problem, found: Sequence[Rated]) -> str:
    """Why no setting keeps the objectives: which cannot be kept, and the nearest value that can."""
    if not (least := least_values(found)):
        return f"no setting can serve this load: {found[0].why}"
    lost = [
        f"{it.text}: the least that any setting gives is {one.values_s[place]:.3g} s, with "
        f"{_with_gpus(one)}"
        if one.values_s[place] >= 0
        else f"{it.text}: no request has a {it.metric}"
        for place, (it, one) in enumerate(zip(problem.objectives, least, strict=True))
        if not it.is_kept(one.values_s[place])
    ]
    if lost:
        return "; ".join(lost)
    return (
        f"no setting of up to {problem.most_gpus} GPUs keeps all objectives: nearest is "
        f"{values_said(problem.objectives, found[0].values_s)}, with {_with_gpus(found[0])}"
    )


def _with_gpus(one: Rated) -> str:
    alone = ", where requests hardly meet" if one.trial.load < 1 else ""
    gpus = "one GPU" if one.trial.gpus == 1 else f"{one.trial.gpus} GPUs"
    return f"{gpus} ({one.trial.candidate.name}){alone}"


def curve_of(rows: pd.DataFrame, most_gpus: int) -> pd.DataFrame:
    """Rows of a curve as texts; GPUs are more than the most where no setting keeps the objectives.

    Rows are those of `CapacityPlan.curve`.
    """
    shown = rows.dropna(axis=1, how="all").drop(columns=["what"])
    same = [it for it in ("gpu", "expert_parallel") if it in shown and shown[it].nunique() == 1]
    is_lost = shown["gpus"].isna()
    if "cost" in shown and (shown["cost"] == shown["gpus"])[~is_lost].all():
        same.append("cost")
    shown = shown.drop(columns=same)
    for name in COUNTS:
        shown[name] = [f"{it:.0f}" for it in shown.get(name, pd.Series(np.nan, shown.index))]
    for name in shown.columns[shown.dtypes == "float64"]:
        shown[name] = shown[name].map("{:.3g}".format)
    shown = shown.fillna("").replace("nan", "")
    shown.loc[is_lost, "gpus"] = f"more than {most_gpus}"
    names = {name: name.replace("_", " ") for name in map(str, shown)}
    return shown.rename(columns=names | {"cost": "$ an hour"}).set_index("at")


def about(objectives: Sequence[Objective], model: str, sure: Sequence[str]) -> str:
    """What stands below a plot: the model, the objectives and the basis of the seconds."""
    limits = ", ".join(it.text for it in objectives)
    basis = sure[-1].partition("; ")[0]
    return f"{shown_name(model)}; objectives: {limits}. {basis}"
