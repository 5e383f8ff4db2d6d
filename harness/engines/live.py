"""What both engines know of a run while it goes on, and what dispatch and placement see of it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.engines.backends import Backends
from harness.engines.state import CONTEXT, SWAP, Floats, Ints, RequestArrays, request_table
from harness.interface.apps import OUTSIDE
from harness.interface.decisions import Deployment
from harness.interface.entities import (
    Cluster,
    Content,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.graph import Edges
from harness.interface.tables import CallTable, RequestTable, attained_s
from harness.interface.views import GroupView, RequestView
from harness.workloads.prefixes import Prefixes
from harness.workloads.workload import Workload

FEW = 16
"""Requests that are looked up one by one."""


@dataclass(slots=True)
class LiveState:
    """Everything about requests that all groups share.

    `waits` counts the answers that each request still waits for. `arrays.arrival_s` is infinite for
    waiting ones. `known_s` is when the application of each request is known to have come in.
    """

    workload: Workload
    cluster: Cluster
    arrays: RequestArrays
    waits: Ints
    predicted: dict[int, LengthPrediction] = field(default_factory=dict)
    deployment: Deployment = field(default_factory=lambda: Deployment(()))
    now_s: float = 0.0
    backends: Backends | None = None
    known_s: Floats = field(init=False)
    prefixes: Prefixes = field(init=False)
    _facts: dict[int, Request] = field(default_factory=dict)
    _has_intake: bool = field(init=False)
    _predicted_tokens: Floats = field(init=False)
    _services: tuple[ServiceId, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is predicted yet."""
        names = (service.id for service in self.workload.services)
        self._services = tuple(name for name in names if name != OUTSIDE)
        self.prefixes = Prefixes.of(self.workload)
        self._predicted_tokens = np.full(len(self.arrays.prompt), np.nan)
        self._has_intake = bool(self.arrays.intake_s.any())
        self.known_s = self._when_known() if self._has_intake else self.workload.arrival_s

    @property
    def come_s(self) -> Floats:
        """When each request reaches its scheduler; infinite for those that were not sent."""
        arrival_s = self.arrays.arrival_s
        return arrival_s + self.arrays.intake_s if self._has_intake else arrival_s

    def _when_known(self) -> Floats:
        """With intake, an application is known when its first request reaches a scheduler."""
        load, come_s = self.workload, self.come_s
        first_s = np.full(int(load.app.max(initial=-1)) + 1, np.inf)
        np.minimum.at(first_s, load.app, come_s)
        known_s = np.maximum(first_s[load.app], load.arrival_s)
        return np.where(np.isfinite(come_s), come_s, known_s)

    def swap_rows(self) -> Floats:
        """What requests have and had in host memory; the rows are made when first needed."""
        if not len(self.arrays.swap):
            rows = np.zeros((len(self.arrays.prompt), SWAP))
            self.arrays = self.arrays._replace(swap=rows)
        return self.arrays.swap

    def keep_cached(self) -> None:
        """Keep from now on what requests find cached."""
        contexts = np.zeros(len(self.arrays.prompt), CONTEXT)
        if len(self.workload.prefix):
            contexts["prefix"] = self.workload.prefix
            contexts["prefix_tokens"] = self.workload.prefix_tokens
        self.arrays = self.arrays._replace(contexts=contexts, cached=contexts["cached"])

    def facts(self, request: int) -> Request:
        """What is known of a request that has arrived, looked up once until it is answered."""
        found = self._facts.get(request)
        if found is None:
            arrival_s = self.arrays.arrival_s.item(request)
            found = self._facts[request] = self.workload.facts_at(request, arrival_s)
        return found

    def facts_of(self, requests: Ints) -> Iterator[Request]:
        """The same of several; those of many would fill the memory."""
        if len(requests) <= FEW:
            return map(self.facts, requests.tolist())
        return self.workload.facts_of(requests, self.arrays.arrival_s[requests])

    def forget_facts(self, requests: Ints) -> None:
        """These are answered."""
        if self._facts:
            for request in requests.tolist():
                self._facts.pop(request, None)

    def table(self, ids: Ints) -> RequestTable:
        """The columns that policies may see, for these ids (ascending)."""
        known = self.workload.table(ids, self.predicted_tokens(ids), self._services)
        return request_table(self.arrays, ids, known)

    def predict(self, request: int, length: LengthPrediction) -> None:
        """A prediction is known from now on."""
        self.predicted[request] = length
        self._predicted_tokens[request] = length.mean_tokens

    def predicted_tokens(self, ids: Ints) -> NDArray[np.float64]:
        """Mean of what is predicted for each of these, NaN where nothing is."""
        return self._predicted_tokens[ids]


