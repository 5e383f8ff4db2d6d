"""UniBoost: arrival less a boost that falls with the work; one knob from SJF to FCFS.

Paper      Li et al., Beyond Prediction: Tail-Aware Scheduling for LLM Inference, ICML 2026,
           arXiv 2606.18431; its author's program, yl3469/sglang at commit 9979a9aa,
           python/sglang/srt/managers/schedule_policy.py. The boost is that of Yu and Scully,
           arXiv 2404.08826
Idea       A request is ordered as if it had arrived ln(1 / (1 - exp(-gamma w))) / gamma seconds
           earlier, where w is its work: the seconds that its uncached prompt tokens take. Little
           work gives a large boost. A small gamma is near shortest first, a large one near first
           come first served. `UniBoostAda` sets gamma by the tail of recent latencies.
Map        _uniboost_boost_value -> `boost_s`
           _uniboost_priority    -> `UniBoost._key`, `_drafted`
           GammaAdaController    -> `UniBoostAda`
Constants  of its program: `gamma_per_s` 10, 64 us of work per token; of its GammaAdaController:
           window 2000, at least 200 latencies, every 5 s, gamma from 1 to 200, weights 4 and 0.3.
           Where a cost model is offered, work per token is its time of a prompt of 1024 tokens by
           1024: our choice. See scenarios/policy/uniboost.yaml and uniboost_ada.yaml
Differs    batches are filled as under vllm.yaml, and where KV is short the last in the order gives
           way, which its program leaves to SGLang. Work is that of the prompt, and arrival that of
           the request; in the program work has the answer of a preempted request, too, and arrival
           is its entry into the waiting queue. The work of a holder of KV is that of its admission.
           One gamma holds for all groups. Of the paper, which was read in notes of others, decodes
           in the same order (UniBoost-Base) and protection from preemption (MemGuard) are not
           built: no exact statement of them was found. Not stated: how percentiles are interpolated
           (here linearly), ties (here by number), the gamma of the experiments. Real vLLM does not
           tell a policy what is cached: there all of a prompt is work
Checked    baselines/tests/test_uniboost.py::test_boosts_by_hand
           baselines/tests/test_uniboost.py::test_order_by_hand
           baselines/tests/test_uniboost.py::test_gamma_follows_the_tail_by_hand
"""

from collections import defaultdict, deque
from functools import partial
from math import inf
from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.core.fill import fill
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import GroupId, RequestId, ServiceId, Work
from harness.interface.events import Event, Finished
from harness.interface.policies import Capability, CostModel
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView

_S_PER_TOKEN = 64e-6
_TOKENS = 1024
_NO_WORK_S = 1e9
"""Boost of a request that has nothing to compute, of its program."""
_LEAST_GAMMA, _TAIL_WEIGHT, _STEP = 1.0, 4.0, 0.3


def boost_s(work_s: Floats, gamma_per_s: float) -> Floats:
    """Seconds that a request of so much work is ordered ahead of its arrival."""
    some = np.where(work_s > 0, work_s, 1.0)
    boost: Floats = -np.log(-np.expm1(-gamma_per_s * some)) / gamma_per_s
    return np.where(work_s > 0, boost, _NO_WORK_S)


