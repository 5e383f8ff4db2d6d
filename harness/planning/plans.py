"""Values of planning: execution plans, stages, and what is left to do (arXiv 2503.16893 sec. 3)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.interface.entities import ServiceId
from harness.interface.graph import NO_CALL
from harness.interface.tables import Floats, Ints


@dataclass(frozen=True, slots=True)
class Plan:
    """How a service is spread: `data_parallel` groups of `tensor_parallel` GPUs (eq. 3)."""

    data_parallel: int
    tensor_parallel: int

    @property
    def gpus(self) -> int:
        """GPUs it needs."""
        return self.data_parallel * self.tensor_parallel


Stage = Mapping[ServiceId, Plan]
"""Services that run at the same time under plans that do not change (eq. 4)."""


@dataclass(frozen=True, slots=True)
class Load:
    """Unfinished requests of one service as a planner estimates them; one entry each.

    `id` ascends; `output_tokens` is what a request will have produced in the end. `ready_s` is when
    it can begin. `next` is the row of the request that follows it in its group once it is
    answered, or NO_CALL; the `ready_s` of followers does not count.
    """

    id: Ints
    prompt_tokens: Ints
    generated_tokens: Ints
    output_tokens: Ints
    ready_s: Floats
    next: Ints

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def rest(self, unfinished: NDArray[np.bool_], generated_tokens: Ints) -> "Load":
        """Those still unfinished, having generated so much (one entry per row of this load)."""
        rows = np.flatnonzero(unfinished)
        place = np.full(len(self) + 1, NO_CALL)
        place[rows] = np.arange(len(rows))
        return Load(
            id=self.id[rows],
            prompt_tokens=self.prompt_tokens[rows],
            generated_tokens=generated_tokens[rows],
            output_tokens=self.output_tokens[rows],
            ready_s=np.zeros(len(rows)),
            next=place[self.next[rows]],
        )


def ready_load(prompt_tokens: Ints, generated_tokens: Ints, output_tokens: Ints) -> Load:
    """Requests that all can begin at once and wait for no other; ids count from 0."""
    count = len(prompt_tokens)
    return Load(
        id=np.arange(count),
        prompt_tokens=prompt_tokens,
        generated_tokens=generated_tokens,
        output_tokens=output_tokens,
        ready_s=np.zeros(count),
        next=np.full(count, NO_CALL),
    )