_FACTS = {
    column.name: np.int64 if column.type == Ints else np.float64
    for column in fields(RequestTable)
    if column.name in Request.__slots__ and column.name != "service"
}


def table_of(views: Collection[RequestView], services: Iterable[ServiceId]) -> RequestTable:
    """What policies may see of these views, ascending by id, of a group of these services."""
    facts, numbers = [view.facts for view in views], {name: at for at, name in enumerate(services)}
    means = [np.nan if it.predicted is None else it.predicted.mean_tokens for it in views]
    # None becomes NaN.
    known: dict[str, Any] = {
        name: np.array([getattr(it, name) for it in facts], kind) for name, kind in _FACTS.items()
    }
    return RequestTable(
        generated_tokens=np.array([view.generated_tokens for view in views], np.int64),
        kv_tokens=np.array([view.kv_tokens for view in views], np.int64),
        gpu_s=attained_s(np.array([view.gpu_s for view in views], np.float64)),
        predicted_mean_tokens=np.array(means, np.float64),
        service=np.array([numbers[it.service] for it in facts], np.int64),
        services=tuple(numbers),
        **known,
    )


class SeenGroup(Protocol):
    """A group of the deployment, as far as the cluster's view shows it."""

    @property
    def window(self) -> GroupView:
        """What policies may see of it."""

    @property
    def is_stopping(self) -> bool:
        """Whether it is on its way out."""

    def open_ids(self) -> Ints:
        """Unfinished requests here that have arrived, ascending."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """What dispatch and placement see."""

    _state: LiveState
    services: Mapping[ServiceId, Service]
    _groups: Mapping[GroupId, SeenGroup]

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
        return {g: live.window for g, live in self._groups.items() if not live.is_stopping}

    @property
    def backlog(self) -> Mapping[ServiceId, int]:
        """Unfinished requests per service, those to come not counted."""
        return {service: len(self._unfinished_ids(service)) for service in self.services}

    def unfinished(self, service: ServiceId) -> RequestTable:
        """Unfinished requests of a service that have arrived."""
        return self._state.table(self._unfinished_ids(service))

    def arrived_after(self, since_s: float) -> tuple[RequestTable, Floats]:
        """Requests that have arrived after a time, and when they were answered."""
        arrays, now_s, come_s = self._state.arrays, self._state.now_s, self._state.come_s
        here = (come_s > since_s) & (come_s <= now_s)
        if (apps := self._state.workload.apps) is not None:
            here &= ~apps.outside
        ids = np.flatnonzero(here)
        finished_s = arrays.finished_s[ids]
        return self._state.table(ids), np.where(finished_s <= now_s, finished_s, np.nan)

    def prompt_blocks(self, request: RequestId, block_tokens: int) -> list[Content]:
        """Names of the full blocks of a prompt that has arrived."""
        if not self._state.come_s[request] <= self._state.now_s:
            raise ValueError(f"r{request} has not arrived: its prompt is not known")
        tokens = self._state.arrays.prompt.item(request)
        return self._state.prefixes.blocks(request, tokens // block_tokens, block_tokens)

    def _unfinished_ids(self, service: ServiceId) -> Ints:
        arrays = self._state.arrays
        here = self._is_of(service) & (self._state.come_s <= self._state.now_s)
        return np.flatnonzero(here & np.isnan(arrays.finished_s))

    def _is_of(self, service: ServiceId) -> NDArray[np.bool_]:
        calls: NDArray[np.bool_]
        calls = self._state.workload.service == list(self.services).index(service)
        return calls

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
        """Calls of applications that have come in which have not arrived themselves.

        None where calls come as their application unfolds.
        """
        state = self._state
        if state.workload.apps is not None:
            return np.zeros(len(state.workload), np.bool_)
        known: NDArray[np.bool_] = state.known_s <= state.now_s
        return known & (state.come_s > state.now_s)