class UniBoost:
    """Scheduling policy: a priority order by boosted arrival."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        gamma_per_s: float,
        s_per_token: float | None,
        costs: CostModel | None = None,
    ) -> None:
        """`s_per_token` is the work of a token of a prompt; None: that of `costs`.

        ValueError for numbers that are not above 0.
        """
        for name, value in (("gamma_per_s", gamma_per_s), ("s_per_token", s_per_token)):
            if value is not None and not value > 0:
                raise ValueError(f"policy.{name} is {value}, it must be above 0")
        self.gamma_per_s = gamma_per_s
        self._rule, self._given_s, self._costs = rule, s_per_token, costs
        self._paces: dict[tuple[ServiceId, int], float] = {}
        self._standing: dict[int, Decision] = {}
        """By GPUs of a group."""
        self._works_s: defaultdict[GroupId, dict[RequestId, float]] = defaultdict(dict)

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The priority order of equal groups; a draft where what is cached moves it."""
        if view.kv.caches:
            return self._drafted(view)
        degree = view.group.tensor_parallel
        if degree not in self._standing:
            key, renews = partial(self._key, degree), Finished in self.subscribes
            order = PriorityOrder(key, self._rule, renews=renews)
            self._standing[degree] = Decision(priority_order=order)
        return self._standing[degree]

    def _pace_s(self, service: ServiceId, degree: int) -> float:
        """Seconds of a token of a prompt, of a service on so many GPUs."""
        if self._given_s is not None or self._costs is None:
            return self._given_s or _S_PER_TOKEN
        if (service, degree) not in self._paces:
            work = Work(1, _TOKENS, _TOKENS, float(_TOKENS) ** 2)
            seconds = self._costs.iteration_s(service, degree, work)
            self._paces[service, degree] = seconds / _TOKENS
        return self._paces[service, degree]

    def _key(self, degree: int, table: RequestTable) -> Floats:
        """Arrivals, boosted by the work of whole prompts."""
        paces_s = np.zeros(len(table.services))
        for number in np.unique(table.service).tolist():
            paces_s[number] = self._pace_s(table.services[number], degree)
        works_s: Floats = paces_s[table.service] * table.prompt_tokens
        return table.arrival_s - boost_s(works_s, self.gamma_per_s)

    def _drafted(self, view: GroupView) -> Decision:
        """The same with works that are less by what is cached now."""
        (pace_s,) = (self._pace_s(it, view.group.tensor_parallel) for it in view.services)
        before, works_s, kv = self._works_s[view.group.id], dict[RequestId, float](), view.kv
        for name, request in view.requests.items():
            if request.kv_tokens > 0:
                works_s[name] = before[name]
            else:
                tokens = request.facts.prompt_tokens - kv.cached_tokens(name)
                works_s[name] = pace_s * max(0, tokens)
        self._works_s[view.group.id] = works_s
        arrival_s: Floats = np.array([it.facts.arrival_s for it in view.requests.values()])
        key = arrival_s - boost_s(np.array(list(works_s.values())), self.gamma_per_s)
        turns = dict(zip(works_s, key.tolist(), strict=True))
        order = sorted(view.requests.values(), key=lambda it: (turns[it.facts.id], it.facts.id))
        draft = Draft(view)
        fill(draft, order, PriorityOrder(None, self._rule))
        return draft.decision(steady=draft.runs_all)


class UniBoostAda(UniBoost):
    """The same with a gamma that falls where the slowest requests are far slower than others."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Finished})

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        gamma_per_s: float,
        s_per_token: float | None,
        window: int,
        least: int,
        every_s: float,
        most_gamma_per_s: float,
        costs: CostModel | None = None,
    ) -> None:
        """Begin with `gamma_per_s`; set it `every_s`, by the last `window` latencies.

        Not before there are `least`. ValueError for a window or a gamma that is too small.
        """
        super().__init__(rule=rule, gamma_per_s=gamma_per_s, s_per_token=s_per_token, costs=costs)
        if not 1 <= least <= window:
            raise ValueError(f"policy.least is {least}, it must be from 1 to policy.window")
        if not most_gamma_per_s >= _LEAST_GAMMA:
            raise ValueError(f"policy.most_gamma_per_s is {most_gamma_per_s}, not 1 or more")
        if not every_s >= 0:
            raise ValueError(f"policy.every_s is {every_s}, it must be at least 0")
        self._latencies_s: deque[float] = deque(maxlen=window)
        self._least, self._every_s, self._most_gamma = least, every_s, most_gamma_per_s
        self._set_s = -inf

    def observe(self, event: Event) -> None:
        """Keep the latency of an answer; set gamma where it is time."""
        if not isinstance(event, Finished):
            return
        self._latencies_s.append(event.now_s - event.request.arrival_s)
        is_time = event.now_s - self._set_s >= self._every_s
        if is_time and len(self._latencies_s) >= self._least:
            self._set_s = event.now_s
            t95, t99 = np.percentile(self._latencies_s, [95, 99]).tolist()
            beyond = max(t99 / t95 - 1, 0.0) if t95 > 0 else 0.0
            wanted = self._most_gamma / (1 + _TAIL_WEIGHT * beyond)
            wanted = min(max(wanted, _LEAST_GAMMA), self._most_gamma)
            self.gamma_per_s += _STEP * (wanted - self.gamma_per_s)
