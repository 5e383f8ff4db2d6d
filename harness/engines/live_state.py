"""The mutable state of a run and the read-only windows on it. No scheduling, no time-keeping."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.state import Ints, RequestArrays
from harness.interface.decisions import Batch, Deployment, PriorityOrder, Reservation
from harness.interface.entities import (
    AppId,
    Cluster,
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    ResourceId,
    Service,
    ServiceId,
)
from harness.interface.graph import Edges
from harness.interface.kv_ledger import KvLedger
from harness.interface.views import AppView, CallTable, GroupView, RequestTable, RequestView
from harness.workloads.workload import Workload


@dataclass(slots=True)
class LiveState:
    """Everything about requests that all groups share.

    `arrived` counts the requests dispatched that wait for nobody; `waits` has the answers that each
    request still waits for. `arrays.arrival_s` is infinite for those that wait.
    """

    workload: Workload
    cluster: Cluster
    arrays: RequestArrays
    waits: Ints
    predicted: dict[int, LengthPrediction] = field(default_factory=dict)
    deployment: Deployment = field(default_factory=lambda: Deployment(()))
    groups: dict[GroupId, "LiveGroup"] = field(default_factory=dict)
    arrived: int = 0
    now_s: float = 0.0

    def facts(self, request: int) -> Request:
        """What is known of a request that has arrived."""
        facts = self.workload.facts(request)
        arrival_s = float(self.arrays.arrival_s[request])
        return facts if arrival_s == facts.arrival_s else replace(facts, arrival_s=arrival_s)

    def table(self, ids: Ints) -> RequestTable:
        """The columns that policies may see, for these ids (ascending)."""
        arrays, workload = self.arrays, self.workload
        return RequestTable(
            id=ids,
            arrival_s=arrays.arrival_s[ids],
            prompt_tokens=arrays.prompt[ids],
            generated_tokens=arrays.generated[ids],
            kv_tokens=arrays.kv[ids],
            max_output_tokens=workload.max_output_tokens[ids],
            deadline_s=workload.deadline_s[ids],
            predicted_mean_tokens=self.predicted_tokens(ids),
        )

    def predicted_tokens(self, ids: Ints) -> NDArray[np.float64]:
        """Mean of what is predicted for each of these, NaN where nothing is."""
        if not self.predicted:
            return np.full(len(ids), np.nan)
        known = [self.predicted.get(i) for i in ids.tolist()]
        return np.array([np.nan if k is None else k.mean_tokens for k in known], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LiveRequest:
    """One unfinished request in one group. Frozen towards policies; its group lets it grow.

    `context_tokens` are prompt plus generated so far, `kv_tokens` those with KV on the GPU; the
    same is in the arrays, which replicas, tables and records read. `_last_tokens` is the context
    with which it is answered.
    """

    facts: Request
    context_tokens: int
    kv_tokens: int
    _last_tokens: int
    _state: LiveState
    _group: "LiveGroup"

    @property
    def predicted(self) -> LengthPrediction | None:
        """None until a prediction is ready."""
        return self._state.predicted.get(self.facts.id)

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far."""
        return self.context_tokens - self.facts.prompt_tokens

    @property
    def swapped_tokens(self) -> int:
        """None: this engine drops preempted KV."""
        return 0

    @property
    def reservation(self) -> Reservation | None:
        """KV promised to it; nothing is under a priority order."""
        return (
            None if self._group.replica is not None else self._group.kv.reservation(self.facts.id)
        )

    @property
    def gpu_s(self) -> float:
        """GPU time attained."""
        return float(self._state.arrays.gpu_s[self.facts.id])

    @property
    def is_running(self) -> bool:
        """In a batch in flight now."""
        in_flight = self._group.in_flight
        return bool(in_flight) and any(self.facts.id in batch.tokens for batch in in_flight)


# How a group lets its requests grow: assignment to the attribute is refused, to its slot it is not.
_set_context: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["context_tokens"].__set__
_set_kv: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["kv_tokens"].__set__


