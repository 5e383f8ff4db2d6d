"""Seconds that requests take alone, and what they say of the services: planners and objectives."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.costs.model import TableCosts as TableCosts
from harness.interface.entities import ServiceId
from harness.interface.tables import Floats, Ints
from harness.planning.forecast import Window

DEGREES = (1, 2, 4, 8)
"""Tensor-parallel degrees that a service may need for its weights."""


@dataclass(frozen=True, slots=True)
class ServiceProfile:
    """Mean and standard deviation of the seconds that a service's requests take alone."""

    mean_s: float
    std_s: float


def fewest_gpus(costs: TableCosts, service: ServiceId) -> int:
    """The least tensor-parallel degree that leaves room for KV beside the weights of a service.

    Raises ValueError where none does.
    """
    for degree in DEGREES:
        if costs.kv_blocks(service, degree) > 0:
            return degree
    raise ValueError(f"{service} does not fit {DEGREES[-1]} GPUs")


def solo_seconds(
    costs: TableCosts,
    services: Sequence[ServiceId],
    service: Ints,
    prompt_tokens: Ints,
    output_tokens: Ints,
) -> Floats:
    """Seconds from prompt to answer of each request on the fewest GPUs, with nothing beside it.

    `service` are indices in `services`, of shape (requests,) as the other columns. The whole prompt
    is one iteration and gives the first token. Requests without an answer count as of one token.
    """
    seconds = np.zeros(len(service))
    for index, name in enumerate(services):
        rows = np.flatnonzero(service == index)
        if not len(rows):
            continue
        table = costs.table(name, fewest_gpus(costs, name))
        prompt = prompt_tokens[rows].astype(np.float64)
        decodes = np.maximum(output_tokens[rows] - 1.0, 0.0)
        step = np.minimum(prompt_tokens[rows], len(table.prefill_step_s) - 1)
        per_token_s = table.prefill_per_padded_token_s[1] + table.prefill_per_token_s[1]
        growth_s = table.decode_per_context_s[1] + table.decode_per_padded_s[1]
        seconds[rows] = (
            table.prefill_base_s[1]
            + prompt * (per_token_s + prompt * table.prefill_per_attended_s[1])
            + table.prefill_step_s[step]
            + decodes * (table.decode_base_s[1] + growth_s * (prompt + 1.0))
            + growth_s * decodes * (decodes - 1.0) / 2.0
        )
    return seconds


def service_profiles(costs: TableCosts, window: Window) -> dict[ServiceId, ServiceProfile]:
    """The profile of every service that a window has requests of."""
    table = window.table
    seconds = solo_seconds(
        costs, table.services, table.service, table.prompt_tokens, window.output_tokens
    )
    found = {}
    for index, name in enumerate(table.services):
        own_s = seconds[table.service == index]
        if len(own_s):
            found[name] = ServiceProfile(float(own_s.mean()), float(own_s.std()))
    return found
