"""Costs of models with windows or states, at the contexts of the requests that they serve.

KV and seconds are linear in tokens, so windows count at one context: that at which the answers of
the workload are decoded in the mean. States take room that grows with the running requests, so as
many run at once as have room at that context.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.config.engine_limits import stated_limits
from harness.costs.model import ProfileCosts
from harness.costs.model_facts import model_facts
from harness.interface.entities import ServiceId
from harness.runs.config import RunConfig
from harness.workloads.workload import Workload

LIMIT = "max_num_seqs"
UNKNOWN_TOKENS = 2**20
"""Of a context before the workload is known: windows count least, so that nothing is left out."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """Tokens of the requests of a workload that go to models with windows or states."""

    typical_tokens: int
    longest_tokens: int


def follow_context(models: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the models whose costs depend on the context otherwise than in proportion."""
    return tuple(
        model
        for model in models
        if any(
            kind.mixer.window_tokens or kind.mixer.state_bytes for kind in model_facts(model).kinds
        )
    )


def contexts_of(load: Workload, models: tuple[str, ...]) -> Contexts:
    """The mean context of a decoded token, and the longest of a request."""
    named = {model_facts(model).name for model in models}
    served = np.array([model_facts(service.id).name in named for service in load.services])
    rows = np.flatnonzero(served[load.service])
    prompts, answers = load.prompt_tokens[rows], load.output_tokens[rows]
    mean = np.average(prompts + answers / 2, weights=answers) if answers.sum() else prompts.mean()
    return Contexts(max(1, round(float(mean))), int((prompts + answers).max()))


def state_requests(
    costs: ProfileCosts, models: tuple[str, ...], degrees: list[int], contexts: Contexts, limit: int
) -> int:
    """Requests at once that have room for their states on each degree that fits; 0: no states."""
    found = [
        most
        for model in models
        for degree in degrees
        if costs.kv_blocks(service := ServiceId(model), degree)
        and (
            most := costs.most_running(
                service, degree, contexts.typical_tokens, contexts.longest_tokens
            )
        )
    ]
    return min([limit, *found]) if found else 0


def limit_of(config: RunConfig) -> int:
    """The most requests at once that policy and engine allow."""
    stated = [
        it for part in ("policy", "engine") for it in stated_limits(getattr(config, part), part)
    ]
    return min((number for _, limit, number in stated if limit == LIMIT), default=256)


def with_limit(config: RunConfig, requests: int) -> RunConfig:
    """The configuration with at most so many requests at once, in policy and engine."""
    capped = {name: _at_most(getattr(config, name), requests) for name in ("policy", "engine")}
    return config.model_copy(update=capped)


def _at_most(node: Any, requests: int) -> Any:
    if not isinstance(node, Mapping):
        return node
    found = {key: _at_most(value, requests) for key, value in node.items()}
    if isinstance(found.get(LIMIT), int):
        found[LIMIT] = min(found[LIMIT], requests)
    return found
