"""DLPM: the longest cached prefix first, among clients that have not used up their quantum.

Paper      Cao et al., Locality-aware Fair Scheduling in LLM Serving, arXiv 2501.14312.
Idea       A deficit counter per client falls by the prompt tokens that are computed for it and the
           tokens that are generated for it. Requests of clients with a positive counter are
           admitted in the order of their longest cached prefix; when no client that waits has one,
           every counter that is not positive grows by a quantum.
Map        Algorithm 1, waiting queue    -> `_admit`
           Algorithm 1, refill           -> `_refill`
           Algorithm 1, execution stream -> `_charge_output`
Constants  `prompt_price` 1 and `output_price` 2, as VTC's (arXiv 2401.00588); `quantum`: our
           choice; see scenarios/policy/dlpm.yaml
Differs    written from descriptions of the paper and a public implementation of a third party; the
           authors' program is not public. Without `engine.prefix_caching` nothing is cached, and
           the order is that of arrival among clients with a positive counter. What is claimed of
           fairness and locality in one group can be tested here; D2LPM, which also dispatches, is
           not built: each group has counters of its own. Prefixes are looked up once in a decision.
           Where KV is short the latest arrival gives way, in SGLang the one with the fewest tokens
Checked    baselines/tests/test_dlpm.py::test_the_cached_prefix_is_admitted_first_by_hand
           baselines/tests/test_dlpm.py::test_a_used_up_quantum_lets_another_client_in_by_hand
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import is_decode, run_in_order
from harness.interface.decisions import Decision
from harness.interface.entities import GroupId, Request, RequestId
from harness.interface.events import Event, Finished
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView


@dataclass(slots=True)
class _Counters:
    """Deficit counters of a group by client, and output tokens that are counted, by request."""

    deficit: defaultdict[object, float] = field(default_factory=lambda: defaultdict(float))
    counted: dict[RequestId, int] = field(default_factory=dict)


class Dlpm:
    """Scheduling policy: asked every iteration in which requests wait."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Finished})

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        client: str,
        quantum: float,
        prompt_price: float,
        output_price: float,
    ) -> None:
        """`client`: application or tenant. Prompts are cut to what is left of a batch.

        ValueError for another word, a batch or quantum without tokens, and negative prices.
        """
        if client not in ("application", "tenant"):
            raise ValueError(f"policy.client is {client}, not application or tenant")
        if min(max_num_seqs, max_num_batched_tokens) < 1:
            raise ValueError(
                f"policy.max_num_seqs {max_num_seqs} and policy.max_num_batched_tokens"
                f" {max_num_batched_tokens} must be at least 1"
            )
        if not quantum > 0:
            raise ValueError(f"policy.quantum is {quantum}, it must be above 0")
        if min(prompt_price, output_price) < 0:
            raise ValueError(
                f"policy.prompt_price {prompt_price} and policy.output_price {output_price} must be"
                " at least 0"
            )
        self._max_num_seqs, self._max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self._by_application, self._quantum = client == "application", quantum
        self._prompt_price, self._output_price = prompt_price, output_price
        self._counters: defaultdict[GroupId, _Counters] = defaultdict(_Counters)

    def observe(self, event: Event) -> None:
        """Count the last tokens of an answer."""
        if isinstance(event, Finished):
            for counters in self._counters.values():
                if event.request.id in counters.counted:
                    self._charge_output(counters, event.request, event.output_tokens)
                    del counters.counted[event.request.id]

    def schedule(self, view: GroupView) -> Decision:
        """Decodes, then prompts that have begun, then admissions.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(f"dlpm serves one service, {view.group.id} has {len(view.services)}")
        counters = self._counters[view.group.id]
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        for request in holders:
            self._charge_output(counters, request.facts, request.generated_tokens)
        draft = Draft(view)
        budget = min(self._max_num_batched_tokens, draft.tokens_left)
        holders.sort(key=lambda request: not is_decode(request))
        left = run_in_order(draft, holders, budget=budget, itself=True)
        if not draft.preempts_any:
            slots = min(self._max_num_seqs, view.max_num_seqs) - len(holders)
            self._admit(draft, counters, waiting, left, slots)
        return draft.decision(steady=draft.runs_all)

    def _admit(
        self,
        draft: Draft,
        counters: _Counters,
        waiting: Sequence[RequestView],
        left: int,
        slots: int,
    ) -> None:
        """Admit by cached prefix while the next request fits; charge its prompt at once."""
        if slots <= 0 or left <= 0 or not waiting:
            return
        cached = {request.facts.id: draft.kv.cached_tokens(request.facts.id) for request in waiting}
        order = sorted(waiting, key=lambda it: (-cached[it.facts.id], it.facts.id))
        while order:
            behind = []
            for request in order:
                client = self._client(request.facts)
                if counters.deficit[client] <= 0:
                    behind.append(request)
                    continue
                missing = draft.missing_tokens(request)
                if slots <= 0 or left <= 0 or not _has_room(draft, request):
                    return
                if not draft.try_run(request, min(missing, left)):
                    return
                counters.deficit[client] -= self._prompt_price * missing
                counters.counted.setdefault(request.facts.id, 0)
                left, slots = left - min(missing, left), slots - 1
            if len(behind) == len(order):
                self._refill(counters)
            order = behind

    def _refill(self, counters: _Counters) -> None:
        """A quantum for every client that has used up its own."""
        for client, deficit in counters.deficit.items():
            if deficit <= 0:
                counters.deficit[client] = deficit + self._quantum

    def _charge_output(self, counters: _Counters, request: Request, tokens: int) -> None:
        """Count the tokens of an answer that have not been counted."""
        more = tokens - counters.counted.get(request.id, 0)
        counters.deficit[self._client(request)] -= self._output_price * more
        counters.counted[request.id] = tokens

    def _client(self, request: Request) -> object:
        return request.app if self._by_application else request.tenant


def _has_room(draft: Draft, request: RequestView) -> bool:
    """Whether there is KV for the whole context of a newcomer."""
    needed = draft.kv.newcomer_blocks(request.facts.id, request.context_tokens)
    return needed <= draft.kv.free_blocks(request.facts.service)
