"""A group whose requests another engine holds: what its policy sees, and the asking of it.

The state is read from that engine's own request objects, so there is no second account of it that
could differ; only what the engine does not know (promises of KV, predictions) is kept here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Protocol

from harness.core.draft import after
from harness.core.fill import is_decode, one_batch
from harness.core.kv_ledger import KvLedger, ledger_of
from harness.engines.ask import ask_schedule, refuse_idling
from harness.engines.live import table_of
from harness.engines.overruns import overruns, within_promises
from harness.engines.told_keys import Heard, ToldKeys, by_key
from harness.interface.decisions import (
    Batch,
    Decision,
    PriorityOrder,
    Reservation,
    has_phases,
)
from harness.interface.entities import (
    Group,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.events import Arrived, Event, Finished, Iterated, Moved, Predicted
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView, RequestView

SUPPORTS = frozenset({Capability.PREDICTIONS, Capability.SHARED_GROUP, Capability.PROMISED_KV})
"""Whole SMs, preempted KV dropped, iteration-level batches.

Whether a length predictor exists is known to the system, not here."""

REPEATS = 4
"""Iterations that a repeatable decision is first held good for; twice as many each time after."""


class EngineRequest(Protocol):
    """What is read of the engine's own request, in tokens."""

    @property
    def num_tokens(self) -> int:
        """Prompt and generated."""

    @property
    def num_computed_tokens(self) -> int:
        """Those with KV."""


