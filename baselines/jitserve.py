"""JITServe: the most discounted goodput for each remaining second, in groups of similar lengths.

Paper      JITServe, arXiv 2504.20068 (v3), NSDI 2026, by its program, UIUC-MLSys/JITServe:
           jitserve/scheduler/policy.py (commit 95fc1deb), slo_scheduler.py (a112cc61), and the
           fork of vLLM in third_party/vllm (9d05f0ca). The paper's own text was not read.
Idea       What a request would be worth when it ends, less the later it is, divided by the seconds
           that it still takes, is its density. Waiting requests are admitted by density. Every so
           many iterations the batch becomes one of similar lengths: of the densest requests those
           that are the densest together, and some that are shorter or longer give way to them.
Map        reward_estimation, allocation_control -> `_reward`, `_keys`
           get_priority, kept until regrouped    -> `_keys`, `_Group.keys`
           _recompute_bins_sliding_window        -> `window`
           _preempt_pending, to_activate         -> `_regroup`
           update_interval_time                  -> `_Group.renew`
Constants  of policy.py: a generated token is worth 8 prompt tokens, `every` 50 iterations, 0.02 s
           for an iteration before any was measured, the mean of 10 measures; of its
           scripts/e2e/benchmark_oracle.sh (01cf3bc1): `penalty`, `ttft_s`, `deadline_s`; of
           vllm/engine/arg_utils.py of the fork: `top`, `swaps`; see scenarios/policy/jitserve.yaml
Differs    requests with a deadline are of its kind THROUGHPUT, several of an application of
           COLLECTIVE, others of LATENCY, with `deadline_s` after they arrive. The predicted mean
           stands for its predictor, an upper quantile that is predicted again as an answer grows;
           without a prediction the limit stands in for the length. What a LATENCY request has
           gained counts whole. A group is chosen as by its default search, sliding_window; that
           lets more requests run beside the others, here some give way as by its other search,
           length_bin: no more than can be admitted in their place, and they are recomputed, there
           swapped out. Prompts do not begin with 2 tokens. The mean iteration is of those that
           were served; the program's own first of 0.02 s stays among its last ten. Not built: the
           bandwidth that the paper gives each request, which its program does not compute either;
           what a COLLECTIVE demands of a group; matching applications to past ones; bounding the
           batch by TBT; aborting requests after 2000 iterations in which none runs
Checked    baselines/tests/test_jitserve.py::test_the_densest_is_admitted_first_by_hand
           baselines/tests/test_jitserve.py::test_another_length_gives_way_by_hand
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.core.fill import admit, is_decode, run_in_order
from harness.interface.decisions import ContinuousBatching, Decision
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Event, Iterated, Predicted
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView

_DECODE_WEIGHT = 8
_FIRST_S, _MEASURES = 0.02, 10
_LEAST = 1e-6
"""The least ratio of two times, and the least seconds that remain."""

Key = tuple[float, float]
"""Minus the density, then the seconds that remain."""


@dataclass(slots=True)
class _Group:
    """Keys of requests since it was last regrouped, and iterations and microseconds since."""

    keys: dict[RequestId, Key] = field(default_factory=dict)
    iterations: int = 0
    total_us: int = 0
    measured_s: deque[float] = field(default_factory=partial(deque, maxlen=_MEASURES))

    @property
    def unit_s(self) -> float:
        """Mean seconds of an iteration."""
        measured = self.measured_s
        return sum(measured) / len(measured) if measured else _FIRST_S

    def renew(self, every: int) -> bool:
        """Once so many iterations have run, take a measure and forget keys; whether they have."""
        if self.iterations < every:
            return False
        self.measured_s.append(round(self.total_us / self.iterations) / 1e6)
        self.keys, self.iterations, self.total_us = {}, 0, 0
        return True


class JitServe:
    """Scheduling policy: asked every iteration, but while the same requests decode."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated, Predicted})

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        ttft_s: float,
        deadline_s: float,
        penalty: float,
        every: int,
        top: int,
        swaps: int,
    ) -> None:
        """`top`: as many times the slots are the requests of which a group is chosen.

        `every`: iterations from group to group, in each of which `swaps` requests may give way.
        ValueError for limits and counts that are too small, and a rule without chunked prefill.
        """
        times = {"ttft_s": ttft_s, "deadline_s": deadline_s, "penalty": penalty}
        for name, value in times.items():
            if not value > 0:
                raise ValueError(f"policy.{name} is {value}, it must be above 0")
        for name, count, least in (("every", every, 1), ("top", top, 1), ("swaps", swaps, 0)):
            if count < least:
                raise ValueError(f"policy.{name} is {count}, it must be at least {least}")
        if not rule.chunked_prefill:
            raise ValueError("policy.rule must have chunked_prefill")
        self._rule, self._ttft_s, self._deadline_s = rule, ttft_s, deadline_s
        self._penalty, self._every, self._top, self._swaps = penalty, every, top, swaps
        self._groups: defaultdict[GroupId, _Group] = defaultdict(_Group)

    def observe(self, event: Event) -> None:
        """Count iterations and their seconds; forget keys of other lengths."""
        if isinstance(event, Iterated):
            group = self._groups[event.group]
            group.iterations += event.iterations
            group.total_us += round(1e6 * event.duration_s)
        elif isinstance(event, Predicted):
            for group in self._groups.values():
                group.keys.pop(event.request, None)

    def schedule(self, view: GroupView) -> Decision:
        """Decodes, prompts that have begun, then admissions by density.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(
                f"jitserve serves one service, {view.group.id} has {len(view.services)}"
            )
        group = self._groups[view.group.id]
        regroups = group.renew(self._every)
        group.keys |= self._keys(view, group)
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        waiting.sort(key=lambda request: (group.keys[request.facts.id], request.facts.id))
        draft = Draft(view)
        if regroups:
            waiting = self._regroup(draft, group, waiting)
        holders = [it for it in view.requests.values() if draft.can_preempt(it)]
        holders.sort(key=lambda request: not is_decode(request))
        budget = self._rule.max_num_batched_tokens
        left = run_in_order(draft, holders, budget=budget, itself=True)
        admitted = 0
        if not any(map(draft.preempts, holders)):
            admitted = admit(draft, waiting, self._rule, len(holders), left=left)
        # Newcomers that found no slot or KV find none while the same requests decode.
        stays = not (draft.preempts_any or admitted) and all(map(is_decode, holders))
        steady = stays and (draft.runs_all or not view.kv.caches)
        at_most = self._every - group.iterations if steady else None
        return draft.decision(steady=steady, at_most=at_most)

    def _keys(self, view: GroupView, group: _Group) -> dict[RequestId, Key]:
        """Keys of requests that have none, and of other calls of their applications."""
        if view.requests.keys() <= group.keys.keys():
            return {}
        peers: defaultdict[tuple[int, int | None], list[RequestView]] = defaultdict(list)
        for request in view.requests.values():
            facts = request.facts
            peers[facts.app, facts.id if facts.deadline_s is None else None].append(request)
        found: dict[RequestId, Key] = {}
        for calls in peers.values():
            names = [request.facts.id for request in calls]
            if not group.keys.keys() >= set(names):
                left = sum(_length(it) - it.generated_tokens for it in calls)
                remain_s = max(group.unit_s * left, _LEAST)
                reward = sum(self._reward(it, view.now_s, remain_s, group.unit_s) for it in calls)
                found |= dict.fromkeys(names, (-reward / remain_s, remain_s))
        return found

    def _reward(self, request: RequestView, now_s: float, remain_s: float, unit_s: float) -> float:
        """Goodput of a request if it ends when so many seconds have passed."""
        facts, length, done = request.facts, _length(request), request.generated_tokens
        waited_s = now_s - facts.arrival_s
        if facts.deadline_s is not None:
            whole = facts.prompt_tokens + _DECODE_WEIGHT * length
            return whole * self._kept(facts.deadline_s - facts.arrival_s, waited_s + remain_s)
        kept = self._kept(self._deadline_s, waited_s + remain_s)
        if done:
            gained = facts.prompt_tokens + _DECODE_WEIGHT * done
            return gained + _DECODE_WEIGHT * (length - done) * kept
        first = facts.prompt_tokens * self._kept(self._ttft_s, waited_s + unit_s)
        return first + _DECODE_WEIGHT * length * kept

    def _kept(self, limit_s: float, taken_s: float) -> float:
        """The share of goodput that is left of what took so long."""
        ratio: float = max(_LEAST, min(1.0, limit_s / taken_s)) ** self._penalty
        return ratio

    def _regroup(
        self, draft: Draft, group: _Group, waiting: Sequence[RequestView]
    ) -> list[RequestView]:
        """Let requests of other lengths give way; the waiting, those of the group first."""
        size, requests = self._rule.max_num_seqs, list(draft.view.requests.values())
        requests.sort(key=lambda request: (group.keys[request.facts.id], request.facts.id))
        best = sorted(requests[: size * self._top], key=lambda request: request.context_tokens)
        start = window([-group.keys[request.facts.id][0] for request in best], size)
        chosen = best[start : start + size]
        if not chosen:
            return []
        low, high = chosen[0].context_tokens, chosen[-1].context_tokens
        names = {request.facts.id for request in chosen}
        inside = [request for request in waiting if request.facts.id in names]
        others = [
            request
            for request in draft.view.requests.values()
            if draft.can_preempt(request) and not low <= request.context_tokens <= high
        ]
        for request in others[: min(self._swaps, len(inside))]:
            draft.preempt(request)
        return [*inside, *(request for request in waiting if request.facts.id not in names)]


def _length(request: RequestView) -> int:
    """Predicted tokens of the answer."""
    limit = request.facts.max_output_tokens
    return limit if request.predicted is None else min(limit, ceil(request.predicted.mean_tokens))


def window(densities: Sequence[float], size: int) -> int:
    """Where the densest of all runs of so many begins."""
    if len(densities) <= size:
        return 0
    sums = np.cumsum([0.0, *densities])
    return int(np.argmax(sums[size:] - sums[:-size]))
