"""The candidates of a question: configurations composed, and the splits that hold the model."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness import api
from harness.capacity.grid import Candidate, in_order
from harness.capacity.serving import Choice
from harness.config.engine_limits import LIMITS, stated_limits
from harness.config.hydra_words import word
from harness.costs.model_facts import model_facts
from harness.runs.building import costs_of
from harness.runs.composed_cells import Matrix
from harness.runs.config import RunConfig, configuration
from harness.workloads.workload import services_of


def composed_bases(
    gpu: str, words: Sequence[str], axes: Mapping[str, Sequence[object]]
) -> dict[Choice, RunConfig]:
    """The configuration of each choice of policy, dispatch and limits on a GPU.

    A policy that states a limit itself has one choice for it, and none where its limit is above the
    engine's. Raises ValueError for bad input.
    """
    found: dict[tuple[object, ...], tuple[Choice, RunConfig]] = {}
    failed: list[ValueError] = []
    more = [word("++matrix", {**axes})] if axes else []
    with api.refusing(*words, *more) as composer:
        matrix = Matrix(composer)
        for place in matrix.places:
            try:
                config = matrix.config_at(place)
            except ValueError as error:
                failed.append(error)
                continue
            assert config is not None
            choice = _choice(gpu, config)
            kept = found.setdefault(_effective(choice, config), (choice, config))
            if choice[3:] < kept[0][3:]:
                found[_effective(choice, config)] = choice, config
        if not found:
            raise failed[0]
    return dict(found.values())


def _choice(gpu: str, config: RunConfig) -> Choice:
    seqs, tokens = (int(config.engine[it]) for it in LIMITS)
    return gpu, config.chosen["policy"], config.chosen["system/dispatch"], tokens, seqs


def _effective(choice: Choice, config: RunConfig) -> tuple[object, ...]:
    """The choice with the limits that its policy has."""
    seqs, tokens = (
        min(
            [
                engines,
                *(it for _, name, it in stated_limits(config.policy, "policy") if name == limit),
            ]
        )
        for limit, engines in zip(LIMITS, (choice[4], choice[3]), strict=True)
    )
    return *choice[:3], tokens, seqs


def splits(
    config: RunConfig, model: str, degrees: Sequence[int], experts: Sequence[bool]
) -> list[tuple[int, bool]]:
    """Degrees, without and with expert parallelism, at which the GPUs of a replica hold the model.

    Raises ValueError where there is none, with the memory needed and there.
    """
    facts = model_facts(model)
    (service,), found, why = services_of([facts]), [], ""
    for degree in degrees:
        for is_expert in experts if facts.experts > 1 and degree > 1 else (False,):
            costs = costs_of(changed(config, hardware={"expert_parallel": is_expert}))
            if costs.kv_blocks(service.id, degree):
                found.append((degree, is_expert))
            else:
                why = costs.unfit_because(service.id, degree)
    if not found:
        said = ", ".join(map(str, degrees))
        raise ValueError(
            f"{model} fits no split of {config.chosen['hardware']} ({said} GPUs): {why}"
        )
    return found


def changed(config: RunConfig, **parts: Mapping[str, Any]) -> RunConfig:
    """A configuration with other values of keys below its parts."""
    plain = config.model_dump()
    return configuration({**plain, **{name: plain[name] | {**it} for name, it in parts.items()}})


def candidates_of(
    choices: Sequence[Choice], held: Mapping[str, Sequence[tuple[int, bool]]]
) -> list[Candidate]:
    """Every choice at every split of its GPU, usual settings first."""
    return in_order(
        [
            Candidate(gpu, degree, is_expert, tokens, seqs, policy, dispatch)
            for gpu, policy, dispatch, tokens, seqs in choices
            for degree, is_expert in held[gpu]
        ]
    )


def stated_by_policies(bases: Mapping[Choice, Mapping[str, Any]]) -> list[str]:
    """Lines on limits that policies have, where these are less than the engine's."""
    found: dict[str, set[int]] = {}
    for choice, plain in bases.items():
        engine = dict(zip(LIMITS, (choice[4], choice[3]), strict=True))
        for _, limit, number in stated_limits(plain["policy"], "policy"):
            if number < engine[limit]:
                found.setdefault(f"{choice[1]} has {limit}", set()).add(number)
    return [
        f"limits of policies: {name} {', '.join(f'{it:,}' for it in sorted(numbers))} itself"
        for name, numbers in found.items()
    ]
