"""MC-SF: the shortest predicted answers first, as far as all future completions fit in the KV.

Paper      Jaillet et al., Online Scheduling for LLM Inference with KV Cache Constraints,
           arXiv 2502.07115, section 4 (eq. 5), by notes of two readers that agree; the paper's own
           text was not read.
Idea       The KV that requests hold together peaks when one of them is about to complete. So
           waiting requests, the shortest predicted answer first, are admitted while the KV suffices
           at every predicted completion; the first for which it does not ends the admission. None
           is preempted to admit another.
Map        4 order of waiting requests     -> `schedule`, `_left`
           4 eq. 5, check of completions   -> `fits`
           4 largest feasible prefix       -> `_admissible`
           protection of a share of M      -> `protected_share`
Constants  `protected_share` 0, as with true lengths; .1 to .25 of M in the paper's tests with
           errors; the batch rule as vLLM V1: see scenarios/policy/mc_sf.yaml
Differs    a round is an iteration, of whatever length, and a prompt that is cut to the token budget
           counts as one round. KV is counted in whole blocks, prefixes that requests share as often
           as they are held. A request that outlives its prediction counts as in its last round,
           where the paper has predictions that are not too low; KV that is then short is taken from
           the latest arrival, which is recomputed, where the paper's baselines clear all or a share
           of the requests. Such a request waits by what is predicted to be left. Where none holds
           KV the first is admitted whatever is predicted. Without a prediction the limit stands in
           for the length. MC-Benchmark, the same check in order of arrival, is not built
Checked    baselines/tests/test_mc_sf.py::test_the_papers_order_by_hand
           baselines/tests/test_mc_sf.py::test_completions_by_hand
"""

from collections.abc import Sequence
from math import ceil, floor
from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.core.fill import fill, is_decode
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import Ints
from harness.interface.views import GroupView, RequestView


class McSf:
    """Scheduling policy: asked every iteration in which requests wait."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, protected_share: float) -> None:
        """`protected_share`: of the KV, kept free of predicted use. ValueError for another."""
        if not 0.0 <= protected_share < 1.0:
            raise ValueError(
                f"policy.protected_share is {protected_share}, it must be at least 0 and below 1"
            )
        self._rule, self._order = rule, PriorityOrder(None, rule)
        self._protected_share = protected_share

    def observe(self, event: Event) -> None:
        """Nothing to learn: predictions are in the view."""

    def schedule(self, view: GroupView) -> Decision:
        """Requests that hold KV by arrival, then newcomers, the shortest first, that may join.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(f"mc_sf serves one service, {view.group.id} has {len(view.services)}")
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        waiting.sort(key=lambda request: (_left(request), request.facts.id))
        waiting = waiting[: max(0, self._rule.max_num_seqs - len(holders))]
        joining = waiting[: self._admissible(view, holders, waiting)]
        draft = Draft(view)
        fill(draft, [*holders, *joining], self._order)
        decodes = not draft.preempts_any and all(map(is_decode, holders))
        return draft.decision(steady=decodes and not waiting)

    def _admissible(
        self, view: GroupView, holders: Sequence[RequestView], waiting: Sequence[RequestView]
    ) -> int:
        """How many of the waiting requests may be admitted, in order."""
        if not waiting:
            return 0
        service = waiting[0].facts.service
        room = floor(view.kv.capacity_blocks(service) * (1 - self._protected_share))
        requests = [*holders, *waiting]
        held = np.array([request.context_tokens for request in requests])
        left = np.array([_left(request) for request in requests])
        first = len(holders) + 1
        for count in range(first, len(requests) + 1):
            if not fits(held[:count], left[:count], room, view.kv.tokens_of_block(service)):
                return max(count - first, int(not holders))
        return len(waiting)


def _left(request: RequestView) -> int:
    """Predicted tokens of the answer that are still to come, at least the next one."""
    length = request.facts.max_output_tokens
    if request.predicted is not None:
        length = min(length, ceil(request.predicted.mean_tokens))
    return max(1, length - request.generated_tokens)


def fits(held: Ints, left: Ints, room_blocks: int, block_tokens: int) -> bool:
    """Whether requests never hold more blocks, if each gets a token a round and then is done.

    `held` are their contexts now, `left` the tokens that they still get; what a round generates
    counts in it.
    """
    rounds = np.unique(left)[:, None]
    blocks = -(-(held + rounds) // block_tokens)
    return int((blocks * (left >= rounds)).sum(axis=1).max()) <= room_blocks
