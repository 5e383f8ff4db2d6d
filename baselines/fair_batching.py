"""FairBatching: deadlines run from arrival, and an iteration is as long as decodes allow.

Paper      Lyu et al., FairBatching, arXiv 2510.14392 (v1), by a reader's note with its algorithm
           and a review; the paper's own text was not read, and no program of the authors was found.
Idea       The deadline of every token counts from the arrival of its request, so a decode that is
           ahead of it may be left out to make room for prompts. An iteration may take as long as
           the tightest decode has, and is filled with urgent decodes, then prompts, then the other
           decodes.
Map        deadlines of tokens, slack        -> `_deadline_s`
           time budget, urgent decodes       -> `schedule`
           predicted time of an iteration    -> `_Step`, by the costs of the run
           order of an iteration             -> `schedule`, `_decode`, `_prefill`
Constants  limits for requests of priority 0 and for others: not stated, ours as
           scenarios/scenario/compare.yaml; the batch rule as vLLM V1: see
           scenarios/policy/fair_batching.yaml
Differs    the cost model of the run in place of a + b x tokens + c x context. Not stated, and ours:
           no limit of time where nothing decodes; a prompt is cut to the largest chunk that the
           time allows; the first request of an iteration runs however long it takes; prompts that
           have begun come before newcomers, which are admitted in order up to the first that does
           not fit; where KV is short for an urgent decode or a prompt that has begun, the latest
           arrival is recomputed, and the other decodes wait. Not built: PAB, the budget of prompts
           that a node tells to its router, whose formula is in none of what was read
Checked    baselines/tests/test_fair_batching.py::test_a_decode_ahead_makes_room_by_hand
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import inf
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import admit, is_decode, run_in_order
from harness.interface.decisions import ContinuousBatching, Decision
from harness.interface.entities import Work
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.views import GroupView, RequestView

_AHEAD = 32
"""Iterations for which a decision is said to stand."""


@dataclass(slots=True)
class _Step:
    """What an iteration computes so far, and how long it may take."""

    seconds: Callable[[Work], float]
    budget_s: float
    left_tokens: int
    work: Work = field(default_factory=Work)

    def most(self, limit: int, more: Callable[[int], Work]) -> int:
        """The largest count up to a limit of which the work still fits; the first always does."""
        if limit <= 0 or self._seconds_with(more(limit)) <= self.budget_s:
            return max(0, limit)
        counts = range(1, limit)
        found = bisect_right(counts, self.budget_s, key=lambda it: self._seconds_with(more(it)))
        return max(found, int(self.work == Work()))

    def _seconds_with(self, more: Work) -> float:
        return self.seconds(_sum(self.work, more))

    def add(self, more: Work) -> None:
        """More is computed."""
        self.work = _sum(self.work, more)


class FairBatching:
    """Scheduling policy: asked every iteration, but for some while all decode in time."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        costs: CostModel,
        rule: ContinuousBatching,
        ttft_s: float,
        tpot_s: float,
        relaxed_ttft_s: float,
        relaxed_tpot_s: float,
    ) -> None:
        """Limits of requests of priority 0, and the relaxed ones of others.

        ValueError for limits that are not above 0, and a rule without chunked prefill.
        """
        strict, relaxed = (ttft_s, tpot_s), (relaxed_ttft_s, relaxed_tpot_s)
        if not min(*strict, *relaxed) > 0:
            raise ValueError(f"policy.ttft_s, tpot_s {strict}, relaxed {relaxed} must be above 0")
        if not rule.chunked_prefill:
            raise ValueError("policy.rule must have chunked_prefill")
        self._costs, self._rule, self._limits = costs, rule, (strict, relaxed)

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Urgent decodes, prompts, other decodes.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(
                f"fair_batching serves one service, {view.group.id} has {len(view.services)}"
            )
        (service,) = view.services
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        in_order = sorted(view.requests.values(), key=self._turn)
        decodes = [request for request in in_order if is_decode(request)]
        prompts = [request for request in in_order if not is_decode(request)]
        tpot_s = min((self._limits_of(it)[1] for it in decodes), default=inf)
        slacks_s = [self._deadline_s(it) - view.now_s for it in decodes]
        budget_s = max(min(slacks_s, default=inf), tpot_s)
        urgent = sum(slack_s < budget_s + tpot_s for slack_s in slacks_s)
        seconds = partial(self._costs.iteration_s, service, view.group.tensor_parallel)
        draft, step = Draft(view), _Step(seconds, budget_s, self._rule.max_num_batched_tokens)
        _decode(draft, step, decodes[:urgent], holders)
        self._prefill(draft, step, prompts, holders)
        _decode(draft, step, decodes[urgent:], ())
        if draft.runs_all and not prompts and _stays(step, tpot_s):
            return draft.decision(steady=True, at_most=_AHEAD)
        return _holders_first(view, draft.decision()) if view.kv.caches else draft.decision()

    def _limits_of(self, request: RequestView) -> tuple[float, float]:
        """Of the first token, and between two."""
        return self._limits[request.facts.priority > 0]

    def _deadline_s(self, request: RequestView) -> float:
        """Of its next token."""
        ttft_s, tpot_s = self._limits_of(request)
        return request.facts.arrival_s + ttft_s + request.generated_tokens * tpot_s

    def _turn(self, request: RequestView) -> tuple[float, int]:
        return self._deadline_s(request), request.facts.id

    def _prefill(
        self,
        draft: Draft,
        step: _Step,
        prompts: Sequence[RequestView],
        holders: Sequence[RequestView],
    ) -> None:
        """Compute prompts that have begun, then admit newcomers, as far as the time goes."""
        admitted = len(holders)
        for request in sorted(prompts, key=lambda request: request.kv_tokens <= 0):
            missing = draft.missing_tokens(request)
            held = request.context_tokens - missing
            tokens = step.most(min(missing, step.left_tokens), partial(_chunk, held))
            if request.kv_tokens > 0:
                run_in_order(draft, [request], budget=tokens, victims=holders, itself=True)
            elif not draft.preempts_any:
                admitted += admit(draft, [request], self._rule, admitted, left=tokens)
            if draft.runs(request):
                step.add(_chunk(held, tokens))
                step.left_tokens -= tokens
            elif request.kv_tokens <= 0:
                return


