"""Groups on the virtual clock: their requests, their KV and what they compute."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from harness.costs.model import TableCosts
from harness.engines.live import LiveState
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.window import GroupWindow
from harness.engines.state import Ints
from harness.interface.decisions import Batch, PriorityOrder, Reservation
from harness.interface.entities import (
    Group,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.kv_ledger import KvLedger
from harness.interface.tables import RequestTable
from harness.interface.views import RequestView


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
        """KV promised to it."""
        if self._group.replica is None:
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


# How a group lets its requests grow: assignment to the attribute is refused, to its slot it is not.
_set_context: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["context_tokens"].__set__
_set_kv: Callable[[LiveRequest, int], None] = LiveRequest.__dict__["kv_tokens"].__set__


@dataclass(slots=True)
class LiveGroup:
    """One group: its requests, its KV and what it is computing.

    Requests land in `inbox`. Stepped decision by decision, they become `members`; under a priority
    order they go into the `replica`, the arrays of compiled code; views are built for who looks.
    `is_stepped` says that it has been, `wake_s` when its policy asked last to be asked again.
    """

    group: Group
    services: Mapping[ServiceId, Service]
    kv: KvLedger
    max_num_seqs: int
    max_num_batched_tokens: int
    state: LiveState
    loads_from_s: float = np.inf
    ready_s: float = np.inf
    stop_s: float = np.inf
    wake_s: float | None = None
    is_stepped: bool = False
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
    def is_unused(self) -> bool:
        """Loaded and empty, and its policy has not been asked yet."""
        return self.is_ready and not (self.is_stepped or self.inbox or self.members)

    @property
    def is_stopping(self) -> bool:
        """It ends at `stop_s`, when its iteration in flight does."""
        return self.stop_s < np.inf

    def wakes_by(self, now_s: float) -> bool:
        """Whether its policy wants to be asked by now: timers of earlier decisions are void."""
        return self.wake_s is not None and self.wake_s <= now_s

    @property
    def window(self) -> GroupWindow:
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
        """A member's KV is dropped; the ledger is told by the decision as a whole."""
        arrays = self.state.arrays
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
        self, batch: Batch, iterations: int, seconds: float, first_s: float, *, goes_on: bool
    ) -> tuple[dict[RequestId, int], list[RequestId]]:
        """A batch of members ends now, computed so many times; first tokens came at `first_s`.

        Returns the tokens that each has produced, and who is answered: those whose answer needs
        fewer iterations have gone on as padding. The KV of the first iteration is in the ledger
        since the launch; where the batch `goes_on`, that of the next one enters it now.
        """
        members, arrays = self.members, self.state.arrays
        made, answered = dict.fromkeys(batch.tokens, iterations), []
        for request, computed in batch.tokens.items():
            view = members[request]
            context, last = view.context_tokens, view._last_tokens
            tokens = iterations if context + iterations <= last else last - context
            held = view.kv_tokens + computed + tokens - 1
            _set_kv(view, held)
            if held < context:
                made[request] = 0
                continue
            if context == view.facts.prompt_tokens:
                arrays.first_token_s[request] = first_s
            if tokens < iterations:
                made[request] = tokens
            context += tokens
            _set_context(view, context)
            if context == last:
                answered.append(request)
        count = len(made)
        ids, new = np.fromiter(made, np.int64, count), np.fromiter(made.values(), np.int64, count)
        arrays.generated[ids] += new
        # A prompt that is not whole yet has made none; all of what it computed is held.
        computed_tokens = np.fromiter(batch.tokens.values(), np.int64, count)
        arrays.kv[ids] += computed_tokens + np.maximum(new, 1) - 1
        arrays.gpu_s[np.fromiter(made, np.int64, len(made))] += seconds
        if goes_on:
            self.kv.grow_all(made)
        elif iterations > 1:
            self.kv.grow_all({request: tokens - 1 for request, tokens in made.items()})
        return made, answered

    def tokens_left(self, requests: Iterable[RequestId]) -> list[int]:
        """How many tokens each of these members will yet produce: for engines only."""
        views = [self.members[request] for request in requests]
        return [view._last_tokens - view.context_tokens for view in views]

    def open_ids(self) -> Ints:
        """Unfinished requests here that have arrived, ascending."""
        known = np.array([*self.members, *self.inbox], np.int64)
        if self.replica is not None:
            known = np.concatenate([known, self.replica.open_ids()])
        return np.sort(known[self.state.arrays.arrival_s[known] <= self.state.now_s])


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFactory:
    """Makes the groups of a run, each with all the KV that its services leave free."""

    state: LiveState
    services: Mapping[ServiceId, Service]
    costs: TableCosts
    max_num_seqs: int
    max_num_batched_tokens: int

    def group(self, group: Group) -> LiveGroup:
        """An empty group that has not loaded."""
        return LiveGroup(
            group=group,
            services={service: self.services[service] for service in sorted(group.services)},
            kv=self.ledger(group),
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            state=self.state,
        )

    def ledger(self, group: Group) -> KvLedger:
        """An empty ledger of a group's KV: bytes as the costs count them, for all its services.

        Raises ValueError where their blocks differ in tokens.
        """
        costs, tp = self.costs, group.tensor_parallel
        block_tokens = {service: costs.block_tokens(service) for service in sorted(group.services)}
        if len(set(block_tokens.values())) > 1:
            raise ValueError(f"{group.id} would have KV blocks of different tokens: {block_tokens}")
        services = {}
        for service, tokens in block_tokens.items():
            block_bytes = costs.kv_bytes([service], tp) // costs.kv_blocks(service, tp)
            facts = self.services[service]
            services[service] = replace(facts, kv_bytes_per_token=block_bytes // tokens)
        return KvLedger(
            capacity_bytes=costs.kv_bytes(group.services, tp),
            services=services,
            block_tokens=min(block_tokens.values()),
        )