@dataclass(slots=True)
class LiveGroup:
    """One group: its requests, its KV and what it is computing.

    Requests land in `inbox`. Stepped decision by decision, they become `members`; under a priority
    order they go into the `replica`, the arrays of compiled code; views are built for who looks.
    """

    group: Group
    services: Mapping[ServiceId, Service]
    kv: KvLedger
    max_num_seqs: int
    max_num_batched_tokens: int
    state: LiveState
    ready_s: float = np.inf
    stop_s: float = np.inf
    inbox: list[int] = field(default_factory=list)
    members: dict[RequestId, LiveRequest] = field(default_factory=dict)
    in_flight: tuple[Batch, ...] = ()
    priority_order: PriorityOrder | None = None
    replica: ReplicaState | None = None

    @property
    def now_s(self) -> float:
        """Time of the decision."""
        return self.state.now_s

    @property
    def free_share(self) -> float:
        """All of the SMs or none: this engine runs one batch at a time."""
        return 0.0 if self.in_flight else 1.0

    @property
    def requests(self) -> Mapping[RequestId, RequestView]:
        """Unfinished requests here, oldest first."""
        if self.replica is not None:
            return {RequestId(i): self._view(i) for i in self.open_ids().tolist()}
        self.absorb()
        return MappingProxyType(self.members)

    @property
    def table(self) -> RequestTable:
        """The same as columns."""
        return self.state.table(self.open_ids())

    @property
    def is_ready(self) -> bool:
        """Loaded, and not on its way out."""
        return self.ready_s <= self.state.now_s and not self.is_stopping

    @property
    def is_stopping(self) -> bool:
        """It ends at `stop_s`, when its iteration in flight does."""
        return self.stop_s < np.inf

    @property
    def window(self) -> "GroupWindow":
        """What policies may see of it."""
        return GroupWindow(self)

    def _view(self, request: int) -> LiveRequest:
        arrays, facts = self.state.arrays, self.state.facts(request)
        prompt = facts.prompt_tokens
        return LiveRequest(
            facts,
            prompt + int(arrays.generated[request]),
            int(arrays.kv[request]),
            prompt + int(arrays.output[request]),
            self.state,
            self,
        )

    def absorb(self) -> None:
        """Requests of the inbox become members, with an empty account each.

        Done only when somebody looks: a group under a priority order may never need it.
        """
        if self.replica is not None or not self.inbox:
            return
        newest = next(reversed(self.members), -1)
        for request in self.inbox:
            view = self._view(request)
            self.members[view.facts.id] = view
            self.kv.open(view.facts)
        if min(self.inbox) < newest or self.inbox != sorted(self.inbox):
            self.members = dict(sorted(self.members.items()))
        self.inbox.clear()

    def preempt(self, request: RequestId) -> None:
        """Drop the KV of a member."""
        arrays = self.state.arrays
        self.kv.preempt(request)
        _set_kv(self.members[request], 0)
        arrays.kv[request] = 0
        arrays.preemptions[request] += 1
        arrays.preempted_at_s[request] = self.state.now_s

    def close(self, request: RequestId) -> None:
        """A member is answered."""
        self.kv.close(request)
        self.state.arrays.kv[request] = 0
        del self.members[request]

    def produce(
        self, batch: Batch, iterations: int, seconds: float, first_s: float
    ) -> tuple[dict[RequestId, int], list[RequestId]]:
        """A batch of members ends now, computed so many times; first tokens came at `first_s`.

        Returns the tokens that each has produced, and who is answered: those whose answer needs
        fewer iterations have gone on as padding. The KV of the first iteration is in the ledger
        since the launch.
        """
        members, arrays = self.members, self.state.arrays
        kv_tokens, generated_tokens = arrays.kv, arrays.generated
        made, answered = dict.fromkeys(batch.tokens, iterations), []
        for request, computed in batch.tokens.items():
            view = members[request]
            prompt, context = view.facts.prompt_tokens, view.context_tokens
            tokens = min(iterations, view._last_tokens - context)
            held = view.kv_tokens + computed + tokens - 1
            _set_kv(view, held)
            kv_tokens[request] = held
            if held < context:
                made[request] = 0
                continue
            if context == prompt:
                arrays.first_token_s[request] = first_s
            if tokens < iterations:
                made[request] = tokens
            context += tokens
            _set_context(view, context)
            generated_tokens[request] = context - prompt
            if context == view._last_tokens:
                answered.append(request)
        arrays.gpu_s[np.fromiter(made, np.int64, len(made))] += seconds
        if iterations > 1:
            self.kv.grow_all({request: tokens - 1 for request, tokens in made.items()})
        return made, answered

    def tokens_left(self, requests: Iterable[RequestId]) -> list[int]:
        """How many tokens each of these members will yet produce: for engines only."""
        members = self.members
        return [members[r]._last_tokens - members[r].context_tokens for r in requests]

    def open_ids(self) -> Ints:
        """Unfinished requests here that have arrived, ascending."""
        known = np.array([*self.members, *self.inbox], np.int64)
        if self.replica is not None:
            known = np.concatenate([known, self.replica.open_ids()])
        return np.sort(known[self.state.arrays.arrival_s[known] <= self.state.now_s])


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A group as policies see it: no way leads from here to what requests will produce."""

    _live: LiveGroup

    @property
    def now_s(self) -> float:
        """Time of the decision."""
        return self._live.now_s

    @property
    def group(self) -> Group:
        """GPUs and services."""
        return self._live.group

    @property
    def services(self) -> Mapping[ServiceId, Service]:
        """Facts of the services loaded here."""
        return self._live.services

    @property
    def kv(self) -> KvLedger:
        """KV held and promised here."""
        self._live.absorb()
        return self._live.kv

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at the same time."""
        return self._live.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens that one iteration may compute."""
        return self._live.max_num_batched_tokens

    @property
    def requests(self) -> Mapping[RequestId, RequestView]:
        """Unfinished requests here, oldest first."""
        return self._live.requests

    @property
    def table(self) -> RequestTable:
        """The same as columns."""
        return self._live.table

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """Batches being computed."""
        return self._live.in_flight

    @property
    def free_share(self) -> float:
        """All of the SMs or none."""
        return self._live.free_share


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """What dispatch and placement see."""

    _state: LiveState
    services: Mapping[ServiceId, Service]

    @property
    def now_s(self) -> float:
        """Time of the decision."""
        return self._state.now_s

    @property
    def cluster(self) -> Cluster:
        """The machine."""
        return self._state.cluster

    @property
    def deployment(self) -> Deployment:
        """What is loaded or being loaded."""
        return self._state.deployment

    @property
    def groups(self) -> Mapping[GroupId, GroupView]:
        """Live groups of the deployment."""
        return {g: live.window for g, live in self._state.groups.items() if not live.is_stopping}

    @property
    def backlog(self) -> Mapping[ServiceId, int]:
        """Unfinished requests per service, those to come not counted."""
        return {service: len(self._unfinished_ids(service)) for service in self.services}

    @property
    def queued(self) -> Mapping[GroupId, int]:
        """Unfinished requests per group."""
        return {
            g: len(live.open_ids())
            for g, live in self._state.groups.items()
            if not live.is_stopping
        }

    def unfinished(self, service: ServiceId) -> RequestTable:
        """Unfinished requests of a service that have arrived."""
        return self._state.table(self._unfinished_ids(service))

    def _unfinished_ids(self, service: ServiceId) -> Ints:
        arrays = self._state.arrays
        here = self._is_of(service) & (arrays.arrival_s <= self._state.now_s)
        return np.flatnonzero(here & np.isnan(arrays.finished_s))

    def _is_of(self, service: ServiceId) -> NDArray[np.bool_]:
        calls: NDArray[np.bool_] = self._state.workload.service == self._index[service]
        return calls

    @property
    def _index(self) -> Mapping[ServiceId, int]:
        return {service: index for index, service in enumerate(self.services)}

    def to_come(self, service: ServiceId) -> CallTable:
        """Calls of a service that wait for others."""
        ids = np.flatnonzero(self._is_of(service) & self._waits())
        load, finished_s = self._state.workload, self._state.arrays.finished_s
        is_known = finished_s <= self._state.now_s
        known = load.edges.carried(np.where(is_known, load.output_tokens, 0))
        return CallTable(
            ids,
            (load.own_tokens + known)[ids],
            load.max_output_tokens[ids],
            self._state.predicted_tokens(ids),
        )

    @property
    def edges(self) -> Edges:
        """The pairs whose child is still to come."""
        edges, finished_s = self._state.workload.edges, self._state.arrays.finished_s
        kept = self._waits()[edges.child] & ~(finished_s[edges.parent] <= self._state.now_s)
        return Edges(edges.parent[kept], edges.child[kept], edges.carries[kept])

    def _waits(self) -> NDArray[np.bool_]:
        """Calls of applications that have come in which have not arrived themselves."""
        state = self._state
        known: NDArray[np.bool_] = state.workload.arrival_s <= state.now_s
        return known & (state.arrays.arrival_s > state.now_s)

    @property
    def apps(self) -> Mapping[AppId, AppView]:
        """None: this engine serves single requests."""
        return {}

    @property
    def warm(self) -> frozenset[ResourceId]:
        """None: this engine has no other backends."""
        return frozenset()
