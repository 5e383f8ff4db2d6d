"""SLAI: decodes run when they must to keep the time between tokens, prompts take the rest.

Paper      Bari et al., Optimal Scheduling Algorithms for LLM Inference: Theory and Practice,
           Proc. ACM Meas. Anal. Comput. Syst. 9(3), 2025, arXiv 2508.01002, section 6; its program
           is agrimUT/SLAI, a fork of Sarathi-Serve.
Idea       A decode has a last schedulable time: the end of its last token, plus the limit of the
           time between tokens, less some mean iterations. Decodes whose time has come run first,
           then prompts, the shortest first, then other decodes, as far as the token budget goes.
Map        6 last schedulable time (eq. 8)  -> `_time_decodes`
           6 dynamic offset                 -> `_offset`
           6 batch construction             -> `schedule`
Constants  budget, limits, offsets and times between tokens of section 7 and its program's
           config; see scenarios/policy/slai.yaml
Differs    paying and other users are requests of priority 0 and above it. A prompt's KV is taken
           chunk by chunk: a request is admitted if there is room for all that prompts still miss,
           and a prompt for which there is none then waits. RAD, the paper's scheduler for its
           theorems, is not in its program and not built. What is claimed of first tokens, gaps
           between tokens and capacity can be tested here
Checked    baselines/tests/test_slai.py::test_a_decode_waits_for_its_last_time_by_hand
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import is_decode
from harness.interface.decisions import Decision
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Event, Finished, Iterated
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView, missing_tokens


@dataclass(slots=True)
class _Group:
    """Iterations of a group so far; microseconds, which add up alike in every engine.

    `ran` are the requests of the last iteration, `last_us` the last schedulable times.
    """

    iterations: int = 0
    total_us: int = 0
    ended_us: int = 0
    ran: frozenset[RequestId] = frozenset()
    last_us: dict[RequestId, float] = field(default_factory=dict)


class Slai:
    """Scheduling policy: asked every iteration."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated, Finished})

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_decodes: int,
        tbt_s: float,
        relaxed_tbt_s: float,
        offset: float,
        offset_when_full: float,
        full_from: float,
        shortest_first: bool,
        strict_first: bool,
    ) -> None:
        """Limits of the time between tokens: `tbt_s` of requests of priority 0, else the relaxed.

        `offset` is in mean iterations, `offset_when_full` from the share `full_from` of KV held on.
        `shortest_first` orders waiting prompts by length, `strict_first` by limit before that.
        ValueError for numbers that cannot be.
        """
        counts = ("max_num_seqs", max_num_seqs), ("max_num_batched_tokens", max_num_batched_tokens)
        for name, count in (*counts, ("max_decodes", max_decodes)):
            if count < 1:
                raise ValueError(f"policy.{name} is {count}, it must be at least 1")
        times = ("tbt_s", tbt_s), ("relaxed_tbt_s", relaxed_tbt_s), ("offset", offset)
        for text, value in (*times, ("offset_when_full", offset_when_full)):
            if not value >= 0:
                raise ValueError(f"policy.{text} is {value}, it must be at least 0")
        if not 0 <= full_from <= 1:
            raise ValueError(f"policy.full_from is {full_from}, it must be from 0 to 1")
        self._max_num_seqs, self._max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self._max_decodes = max_decodes
        self._tbt_us, self._relaxed_tbt_us = 1e6 * tbt_s, 1e6 * relaxed_tbt_s
        self._offsets, self._full_from = (offset, offset_when_full), full_from
        self._shortest_first, self._strict_first = shortest_first, strict_first
        self._groups: defaultdict[GroupId, _Group] = defaultdict(_Group)

    def observe(self, event: Event) -> None:
        """Count iterations and their seconds."""
        if isinstance(event, Iterated):
            group = self._groups[event.group]
            group.iterations += event.iterations
            group.total_us += round(1e6 * event.duration_s)
            group.ended_us = round(1e6 * event.now_s)
            group.ran = frozenset(event.batch.tokens)
        elif isinstance(event, Finished):
            for group in self._groups.values():
                group.last_us.pop(event.request.id, None)

    def schedule(self, view: GroupView) -> Decision:
        """Critical decodes, prompts that have begun, admissions, other decodes.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(f"slai serves one service, {view.group.id} has {len(view.services)}")
        group = self._groups[view.group.id]
        self._time_decodes(view, group)
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        prompts = [request for request in holders if not is_decode(request)]
        decodes = [request for request in holders if is_decode(request)]
        decodes.sort(key=lambda it: (group.last_us[it.facts.id], it.facts.id))
        critical = sum(group.last_us[it.facts.id] <= round(1e6 * view.now_s) for it in decodes)
        draft = Draft(view)
        left = min(self._max_num_batched_tokens, draft.tokens_left)
        decoded = self._decode(draft, decodes[:critical], prompts, left, self._max_decodes)
        left -= decoded
        for request in prompts:
            left -= _run_chunk(draft, request, left)
        left -= self._admit(draft, waiting, prompts, left, self._max_num_seqs - len(holders))
        self._decode(draft, decodes, prompts, left, self._max_decodes - decoded)
        return _holders_first(view, draft.decision()) if view.kv.caches else draft.decision()

    def _time_decodes(self, view: GroupView, group: _Group) -> None:
        """Last schedulable times of the requests that the last iteration gave a token."""
        mean_us = group.total_us / max(group.iterations, 1)
        offset = self._offset(view)
        for name in group.ran & view.requests.keys():
            request = view.requests[name]
            if is_decode(request):
                is_strict = request.facts.priority <= 0
                tbt_us = self._tbt_us if is_strict else self._relaxed_tbt_us
                group.last_us[name] = group.ended_us + tbt_us - offset * mean_us
        group.ran = frozenset()

    def _offset(self, view: GroupView) -> float:
        """Mean iterations that a decode is early, by how much of the KV is held."""
        (service,) = view.services
        blocks = view.kv.capacity_blocks(service)
        return self._offsets[blocks - view.kv.free_blocks(service) >= self._full_from * blocks]

    def _decode(
        self,
        draft: Draft,
        decodes: Sequence[RequestView],
        prompts: Sequence[RequestView],
        left: int,
        most: int,
    ) -> int:
        """Run decodes in order; prompts that do not run give way, then the decode itself."""
        first = decodes[: min(left, most)]
        if draft.try_run_all(first, left):
            return len(first)
        ran = 0
        victims = [request for request in prompts if draft.can_preempt(request)]
        for request in decodes:
            if ran >= min(left, most):
                break
            if not draft.has_room(request, 1):
                continue
            while not draft.try_run(request, 1):
                victim = victims.pop() if victims else request
                draft.preempt(victim)
                if victim is request:
                    break
            else:
                ran += 1
        return ran

    def _admit(
        self,
        draft: Draft,
        waiting: Sequence[RequestView],
        prompts: Sequence[RequestView],
        left: int,
        slots: int,
    ) -> int:
        """Admit while there are slots, and KV for all that prompts miss; returns tokens run."""
        before = left
        begun = [request for request in prompts if not draft.preempts(request)]
        reserve = sum(missing_tokens(request) for request in begun if not draft.runs(request))
        for request in sorted(waiting, key=self._turn):
            service = request.facts.service
            needed = draft.kv.newcomer_blocks(request.facts.id, request.context_tokens)
            needed += draft.kv.blocks(reserve, service)
            if left <= 0 or slots <= 0 or needed > draft.kv.free_blocks(service):
                break
            ran = _run_chunk(draft, request, left)
            if not ran:
                break
            left, slots = left - ran, slots - 1
        return before - left

    def _turn(self, request: RequestView) -> tuple[bool, int, int]:
        """Place of a waiting request."""
        facts = request.facts
        is_relaxed = self._strict_first and facts.priority > 0
        length = facts.prompt_tokens if self._shortest_first else 0
        return is_relaxed, length, facts.id


def _holders_first(view: GroupView, decision: Decision) -> Decision:
    """The same batch with newcomers last, as vLLM gives them blocks where prefixes are cached."""
    draft = Draft(view)
    for name in decision.preempt:
        draft.preempt(view.requests[name])
    for batch in decision.launch:
        runs = [(view.requests[name], tokens) for name, tokens in batch.tokens.items()]
        for request, tokens in sorted(runs, key=lambda run: run[0].kv_tokens <= 0):
            draft.try_run(request, tokens)
    return draft.decision()


def _run_chunk(draft: Draft, request: RequestView, left: int) -> int:
    """Compute what is missing of a context, up to so many tokens; returns how many."""
    tokens = min(draft.missing_tokens(request), left)
    return tokens if draft.try_run(request, tokens) else 0
