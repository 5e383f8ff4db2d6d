"""Groups under a priority order: how one becomes a replica, in which order its requests wait."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from harness.costs.iteration import IterationTable
from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.recorder import Recorder
from harness.engines.simulator.arriving import Arrivals
from harness.engines.simulator.deciding import Deciding
from harness.engines.simulator.fast.arrays import ReplicaRule
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.fast.rules import order_rule, swapping
from harness.engines.simulator.fast.told_keys import reserves, tell_keys
from harness.engines.simulator.fast.withdrawing import withdraw
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.group_factory import GroupFactory
from harness.engines.simulator.stepping import GroupStepper
from harness.engines.state import Floats, Ints
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.entities import Group, RequestId, ServiceId
from harness.interface.events import Overran
from harness.interface.graph import NOBODY
from harness.interface.moving import MovingKey


@dataclass(slots=True, kw_only=True)
class Following:
    """Turns groups into replicas and gives them their requests in order.

    Of an order's time to decide, what is recorded is that of its key; compiled code fills.
    `pieces` has the room for moving keys, by the number of pieces, `turns` that for the times of
    predictions foretold and the keys that they give: replicas share both.
    """

    lifecycle: Lifecycle
    told: Listeners
    deciding: Deciding
    recorder: Recorder
    factory: GroupFactory
    arrivals: Arrivals
    pieces: dict[int, Floats] = field(default_factory=dict)
    turns: tuple[Floats, Floats] | None = None

    def follow(self, live: LiveGroup, priority_order: PriorityOrder, *, chains: bool) -> None:
        """Turn a group into a replica.

        With `chains` the next call of a chain arrives in it unasked where the order is that of
        arrival.
        """
        (service,) = live.group.services
        live.priority_order = priority_order
        ids = live.open_ids()
        if chains and _goes_by_arrival(priority_order):
            self._chain(service)
        live.members.clear()
        live.inbox.clear()
        live.kv = self.factory.ledger(live.group)
        state = self.lifecycle.state
        table = self._table(priority_order, live.group, service)
        in_numbers = self._in_numbers(priority_order, live, service)
        if priority_order.displaces is Displaced.SWAP:
            state.swap_rows()
        replica = ReplicaState.empty(table, in_numbers, state.arrays, state.now_s)
        replica.tell_keys = lambda ids: self._key(replica, priority_order, ids)
        live.replica = replica
        replica.tell_keys(ids)
        replica.add(ids, state.now_s)

    def _table(
        self, priority_order: PriorityOrder, group: Group, service: ServiceId
    ) -> IterationTable:
        """Costs of an iteration, deciding included but where that is charged by the batch."""
        is_static = isinstance(priority_order.rule, StaticBatching)
        costs = self.deciding.costs if is_static else self.deciding
        return costs.table(service, group.tensor_parallel)

    def _in_numbers(
        self, priority_order: PriorityOrder, live: LiveGroup, service: ServiceId
    ) -> ReplicaRule:
        rule, costs = priority_order.rule, self.deciding.costs
        if isinstance(rule, ContinuousBatching):
            self._refuse(rule)
        in_numbers = order_rule(
            priority_order,
            capacity_blocks=costs.kv_blocks(service, live.group.tensor_parallel),
            block_tokens=costs.block_tokens(service),
            log_columns=self.recorder.log_columns,
            max_tokens=self.factory.engine.max_num_batched_tokens,
            decide_s=self.deciding.before_s(0.0, whole=True),
        )
        in_numbers = in_numbers._replace(
            tells=in_numbers.reserves and self.tells, hand_over_s=self.arrivals.hand_over_s
        )
        if priority_order.displaces is not Displaced.SWAP:
            return in_numbers
        return swapping(in_numbers, live.host, live.kv.services[service].kv_bytes_per_token)

    @property
    def tells(self) -> bool:
        """Whether anybody learns of overruns."""
        return Overran in self.told.subscribes

    def tell_overruns(self, groups: Iterable[LiveGroup]) -> None:
        """Tell of overruns in replicas. Where the policy learns of them, its orders are asked anew.

        That is what it would now say of keys and of what is set aside.
        """
        arrays, is_news = self.lifecycle.state.arrays, False
        replicas = [(live, live.replica) for live in groups if live.replica is not None]
        for live, replica in replicas:
            for request in replica.take_overruns().tolist():
                at_s, aside = replica.flight_begins_s, int(arrays.reserved[request])
                self.told.tell(Overran(at_s, RequestId(request), live.group.id, aside))
                is_news = True
        if is_news and Overran in self.lifecycle.system.scheduling.subscribes:
            for live, replica in replicas:
                self._ask_anew(live, replica)

    def _ask_anew(self, live: LiveGroup, replica: ReplicaState) -> None:
        """The keys of all that are here, and the order of those that wait."""
        replica.tell_keys(live.open_ids())
        replica.add(withdraw(replica, everything=False), self.lifecycle.state.now_s)

    def take_in(self, live: LiveGroup) -> None:
        """Requests of its inbox wait in the replica."""
        assert live.replica is not None
        ids = np.array(sorted(live.inbox), np.int64)
        live.inbox.clear()
        self.tell(live, ids)
        live.replica.add(ids, self.lifecycle.state.now_s)

    def tell(self, live: LiveGroup, ids: Ints) -> None:
        """Tell the replica of a group the keys of requests that come, now and by predictions."""
        assert live.replica is not None
        live.replica.tell_keys(ids)
        if self.arrivals.foretold:
            self._foretell(live, live.replica, ids)

    def look_again(
        self, groups: Iterable[LiveGroup], fresh: list[int], stepper: GroupStepper
    ) -> None:
        """Groups order those anew whose predictions have become ready: `fresh`, empty afterwards.

        Who waits in a replica does; the others are asked again.
        """
        self.arrivals.settle()
        for live in groups if fresh else ():
            if live.priority_order is not None and _goes_by_arrival(live.priority_order):
                continue
            if live.replica is None:
                if any(request in live.members or request in live.inbox for request in fresh):
                    stepper.interrupt(live)
            elif np.isin(fresh, live.open_ids()).any():
                self._ask_anew(live, live.replica)
        fresh.clear()

    def _refuse(self, rule: ContinuousBatching) -> None:
        """Raise ValueError where a rule asks for larger batches than the engine has."""
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            asked, most = getattr(rule, name), getattr(self.factory.engine, name)
            if asked > most:
                raise ValueError(f"the policy's {name}={asked} exceeds the engine's {most}")

    def _key(self, replica: ReplicaState, order: PriorityOrder, ids: Ints) -> None:
        """Tell a replica the keys of these requests, and what is reserved for them."""
        started_s = perf_counter()
        tell_keys(replica, order, ids, self.lifecycle.state.table(ids), self.pieces)
        self.recorder.decided("schedule", perf_counter() - started_s)

    def _foretell(self, live: LiveGroup, replica: ReplicaState, ids: Ints) -> None:
        """Tell a replica which keys predictions will give, and when.

        Where they do more than that, they come as events.
        """
        order, foretold = live.priority_order, self.arrivals.foretold
        assert order is not None
        known = np.array([i for i in ids.tolist() if i in foretold], np.int64)
        if not len(known):
            return
        table = self.lifecycle.state.table(known)
        means = [foretold[request].length.mean_tokens for request in known.tolist()]
        key = order.keys(replace(table, predicted_mean_tokens=np.array(means)))
        if isinstance(key, MovingKey) or order.reserve_tokens is not None:
            for request in known.tolist():
                self.arrivals.tell_later(request)
            return
        if self.turns is None:
            requests = len(self.lifecycle.state.arrays.key)
            self.turns = (np.full(requests, np.inf), np.zeros(requests))
        turns_s, turned_key = self.turns
        replica.requests = replica.requests._replace(turns_s=turns_s, turned_key=turned_key)
        turned_key[known] = key
        turns_s[known] = [foretold[r].now_s for r in known.tolist()]

    def _chain(self, service: ServiceId) -> None:
        """Calls of a chain follow each other within the replicas of a service."""
        workload, graph = self.lifecycle.workload, self.lifecycle.graph
        index = [s.id for s in workload.services].index(service)
        rows = (workload.service == index) & (graph.chain != NOBODY)
        self.lifecycle.state.arrays.next[rows] = graph.chain[rows]


def _goes_by_arrival(order: PriorityOrder) -> bool:
    """Whether nothing that becomes known of a request changes its place, or what it is given."""
    return order.key is None and not reserves(order)
