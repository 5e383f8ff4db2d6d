"""FastServe: a skip-join multi-level feedback queue over GPU time attained.

Paper      Wu et al., Fast Distributed Inference Serving for Large Language Models,
           arXiv 2305.05920; five queues and max-allocation as EcoServe (arXiv 2411.06364 secs. 1
           and 2.1) has it.
Idea       A request enters the first queue whose quantum covers its prompt, and moves down one
           queue when it has used the quantum up. The first queues run first; KV of a request that
           loses its place goes to host memory. A request that has not run for a while is promoted
           to the front of the first queue.
Map        4.1 skip-join MLFQ        -> `_key`, pieces by GPU seconds
           4.1 starvation prevention -> `AfterSeconds`, then `_promoted`
           4.2 proactive KV swapping -> `displaces`
Constants  `quantum_s` of the first queue, `ratio` between two queues, `queues`, `promote_s`: see
           scenarios/policy/fastserve.yaml and fastserve_promoting.yaml; for services that share a
           group shared_skip_join.yaml
Differs    within a queue by arrival, where its program puts a demoted request in front; KV moves
           when a request loses or gets a place, not ahead of that; promotion is looked at in every
           iteration, where its program does so in every thousandth and puts the last in front.
           In a group of several services, nothing is set aside or swapped
Checked    baselines/tests/test_fastserve.py::test_a_used_up_quantum_demotes_by_hand
           baselines/tests/test_fastserve.py::test_a_starved_request_is_promoted_by_hand
           baselines/tests/test_fastserve.py::test_services_of_a_group_by_hand
"""

from functools import partial
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import ServiceId, Work
from harness.interface.events import Event
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import Capability, CostModel
from harness.interface.promotion import AfterSeconds
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_PER_QUEUE = 1e7
"""Added to the key for each queue further down: more seconds than any run has."""
_NO_TIME_S = 1e-9
"""Pieces of queues that a request skips are so long; GPU time is counted in longer steps."""


class FastServe:
    """Scheduling policy: a priority order by queue, then by arrival."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        costs: CostModel,
        rule: ContinuousBatching,
        quantum_s: float,
        ratio: float,
        queues: int,
        displaces: str | None,
        promote_s: float | None,
    ) -> None:
        """Predict prompts' seconds by `costs`; `displaces`: pause, recompute, swap or None.

        `promote_s` is how long a request may wait before it is promoted; None: it never is.
        ValueError for a quantum, a period or a number of queues that is too small, a ratio below 1,
        and another word.
        """
        for name, value in (("quantum_s", quantum_s), ("promote_s", promote_s)):
            if value is not None and not value > 0:
                raise ValueError(f"policy.{name} is {value}, it must be above 0")
        if ratio < 1 or queues < 1:
            raise ValueError(f"policy.ratio {ratio} and policy.queues {queues} must be at least 1")
        self._costs, self._rule = costs, rule
        self._displaces = None if displaces is None else Displaced(displaces)
        self._quanta_s: Floats = quantum_s * ratio ** np.arange(queues, dtype=np.float64)
        self._promotion = None if promote_s is None else AfterSeconds(promote_s, self._promoted)
        self._standing: dict[tuple[int, int | None], Decision] = {}
        """By GPUs of a group and the tokens it sets aside."""
        self._prompts: dict[tuple[ServiceId, int, int], float] = {}
        swaps = self._displaces is Displaced.SWAP
        self.requires = frozenset(
            {Capability.PROMISED_KV} | ({Capability.SWAP} if swaps else set())
        )

    def observe(self, event: Event) -> None:
        """Nothing to learn: GPU time attained is in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """The same priority order for equal groups, whatever their services."""
        like = view.group.tensor_parallel, _longest_tokens(view)
        if like not in self._standing:
            self._standing[like] = Decision(priority_order=self._order(*like))
        return self._standing[like]

    def _order(self, tensor_parallel: int, reserve_tokens: int | None) -> PriorityOrder:
        return PriorityOrder(
            partial(self._key_on, tensor_parallel),
            self._rule,
            self._displaces,
            reserve_tokens,
            promotion=self._promotion,
        )

    def _key_on(self, tensor_parallel: int, table: RequestTable) -> MovingKey:
        """The key on so many GPUs."""
        return self._key(table, self._prompts_s(table, tensor_parallel))

    def _prompts_s(self, table: RequestTable, tensor_parallel: int) -> Floats:
        """Seconds of each prompt alone."""
        found = np.empty(len(table.id))
        asked = zip(table.service.tolist(), table.prompt_tokens.tolist(), strict=True)
        for row, (index, prompt) in enumerate(asked):
            kind = (table.services[index], tensor_parallel, prompt)
            if kind not in self._prompts:
                work = Work(1, prompt, prompt, float(prompt) ** 2)
                self._prompts[kind] = self._costs.iteration_s(kind[0], tensor_parallel, work)
            found[row] = self._prompts[kind]
        return found

    def _key(self, table: RequestTable, prompts_s: Floats) -> MovingKey:
        """A piece per queue, from the entry queue on as long as its quantum, the last for ever."""
        numbers = np.arange(len(self._quanta_s))
        entry = np.minimum(np.searchsorted(self._quanta_s, prompts_s), numbers[-1])[:, None]
        used_s = np.cumsum(np.where(numbers >= entry, self._quanta_s, 0.0), axis=1)
        until_s = np.where(numbers >= entry, used_s, _NO_TIME_S * (numbers + 1))
        until_s[:, -1] = np.inf
        value = _PER_QUEUE * np.maximum(numbers, entry) + table.arrival_s[:, None]
        return MovingKey(value, np.zeros_like(value), until_s, Progress.GPU_S)

    def _promoted(self, table: RequestTable) -> MovingKey:
        """A promoted request enters the first queue again."""
        return self._key(table, np.zeros(len(table.id)))


def _longest_tokens(view: GroupView) -> int | None:
    """The longest context of a group's service; None for several, which set nothing aside."""
    if len(view.services) > 1:
        return None
    (service,) = view.services.values()
    kv_tokens = view.kv.capacity_blocks(service.id) * view.kv.block_tokens
    return min(service.max_context_tokens, kv_tokens)
