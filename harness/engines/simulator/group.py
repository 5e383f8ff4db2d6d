"""Groups on the virtual clock: their requests, their KV and what they compute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

import numpy as np

from harness.core.kv_ledger import KvLedger
from harness.core.prefix_ledger import PrefixLedger
from harness.costs.model import TableCosts
from harness.costs.profiles import Received
from harness.engines.host_memory import GroupHost, HostMemory
from harness.engines.live import LiveState
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.rules import group_kv
from harness.engines.state import HOST, SWAP_BYTES, SWAP_S, SWAPS, Ints
from harness.engines.told_keys import ToldKeys
from harness.interface.decisions import Batch, PreemptionMode, PriorityOrder, Reservation
from harness.interface.entities import (
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.tables import RequestTable
from harness.interface.views import RequestView
from harness.workloads.prefixes import Prefixes

LEAST_SHARE = 1e-9
"""Less of the SMs than this is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveRequest:
    """One unfinished request in one group. Frozen towards policies; its group lets it grow.

    `context_tokens` are prompt plus generated so far, `kv_tokens` those with KV on the GPU,
    `swapped_tokens` with KV in host memory; the same is in the arrays, which replicas, tables and
    records read. `_last_tokens` is the context with which it is answered.
    """

    facts: Request
    context_tokens: int
    kv_tokens: int
    swapped_tokens: int
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
    def reservation(self) -> Reservation | None:
        """KV promised to it."""
        if not self._group.is_compiled:
            return self._group.kv.reservation(self.facts.id)
        aside = int(self._state.arrays.reserved[self.facts.id])
        return Reservation(aside) if aside and self.kv_tokens else None

    @property
    def gpu_s(self) -> float:
        """GPU time attained."""
        return float(self._state.arrays.gpu_s[self.facts.id])

    @property
    def is_running(self) -> bool:
        """In a batch in flight now."""
        in_flight = self._group.in_flight
        return bool(in_flight) and any(self.facts.id in batch.tokens for batch in in_flight)


def tokens_left(request: LiveRequest) -> int:
    """How many tokens it will yet produce: for engines only."""
    return request._last_tokens - request.context_tokens


# How a group lets its requests grow: assignment to the attribute is refused, to its slot it is not.
_set_context: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["context_tokens"].__set__
_set_kv: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["kv_tokens"].__set__
_set_swapped: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["swapped_tokens"].__set__


