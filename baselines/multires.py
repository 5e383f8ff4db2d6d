"""MultiRes: the request whose demands on GPU and KV come nearest to what is left of both.

Paper      EcoServe (arXiv 2411.06364) sec. 2.1, after multi-resource schedulers of clouds.
Idea       KV for prompt and predicted answer is set aside for each request (exact allocation). Of
           the waiting requests that fit, the one with the smallest Euclidean distance between its
           demands and what is left joins the batch, and so on until none fits.
Map        2.1 demand and distance -> `_admit`
           2.1 exact allocation    -> `_allocations_tokens`
Constants  `max_num_batched_tokens`: the forward size; `padding`: share added to a prediction
Differs    distances are in shares of the forward size and of the KV, since the paper states no
           units; a prompt beyond the forward size is cut. An answer that outgrows its allocation
           grows on block by block; where KV is short the holder with most to compute is preempted
           and allocated at least one token beyond what it has
Checked    baselines/tests/test_multires.py::test_the_nearest_demand_joins_by_hand
"""

from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.interface.decisions import Decision, Reservation
from harness.interface.entities import RequestId
from harness.interface.events import Event, Overran
from harness.interface.policies import Capability
from harness.interface.tables import Bools, Ints, RequestTable
from harness.interface.views import GroupView, RequestView, missing_tokens


class MultiRes:
    """Scheduling policy: decides whenever a request comes, ends or outgrows its allocation."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.PREDICTIONS, Capability.PROMISED_KV}
    )
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Overran})

    def __init__(self, *, max_num_batched_tokens: int, max_num_seqs: int, padding: float) -> None:
        """Limits of an iteration, and what predictions are padded by. ValueError for too little."""
        for name, value, least in (
            ("max_num_batched_tokens", max_num_batched_tokens, 1),
            ("max_num_seqs", max_num_seqs, 1),
            ("padding", padding, 0),
        ):
            if value < least:
                raise ValueError(f"policy.{name} is {value}, it must be at least {least}")
        self._most_tokens, self._padding = max_num_batched_tokens, padding
        self._max_num_seqs = max_num_seqs

    def observe(self, event: Event) -> None:
        """Nothing to learn: an overrun ends a run of steady iterations."""

    def schedule(self, view: GroupView) -> Decision:
        """Holders of KV run, and waiting requests join by their distance."""
        draft, table, requests = Draft(view), view.table, view.requests
        holds = table.kv_tokens > 0
        holders = [requests[name] for name in table.id[holds].tolist()]
        whole = self._run(draft, holders)
        left_tokens = self._most_tokens - (view.max_num_batched_tokens - draft.tokens_left)
        if whole and not holds.all():
            whole = self._admit(draft, table, ~holds, len(holders), left_tokens)
        return draft.decision(steady=whole)

    def _run(self, draft: Draft, holders: list[RequestView]) -> bool:
        """Run the holders of KV, decodes first; whether each runs for all that it misses."""
        if not holders or draft.try_run_all(holders, self._most_tokens):
            return True
        left, most_tokens = sorted(holders, key=missing_tokens), draft.tokens_left
        while left:
            request = left.pop(0)
            spare_tokens = max(1, self._most_tokens - (most_tokens - draft.tokens_left))
            while not draft.try_run(request, min(missing_tokens(request), spare_tokens)):
                victim = left.pop() if left else request
                if draft.can_preempt(victim):
                    draft.preempt(victim)
                if victim is request:
                    break
        return False

    def _allocations_tokens(self, table: RequestTable, rows: Bools) -> Ints:
        """Context to set KV aside for: the prompt and the padded prediction, else the limit."""
        known = table.predicted_mean_tokens[rows]
        limit = table.max_output_tokens[rows]
        answer = np.where(np.isnan(known), limit, np.ceil((1 + self._padding) * known))
        answer = np.maximum(np.minimum(answer, limit), table.generated_tokens[rows] + 1)
        tokens: Ints = table.prompt_tokens[rows] + answer.astype(np.int64)
        return tokens

    def _admit(
        self, draft: Draft, table: RequestTable, rows: Bools, holders: int, left_tokens: int
    ) -> bool:
        """Admit waiting requests; whether none is left for lack of tokens or cut by them."""
        names, service = table.id[rows], next(iter(draft.view.services))
        capacity = draft.view.kv.capacity_blocks(service)
        allocated = self._allocations_tokens(table, rows)
        blocks = -(-allocated // draft.view.kv.block_tokens)
        _refuse_larger(names, allocated, blocks, capacity)
        wanted = table.prompt_tokens[rows] + table.generated_tokens[rows]
        demand = np.where(wanted > self._most_tokens, 1, wanted)
        # Where only decodes run, as many tokens are left in the next iteration.
        only_decodes = left_tokens == self._most_tokens - holders
        if only_decodes and demand.min() > left_tokens:
            return True
        waits, whole, kv = np.ones(len(names), np.bool_), True, draft.kv
        for _ in range(self._max_num_seqs - holders):
            free_blocks = kv.free_blocks(service)
            fits_kv = waits & (blocks <= free_blocks)
            fits = fits_kv & (demand <= left_tokens)
            if not fits.any():
                return whole and (not fits_kv.any() or bool(only_decodes and waits.all()))
            distance = ((left_tokens - demand) / self._most_tokens) ** 2 + (
                (free_blocks - blocks) / capacity
            ) ** 2
            row = int(np.argmin(np.where(fits, distance, np.inf)))
            waits[row] = False
            request = draft.view.requests[RequestId(int(names[row]))]
            tokens = min(int(wanted[row]), left_tokens)
            whole &= tokens == wanted[row]
            if draft.has_room(request, tokens) and draft.try_reserve(
                request, Reservation(int(allocated[row]))
            ):
                draft.try_add(request, tokens)
                left_tokens -= tokens
        return whole


def _refuse_larger(names: Ints, allocated: Ints, blocks: Ints, capacity: int) -> None:
    """Raise ValueError for a request that will never have all its KV."""
    if blocks.max() > capacity:
        row = int(np.argmax(blocks))
        raise ValueError(
            f"r{names[row]} needs {blocks[row]} blocks of KV for its prompt and answer,"
            f" {allocated[row]} tokens, and {capacity} are there"
        )