class ServedRequest:
    """One unfinished request. `gpu_s` is the GPU time attained."""

    __slots__ = ("_group", "_request", "facts", "gpu_s", "predicted")

    def __init__(self, facts: Request, request: EngineRequest, group: GroupView) -> None:
        """A view of the engine's request."""
        self.facts = facts
        self.predicted: LengthPrediction | None = None
        self.gpu_s = 0.0
        self._request = request
        self._group = group

    @property
    def context_tokens(self) -> int:
        """Prompt plus generated so far."""
        return self._request.num_tokens

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far."""
        return self._request.num_tokens - self.facts.prompt_tokens

    @property
    def kv_tokens(self) -> int:
        """Tokens with KV on the GPU."""
        return self._request.num_computed_tokens

    @property
    def swapped_tokens(self) -> int:
        """None: preempted KV is dropped."""
        return 0

    @property
    def reservation(self) -> Reservation | None:
        """KV promised to it."""
        return ledger_of(self._group).reservation(self.facts.id)

    @property
    def is_running(self) -> bool:
        """Never: policies are asked between iterations."""
        return False


@dataclass(slots=True)
class _Repeat:
    """A decision that holds for `left` more iterations, if nothing happens before `wake_s`.

    It was filled from the keys of a `version`. `unpaid` has the seconds of batches that have ended
    but are not yet in ledger and attained time, `begun` counts batches that have begun likewise.
    """

    decision: Decision
    left: int
    wake_s: float
    horizon: int
    version: int
    begun: int = 0
    unpaid: list[float] = field(default_factory=list)


def _untold(event: Event) -> None:
    """Where only the policy hears of events."""


class ServedGroup:
    """One group; asks its policy and keeps the ledger of KV.

    `tell` receives every event, for other listeners too; the policy gets those it hears. `told` has
    the keys of its priority order; the order by keys of a version is kept while they do not move.
    `wake_s` is when the policy wants to be asked again if nothing happens; None while a batch runs.
    """

    def __init__(
        self,
        *,
        policy: SchedulingPolicy,
        group: Group,
        services: Mapping[ServiceId, Service],
        kv: KvLedger,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        tell: Callable[[Event], None] = _untold,
        heard: Heard | None = None,
    ) -> None:
        """A group whose ledger `kv` is empty; groups that share the policy share `heard`.

        ValueError where the policy needs what is not.
        """
        if missing := policy.requires - SUPPORTS:
            lacking = ", ".join(sorted(c.value for c in missing))
            raise ValueError(f"{type(policy).__name__} needs what vLLM does not offer: {lacking}")
        self.policy, self.group = policy, group
        self.services, self._kv = services, kv
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.now_s, self.free_share = 0.0, 1.0
        self.wake_s: float | None = None
        self.in_flight: tuple[Batch, ...] = ()
        self.free_host_bytes = self.used_host_bytes = 0  # preempted KV is dropped
        self._tell = tell
        self._members: dict[RequestId, ServedRequest] = {}
        self.told, self.heard = ToldKeys(), heard or Heard()
        self._order: tuple[int, list[RequestView]] | None = None
        self._repeat: _Repeat | None = None
        # Wall-clock seconds of deciding last, of filling a priority order's batch included.
        self.took_s = 0.0
        # Whether the batch decided last computes its prompts as long as the longest.
        self.pads_prompts = False

    @property
    def kv(self) -> KvLedger:
        """KV held and promised here."""
        self._settle()
        return self._kv

    @property
    def requests(self) -> Mapping[RequestId, RequestView]:
        """Unfinished requests here, lowest id first."""
        return MappingProxyType(self._members)

    @property
    def table(self) -> RequestTable:
        """The same requests as columns."""
        return table_of(self._members.values(), self.services)

    def tell(self, event: Event) -> None:
        """Report what happened."""
        self._tell(event)
        if type(event) in self.policy.subscribes:
            self.policy.observe(event)
            self.heard.note(event)

    def hear(self, event: Event) -> None:
        """Something has happened elsewhere: what the policy knows may have changed."""
        if type(event) in self.policy.subscribes:
            self.look_again()
            self.policy.observe(event)
            self.heard.note(event)

    def open(self, facts: Request, request: EngineRequest, *, moved: bool = False) -> None:
        """A request has come in, or has `moved` here."""
        newest = next(reversed(self._members), RequestId(-1))
        self._members[facts.id] = ServedRequest(facts, request, self)
        if facts.id < newest:
            self._members = dict(sorted(self._members.items()))
        self.kv.open(facts, request.num_tokens - facts.prompt_tokens)
        self._repeat = None
        self._order = None
        self.told.promotions.come(facts.id)
        kind = Moved if moved else Arrived
        self.tell(kind(self.now_s, facts, self.group.id))

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A prediction is ready; it may be late."""
        if request in self._members:
            self._members[request].predicted = length
            self.look_again()
            self.tell(Predicted(self.now_s, request, length))

    def close(self, request: RequestId) -> None:
        """A request is gone, answered or not."""
        self.kv.close(request)
        self.told.forget(request)
        self._repeat = None
        del self._members[request]

    def decide(self, now_s: float) -> Decision:
        """The policy's decision, with the batch that a priority order means filled in.

        Raises IllegalDecision when it breaks a rule or leaves requests waiting for ever.
        """
        self.now_s = now_s
        self.took_s = 0.0
        if not self._members:
            return Decision()
        repeat = self._repeat
        if repeat is not None and repeat.left > 0 and self._holds(repeat):
            repeat.left -= 1
            return repeat.decision
        self._settle()
        decision, self.took_s = ask_schedule(self.policy, self, self, supports=SUPPORTS)
        priority_order = decision.priority_order
        self.pads_prompts = priority_order is not None and priority_order.rule.pads_prompts
        if priority_order is not None:
            started_s = perf_counter()
            order, told = self._in_order(priority_order), self.told
            decision = one_batch(
                self,
                priority_order,
                order,
                told.reserved,
                decision.wake_s,
                ran_s=told.ran_s,
                moves=told.moves,
            )
            decision = told.until_due(decision)
            self.took_s += perf_counter() - started_s
        else:
            self.told.order = None
        self._note_repeat(decision, stands=self._stands(priority_order, decision))
        refuse_idling(self.policy, self, decision)
        return decision

    def _stands(self, priority_order: PriorityOrder | None, decision: Decision) -> bool:
        """Whether an order may mean the same batch again; by phase, its decisions say so."""
        if priority_order is None or has_phases(self.services, priority_order):
            return False
        if priority_order.displaces is None and self._order is not None:
            return True
        # Others may come first, or take slots, but where all are in the batch and stay in order.
        # Slots count whole contexts, which may exceed the KV where parts of them are shared.
        runs_all = sum(len(batch.tokens) for batch in decision.launch) == len(self._members)
        return runs_all and self.told.moves_alike and not self.kv.caches

    def _holds(self, repeat: _Repeat) -> bool:
        """Whether neither time nor keys have ended a decision that is repeated."""
        is_same = repeat.version == self.told.version
        return (
            is_same
            and self.now_s < repeat.wake_s
            and not self.told.are_stale(self.heard, self.now_s)
        )

    def _note_repeat(self, decision: Decision, *, stands: bool) -> None:
        """Remember a decision that will be the same for some iterations if nothing happens.

        Steady ones are by promise. So are those of a priority order when all that hold KV decode
        and no request gives way: they have a block each as often as the ledger says, the newcomers'
        order, slots and budget stay, and the KV that they lack only gets scarcer.
        """
        before, self._repeat = self._repeat, None
        if not (stands or decision.steady) or decision.preempt or decision.reserve:
            return
        for batch in decision.launch:
            views = [self._members[request] for request in batch.tokens]
            if not all(map(is_decode, views)) or (stands and not self._are_all_holders(views)):
                return
            if stands and self.kv.caches and len(self._members) > len(views):
                # What runs may be what the next one begins with.
                return
            horizon = REPEATS if before is None else 2 * before.horizon
            if decision.at_most is not None:
                horizon = min(horizon, decision.at_most)
            if stands:
                horizon = within_promises(views, self.kv, horizon)
            if self.kv.fits(dict.fromkeys(batch.tokens, horizon)):
                wake_s = inf if decision.wake_s is None else decision.wake_s
                version = self.told.version
                self._repeat = _Repeat(decision, horizon - 1, wake_s, horizon, version)

    def _are_all_holders(self, views: list[ServedRequest]) -> bool:
        return len(views) == sum(view.kv_tokens > 0 for view in self._members.values())

    def _settle(self) -> None:
        """Bring ledger and attained time up to the iterations that a repeated decision had."""
        repeat = self._repeat
        if repeat is None or not (repeat.begun or repeat.unpaid):
            return
        for batch in repeat.decision.launch:
            self._kv.grow_all(dict.fromkeys(batch.tokens, repeat.begun))
            for request in batch.tokens:
                view = self._members[request]
                for seconds in repeat.unpaid:
                    view.gpu_s += seconds
        repeat.begun = 0
        repeat.unpaid.clear()

    def _in_order(self, priority_order: PriorityOrder) -> list[RequestView]:
        """Requests by key, then id; the order of keys that do not move is kept."""
        told = self.told
        is_known = self._order is not None and priority_order == told.order
        if not is_known or told.are_stale(self.heard, self.now_s):
            self._order = None
        if self._order is None or self._order[0] != told.version:
            table = self.table
            key = told.keys(table, priority_order, self.heard, self.now_s)
            order = by_key(self, table, key)
            if told.moves:
                return order
            self._order = (told.version, order)
        elif len(self._order[1]) > len(self._members):
            left = [view for view in self._order[1] if view.facts.id in self._members]
            self._order = (told.version, left)
        return self._order[1]

    def launch(self, decision: Decision) -> None:
        """The engine begins what was decided."""
        if self._repeat is not None and decision is self._repeat.decision:
            self._repeat.begun += 1
            return
        self._kv = after(decision, self.kv, self._members)

    def end(
        self, batch: Batch, start_s: float, now_s: float, made: Mapping[RequestId, int]
    ) -> None:
        """A batch is over; `made` counts the tokens that each request has produced."""
        self.now_s = now_s
        self.told.note_ran(batch, 1, now_s)
        if self._repeat is not None and batch in self._repeat.decision.launch:
            self._repeat.unpaid.append(now_s - start_s)
        else:
            for request in batch.tokens.keys() & self._members.keys():
                self._members[request].gpu_s += now_s - start_s
        self.tell(Iterated(now_s, self.group.id, batch, now_s - start_s, made))

    def look_again(self) -> None:
        """Something has happened that its policy may have learnt from."""
        self._settle()
        self._repeat = self._order = None

    def outgrown(self, made: Mapping[RequestId, int]) -> None:
        """Tell of those whose promise was too small for the tokens just `made`."""
        for event in list(overruns(self._members, made, self._kv, self.group.id, self.now_s)):
            self.look_again()
            self.tell(event)

    def lose(self, request: RequestId) -> None:
        """The engine has dropped a request's KV by itself."""
        self.kv.free(request)
        self._repeat = None

    def finish(self, request: RequestId) -> None:
        """A request will produce no more tokens: it is answered, or was given up from outside."""
        view = self._members[request]
        self.close(request)
        self.tell(Finished(self.now_s, view.facts, view.generated_tokens))
