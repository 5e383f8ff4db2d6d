"""Victims in vLLM: where KV is short, preempt what costs least, not what came last.

Paper      vLLM issue 54644 and pull request 53723 (`lcf`), pull request 56897 (`cost_aware`), all
           open and none merged; today's rule is vllm/v1/core/sched/scheduler.py, `schedule`
Idea       First come first served as in vLLM, with another victim where a running request finds no
           free block. `lcf`: the request with the fewest computed tokens, which loses least.
           `cost_aware`: the request that frees the most blocks per token of its context, times the
           share of its longest answer that is yet to be generated.
Map        least computed first (54644)             -> `least_computed`
           score S(r) (56897)                       -> `cost_aware`
           loop over running requests, scheduler.py -> `_make_room`
Constants  none; the batch rule is vllm.yaml's, see scenarios/policy/lcf.yaml and cost_aware.yaml
Differs    vLLM orders running requests by admission, here they are in order of arrival, decodes
           before prompts that have begun; so ties go to the latest arrival. Preempted requests come
           back in order of arrival, in vLLM the one preempted last first. Not stated of
           `cost_aware`: ties, and whether the request that needs the block may be the victim; here
           it may, as in vLLM today, and the requests behind it still run, where vLLM ends its loop.
           As proposed, `lcf` counts as lost what a request would find cached again, and nothing
           keeps a newcomer from being its victim time after time. Encoder inputs are not built.
           Real vLLM does not tell a policy which blocks are shared: `cost_aware` counts all as a
           request's own there
Checked    baselines/tests/test_vllm_victims.py::test_victims_by_hand
           baselines/tests/test_vllm_victims.py::test_a_shared_prefix_frees_little_by_hand
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import fill, is_decode
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import RequestId
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView, KvView, RequestView, missing_tokens

Choose = Callable[[KvView, Sequence[RequestView], RequestView], RequestView]
"""Chooses the victim among holders of KV, in order of arrival; the last one needs a block."""


class VllmVictims:
    """Scheduling policy: first come first served, with a rule for victims."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, victim: str) -> None:
        """`victim`: lcf or cost_aware. ValueError for another word and for whole prompts."""
        if victim not in _VICTIMS:
            raise ValueError(f"policy.victim is {victim}, not {' or '.join(_VICTIMS)}")
        if not rule.chunked_prefill:
            raise ValueError("policy.rule.chunked_prefill is False, it must be True")
        self._name, self._choose = victim, _VICTIMS[victim]
        self._rule, self._order = rule, PriorityOrder(None, rule)

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Preempt until every other holder of KV has its next block; then as vLLM.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(
                f"{self._name} serves one service, {view.group.id} has {len(view.services)}"
            )
        draft, requests = Draft(view), list(view.requests.values())
        holders = [request for request in requests if request.kv_tokens > 0]
        needed = sum(_more_blocks(view.kv, it, missing_tokens(it)) for it in holders)
        if needed > view.kv.free_blocks(*view.services):
            self._make_room(draft, holders)
        fill(draft, requests, self._order)
        return draft.decision(steady=draft.runs_all)

    def _make_room(self, draft: Draft, holders: Sequence[RequestView]) -> None:
        """Preempt victims for each holder of KV that finds no block, decodes first."""
        kv, left = draft.kv, min(self._rule.max_num_batched_tokens, draft.tokens_left)
        taken: dict[RequestId, tuple[int, int]] = {}
        for request in sorted(holders, key=lambda it: not is_decode(it)):
            while not draft.preempts(request):
                tokens = min(missing_tokens(request), left)
                blocks = _more_blocks(kv, request, tokens)
                free = kv.free_blocks(request.facts.service) - sum(it for _, it in taken.values())
                if blocks <= free:
                    taken[request.facts.id], left = (tokens, blocks), left - tokens
                    break
                victim = self._choose(kv, [it for it in holders if not draft.preempts(it)], request)
                left += taken.pop(victim.facts.id, (0, 0))[0]
                draft.preempt(victim)


def _more_blocks(kv: KvView, request: RequestView, tokens: int) -> int:
    """Free blocks that a holder of KV takes for so many tokens more."""
    return kv.blocks(request.kv_tokens + tokens) - kv.blocks(request.kv_tokens)


def least_computed(kv: KvView, holders: Sequence[RequestView], request: RequestView) -> RequestView:
    """The fewest computed tokens; not the request that needs a block, unless it is alone."""
    others = [it for it in reversed(holders) if it is not request]
    return min(others, key=lambda it: it.kv_tokens, default=request)


def cost_aware(kv: KvView, holders: Sequence[RequestView], request: RequestView) -> RequestView:
    """The highest score: own blocks per token, times what is left of the longest answer."""

    def score(it: RequestView) -> float:
        share = it.generated_tokens / max(1, it.facts.max_output_tokens)
        return kv.own_blocks(it.facts.id) / max(1, it.context_tokens) * (1 - share)

    return max(reversed(holders), key=score)


_VICTIMS: dict[str, Choose] = {"lcf": least_computed, "cost_aware": cost_aware}