@dataclass(slots=True)
class LiveGroup:
    """One group: its requests, its KV and what it is computing.

    Requests land in `inbox`. Stepped decision by decision, they become `members`; compiled code
    counts what they produce, and the views of those `behind` follow when something looks. Under a
    priority order they go into the arrays of compiled code, where the group has the `number`, and
    views are built when something looks. Until `busy_until_s` what it has computed is recorded.
    `is_stepped` says that it has been stepped, `wake_s` when its policy asked last to be asked
    again; `told` has the keys of its requests under the order that it follows. Taking requests in
    takes `received_s`, by service, and those that have come since its last iteration began take
    `receiving_s` together.
    """

    group: Group
    services: Mapping[ServiceId, Service]
    kv: KvLedger
    factory: "GroupFactory"
    state: LiveState
    host: GroupHost
    compiled: CompiledGroups
    number: int
    received_s: Mapping[ServiceId, Received]
    receiving_s: float = 0.0
    loads_from_s: float = np.inf
    ready_s: float = np.inf
    stop_s: float = np.inf
    wake_s: float | None = None
    busy_until_s: float = 0.0
    is_stepped: bool = False
    inbox: list[int] = field(default_factory=list)
    members: dict[RequestId, LiveRequest] = field(default_factory=dict)
    behind: dict[int, tuple[Sequence[LiveRequest], Ints]] = field(default_factory=dict)
    in_flight: tuple[Batch, ...] = ()
    priority_order: PriorityOrder | None = None
    is_compiled: bool = False
    told: ToldKeys = field(default_factory=ToldKeys)

    @property
    def is_ready(self) -> bool:
        """Loaded, and not on its way out."""
        return self.ready_s <= self.state.now_s and not self.is_stopping

    @property
    def is_stopping(self) -> bool:
        """It ends at `stop_s`, when its iteration in flight does."""
        return self.stop_s < np.inf

    def wakes_by(self, now_s: float) -> bool:
        """Whether its policy wants to be asked by now: timers of earlier decisions are void."""
        return self.wake_s is not None and self.wake_s <= now_s

    @property
    def window(self) -> "GroupWindow":
        """What policies may see of it."""
        return GroupWindow(self)

    def view(self, request: int) -> LiveRequest:
        """One of its requests as it is now."""
        arrays, facts = self.state.arrays, self.state.facts(request)
        prompt = facts.prompt_tokens
        return LiveRequest(
            facts,
            prompt + int(arrays.generated[request]),
            int(arrays.kv[request]),
            int(arrays.swap[request, HOST]) if len(arrays.swap) else 0,
            prompt + int(arrays.output[request]),
            self.state,
            self,
        )

    def absorb(self) -> None:
        """Requests of the inbox become members, with an empty account each.

        Done only when a view is read: a group under a priority order may never need it.
        """
        if self.is_compiled or not self.inbox:
            return
        newest = next(reversed(self.members), -1)
        for request in self.inbox:
            view = self.view(request)
            self.members[view.facts.id] = view
            self.kv.open(view.facts, view.generated_tokens)
        if min(self.inbox) < newest or self.inbox != sorted(self.inbox):
            self.members = dict(sorted(self.members.items()))
        self.inbox.clear()

    def preempt(self, request: RequestId, how: PreemptionMode = PreemptionMode.RECOMPUTE) -> None:
        """A member's KV is dropped or swapped out; the ledger is told by the decision as a whole.

        A request that is preempted already loses what it has in host memory.
        """
        arrays, view = self.state.arrays, self.members[request]
        if view.swapped_tokens:
            self._keep_in_host(view, 0)
            return
        if how is PreemptionMode.SWAP:
            self._copy(view, view.kv_tokens)
            self._keep_in_host(view, view.kv_tokens)
            self.state.swap_rows()[request, SWAPS] += 1
        _set_kv(view, 0)
        arrays.kv[request] = 0
        arrays.preemptions[request] += 1
        arrays.preempted_at_s[request] = self.state.now_s

    def bring_back(self, request: RequestId) -> None:
        """A member's KV comes back from host memory; the ledger knows."""
        view = self.members[request]
        self._copy(view, view.swapped_tokens)
        _set_kv(view, view.swapped_tokens)
        self.state.arrays.kv[request] = view.swapped_tokens
        self._keep_in_host(view, 0)

    def find(self, request: RequestId, tokens: int) -> None:
        """A member that begins finds so much of its context cached; the ledger knows."""
        arrays, view = self.state.arrays, self.members[request]
        _set_kv(view, tokens)
        arrays.kv[request] = tokens
        if np.isnan(arrays.started_s[request]):
            arrays.cached[request] = tokens

    def _copy(self, view: LiveRequest, tokens: int) -> None:
        """KV of so many tokens moves between the GPUs and host memory."""
        row, count_bytes = self.state.swap_rows()[view.facts.id], self._bytes(view, tokens)
        row[SWAP_BYTES] += count_bytes
        row[SWAP_S] += self.host.copy(self.state.now_s, count_bytes)

    def _keep_in_host(self, view: LiveRequest, tokens: int) -> None:
        """KV of so many tokens is in host memory from now on."""
        self.host.used_bytes += self._bytes(view, tokens - view.swapped_tokens)
        _set_swapped(view, tokens)
        self.state.swap_rows()[view.facts.id, HOST] = tokens

    def _bytes(self, view: LiveRequest, tokens: int) -> int:
        return tokens * self.kv.services[view.facts.service].kv_bytes_per_token

    def let_go(self, request: RequestId) -> None:
        """A member goes elsewhere: what it holds is lost, also in host memory."""
        self.refresh()
        view = self.members[request]
        if view.kv_tokens or view.swapped_tokens:
            self.preempt(request)
        self.kv.close(request)
        del self.members[request]

    def close(self, request: RequestId) -> None:
        """A member is answered."""
        self.kv.close(request)
        self.told.forget(request)
        self.state.arrays.kv[request] = 0
        del self.members[request]

    def note_behind(self, views: Sequence[LiveRequest], ids: Ints) -> None:
        """Compiled code has let these members grow; their views follow when something looks."""
        self.behind[id(ids)] = views, ids

    def refresh(self) -> None:
        """The views of members are as compiled code has left them."""
        arrays = self.state.arrays
        for views, ids in self.behind.values():
            contexts = (arrays.prompt[ids] + arrays.generated[ids]).tolist()
            for view, context, kv in zip(views, contexts, arrays.kv[ids].tolist(), strict=True):
                _set_context(view, context)
                _set_kv(view, kv)
        self.behind.clear()

    def open_ids(self) -> Ints:
        """Unfinished requests here, ascending."""
        count = len(self.members) + len(self.inbox)
        known = np.fromiter(chain(self.members, self.inbox), np.int64, count)
        if self.is_compiled:
            known = np.concatenate([known, self.compiled.open_ids(self.number)])
        # Members are in order.
        return np.sort(known) if self.is_compiled or self.inbox else known


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A group as policies see it: no way leads from here to what requests will produce."""

    _live: "LiveGroup"

    @property
    def now_s(self) -> float:
        """Time of the decision."""
        return self._live.state.now_s

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
        live = self._live
        if live.inbox:
            live.absorb()
        return live.kv

    @property
    def free_host_bytes(self) -> int:
        """Room for KV in host memory."""
        return self._live.host.capacity_bytes - self.used_host_bytes

    @property
    def used_host_bytes(self) -> int:
        """KV in host memory; compiled code keeps its own account."""
        live = self._live
        return live.compiled.host_bytes(live.number) if live.is_compiled else live.host.used_bytes

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at the same time."""
        return self._live.factory.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens that one iteration may compute."""
        return self._live.factory.max_num_batched_tokens

    @property
    def requests(self) -> Mapping[RequestId, RequestView]:
        """Unfinished requests here, oldest first."""
        live = self._live
        if live.is_compiled:
            return {RequestId(i): live.view(i) for i in live.open_ids().tolist()}
        live.absorb()
        if live.behind:
            live.refresh()
        return MappingProxyType(live.members)

    @property
    def table(self) -> RequestTable:
        """The same as columns."""
        return self._live.state.table(self._live.open_ids())

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """Batches being computed."""
        return self._live.in_flight

    @property
    def free_share(self) -> float:
        """What batches in flight leave of the shares of the SMs that may be given out."""
        most = self._live.factory.most_share
        used = sum(batch.gpu_share for batch in self._live.in_flight)
        return most - used if used < most - LEAST_SHARE else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFactory:
    """Makes the groups of a run, each with all the KV that its services leave free.

    `by_number` has the last group of each number. Where `prefixes` are given, they are cached.
    """

    state: LiveState
    services: Mapping[ServiceId, Service]
    costs: TableCosts
    max_num_seqs: int
    max_num_batched_tokens: int
    most_share: float
    host_memory: HostMemory
    swap_overlaps: bool
    compiled: CompiledGroups
    prefixes: Prefixes | None
    by_number: dict[int, LiveGroup] = field(default_factory=dict)

    def group(self, group: Group) -> LiveGroup:
        """An empty group that has not loaded."""
        degree = group.tensor_parallel
        live = LiveGroup(
            group=group,
            services={service: self.services[service] for service in sorted(group.services)},
            kv=self.ledger(group),
            factory=self,
            state=self.state,
            compiled=self.compiled,
            number=self.compiled.reserve(),
            host=self.host_memory.of_group(degree, overlaps=self.swap_overlaps),
            received_s={it: self.costs.received_s(it, degree) for it in sorted(group.services)},
        )
        self.by_number[live.number] = live
        return live

    def home_of(self, request: int) -> GroupId:
        """The group in which compiled code has or had a request."""
        return self.by_number[int(self.state.arrays.group[request])].group.id

    def ledger(self, group: Group) -> KvLedger:
        """An empty ledger of a group's KV: bytes as the costs count them, for all its services.

        Raises ValueError where their blocks differ in tokens, and where prefixes are cached and
        there are several services.
        """
        kv = group_kv(self.costs, group.services, group.tensor_parallel)
        services = {
            service: replace(self.services[service], kv_bytes_per_token=token_bytes)
            for service, token_bytes in kv.token_bytes.items()
        }
        if self.prefixes is None:
            return KvLedger(
                capacity_bytes=kv.capacity_bytes, services=services, block_tokens=kv.block_tokens
            )
        return PrefixLedger(
            capacity_bytes=kv.capacity_bytes,
            services=services,
            block_tokens=kv.block_tokens,
            contents=self.prefixes.contents(kv.block_tokens),
        )
