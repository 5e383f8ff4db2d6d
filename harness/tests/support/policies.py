"""Policies and placements that only tests have, and what they are tried on."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from baselines.edf import Edf
from harness.core.draft import Draft
from harness.core.fill import is_decode, run_in_order
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Deployment,
    PriorityOrder,
    Reservation,
)
from harness.interface.entities import (
    Group,
    RequestId,
)
from harness.interface.events import Arrived, Event, Finished, Iterated
from harness.interface.policies import Capability
from harness.interface.tables import RequestTable
from harness.interface.views import ClusterView, GroupView, RequestView
from harness.tests.support.serving import (
    a_group,
    rule,
    workload,
)
from harness.workloads.workload import Workload

Floats = NDArray[np.float64]


NO_EVENTS: frozenset[type[Event]] = frozenset()


def some_load(seed: int, count: int = 60, services: int = 3) -> Workload:
    rng = np.random.default_rng(seed)
    return workload(
        rng.integers(1, 90, count).tolist(),
        rng.integers(1, 60, count).tolist(),
        np.cumsum(rng.exponential(0.05, count)).tolist(),
        services=services,
    )


class Moving:
    """Three services on two GPUs: two at a time, the others moved in every 0.9 s and at drains."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = NO_EVENTS

    def __init__(self) -> None:
        self._turn = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The next two services that have requests."""
        self._turn += 1
        names = sorted(view.services)
        order = [names[(self._turn + i) % len(names)] for i in range(len(names))]
        order.sort(key=lambda service: not view.backlog[service])
        groups = tuple(a_group(service, gpu) for gpu, service in enumerate(order[:2]))
        return Deployment(groups, wake_s=view.now_s + 0.9)


class Scripted:
    """Scheduling policy for tests: whatever a function of the view says."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = NO_EVENTS

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Idle."""
        return Decision()


class ShortestFirst(Scripted):
    """A priority order by predicted length; without a prediction last."""

    def __init__(self, *, chunked_prefill: bool = False, max_num_seqs: int = 1) -> None:
        self._rule = rule(chunked_prefill=chunked_prefill, max_num_seqs=max_num_seqs, tokens=4096)

    def schedule(self, view: GroupView) -> Decision:
        """The same for every group."""
        return Decision(priority_order=PriorityOrder(self._key, self._rule))

    @staticmethod
    def _key(table: RequestTable) -> Floats:
        return np.nan_to_num(table.predicted_mean_tokens, nan=np.inf)


RULES = (
    rule(chunked_prefill=False, pads=True, max_num_seqs=4, tokens=300, padding=40),
    rule(chunked_prefill=False, pads=False, max_num_seqs=6, tokens=220),
    rule(chunked_prefill=False, pads=True, max_num_seqs=8, tokens=300, spare=0.05),
    rule(chunked_prefill=True, max_num_seqs=6, tokens=16),
    rule(chunked_prefill=True, max_num_seqs=8, tokens=40, spare=0.02),
)


PERIOD_S = 0.125


class Restless:
    """Places anew at every drain and, for some rounds, at times drawn: stops, moves and re-adds.

    In a round a service has no group, one, or two, on GPUs dealt at random; groups are named by
    their service and number alone, so that a moved one keeps its name. In the end every
    service has a group.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = NO_EVENTS

    def __init__(self, seed: int, waits_s: list[float], gpus: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._waits_s = list(waits_s)
        self._gpus = gpus

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """Deal the GPUs anew."""
        free = self._rng.permutation(self._gpus).tolist()
        if not self._waits_s:
            if view.deployment.wake_s is None and view.deployment.groups:
                return view.deployment
            return Deployment(tuple(a_group(s, free.pop()) for s in view.services))
        groups: list[Group] = []
        for service in view.services:
            for copy in range(int(self._rng.integers(0, 3))):
                size = min(len(free), int(self._rng.integers(1, 3)))
                if size:
                    gpus = [free.pop() for _ in range(size)]
                    groups.append(a_group(service, *gpus, name=f"{service}.{copy}"))
        return Deployment(tuple(groups), wake_s=view.now_s + self._waits_s.pop(0))


class SteadyFcfs:
    """First come first served by `Draft`: steady while all in the batch decode, or all run.

    Asks to be woken every `PERIOD_S`; with `rotates`, the order changes then (requests of the turn
    first), so that what a run spans matters.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = NO_EVENTS

    def __init__(self, *, rotates: bool) -> None:
        self._rotates = rotates
        self.asked = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Holders keep their place unless the order rotates."""
        self.asked += 1
        turn = int(view.now_s / PERIOD_S)

        def place(request: RequestView) -> tuple[bool, float, int]:
            facts = request.facts
            if self._rotates:
                return (facts.id + turn) % 3 != 0, facts.arrival_s, facts.id
            return request.kv_tokens == 0, facts.arrival_s, facts.id

        draft = Draft(view)
        run_in_order(draft, sorted(view.requests.values(), key=place))
        decodes = not any(draft.preempts(r) for r in view.requests.values()) and all(
            is_decode(r) for r in view.requests.values() if draft.runs(r)
        )
        steady = decodes or draft.runs_all
        return draft.decision(steady=steady, wake_s=(turn + 1) * PERIOD_S)


@dataclass
class Paused:
    """Least attained tokens first, three quarters of the slots; the rest pause and keep their KV.

    Prompts go in chunks of 37 tokens. When KV runs out the last in the order are preempted.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    max_num_seqs: int = 18

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Order anew and fill."""
        draft = Draft(view)
        order = sorted(view.requests.values(), key=lambda r: (r.generated_tokens // 8, r.facts.id))
        for place, request in enumerate(order):
            if place >= self.max_num_seqs:
                break
            tokens = min(draft.missing_tokens(request), 37)
            while not draft.try_run(request, tokens):
                victims = [r for r in order[place + 1 :] if r.kv_tokens and not draft.preempts(r)]
                if not victims or draft.tokens_left < tokens:
                    break
                draft.preempt(victims[-1])
        return draft.decision()


@dataclass
class Reserving:
    """Admits a request where KV for its whole context can be reserved; preempts none."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    max_num_seqs: int = 12
    promised: set[RequestId] = field(default_factory=set)

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Holders run; newcomers in order of arrival while the promise fits."""
        draft = Draft(view)
        holders = [r for r in view.requests.values() if r.reservation is not None]
        for request in holders:
            draft.try_run(request, min(draft.missing_tokens(request), draft.tokens_left))
        for request in view.requests.values():
            if request.reservation is not None:
                continue
            whole = Reservation(request.facts.prompt_tokens + request.facts.max_output_tokens)
            if len(holders) >= self.max_num_seqs or not draft.try_reserve(request, whole):
                break
            holders.append(request)
            draft.try_run(request, min(draft.missing_tokens(request), draft.tokens_left))
        return draft.decision()


@dataclass
class Srpt:
    """Shortest prompt first, sorted every iteration; a request that loses its slot is preempted."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    max_num_seqs: int = 10

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The first few run."""

        def rank(request: RequestView) -> tuple[int, int]:
            return request.facts.prompt_tokens - request.generated_tokens, request.facts.id

        draft = Draft(view)
        order = sorted(view.requests.values(), key=rank)
        for request in order[self.max_num_seqs :]:
            if request.kv_tokens:
                draft.preempt(request)
        run_in_order(draft, order[: self.max_num_seqs])
        return draft.decision()


class LeastServed:
    """By service to tenants so far, which events alone tell: least first, holders ahead."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Iterated})

    def __init__(self) -> None:
        self._tenant: dict[RequestId, str] = {}
        self._served: Counter[str] = Counter()

    def observe(self, event: Event) -> None:
        """Count tokens."""
        if isinstance(event, Arrived):
            self._tenant[event.request.id] = str(event.request.tenant)
        elif isinstance(event, Iterated):
            for request, tokens in event.batch.tokens.items():
                self._served[self._tenant[request]] += tokens

    def schedule(self, view: GroupView) -> Decision:
        """Tenants in turn."""

        def place(request: RequestView) -> tuple[bool, int, int]:
            name = self._tenant[request.facts.id]
            return request.kv_tokens == 0, self._served[name], request.facts.id

        draft = Draft(view)
        run_in_order(draft, sorted(view.requests.values(), key=place)[:9])
        return draft.decision()


class Promoting:
    """Long prompts last, until `turn_s`; then first, by an order that wakes then."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, turn_s: float) -> None:
        self._turn_s = turn_s

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Asked again when the order turns."""
        sign = 1 if view.now_s < self._turn_s else -1
        order = PriorityOrder(
            lambda table: sign * table.prompt_tokens.astype(float),
            rule(chunked_prefill=True, max_num_seqs=1),
        )
        return Decision(priority_order=order, wake_s=self._turn_s if sign > 0 else None)


class NotedEdf(Edf):
    """Writes down how many tokens an answer has when it is finished, in a file, a line each."""

    subscribes = frozenset({Finished})

    def __init__(self, *, path: str, rule: ContinuousBatching, displaces: str | None) -> None:
        super().__init__(rule=rule, displaces=displaces)
        self._path = Path(path)

    def observe(self, event: Event) -> None:
        """Write it."""
        assert isinstance(event, Finished)
        with self._path.open("a") as file:
            file.write(f"{event.output_tokens}\n")