def _decode(
    draft: Draft, step: _Step, decodes: Sequence[RequestView], victims: Sequence[RequestView]
) -> None:
    """Run decodes in order, as far as the time goes; where KV is short, victims give way."""
    contexts = [request.context_tokens for request in decodes]
    sums, longest = list(accumulate(contexts)), list(accumulate(contexts, max))

    def first(count: int) -> Work:
        return Work(0, 0, 0, 0.0, count, sums[count - 1], longest[count - 1])

    count = step.most(min(len(decodes), step.left_tokens), first)
    if count:
        left = step.left_tokens
        step.left_tokens = run_in_order(
            draft, decodes[:count], budget=left, victims=victims, itself=bool(victims)
        )
        step.add(first(count))


def _chunk(held: int, tokens: int) -> Work:
    """So many tokens of a prompt behind those that are held."""
    return Work(1, tokens, tokens, tokens * (2.0 * (held + tokens) - tokens))


def _sum(one: Work, other: Work) -> Work:
    return Work(
        one.prefill_requests + other.prefill_requests,
        one.prefill_tokens + other.prefill_tokens,
        one.prefill_padded_tokens + other.prefill_padded_tokens,
        one.prefill_attended + other.prefill_attended,
        one.decode_requests + other.decode_requests,
        one.context_tokens + other.context_tokens,
        max(one.longest_tokens, other.longest_tokens),
    )


def _stays(step: _Step, tpot_s: float) -> bool:
    """Whether iterations of the same decodes are short enough for all of them for a while."""
    work, count = step.work, step.work.decode_requests
    later = Work(
        decode_requests=count,
        context_tokens=work.context_tokens + _AHEAD * count,
        longest_tokens=work.longest_tokens + _AHEAD,
    )
    return step.seconds(later) <= tpot_s


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
