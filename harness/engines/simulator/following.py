"""Groups under a priority order: how one becomes a replica, in which order its requests wait."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from harness.costs.iteration import IterationTable
from harness.costs.model import TableCosts
from harness.engines.lifecycle import Lifecycle
from harness.engines.recorder import Recorder
from harness.engines.simulator.arriving import Arrivals
from harness.engines.simulator.deciding import Deciding
from harness.engines.simulator.fast.arrays import ReplicaRule
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.fast.rules import replica_rule, static_rule
from harness.engines.simulator.group import GroupFactory, LiveGroup
from harness.engines.simulator.stepping import GroupStepper
from harness.engines.state import END, PIECE, SLOPE, VALUE, Floats, Ints
from harness.interface.decisions import (
    ContinuousBatching,
    MovingKey,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.entities import Group, ServiceId
from harness.interface.graph import NOBODY


@dataclass(slots=True, kw_only=True)
class Following:
    """Turns groups into replicas and gives them their requests in order.

    Of an order's time to decide, what is recorded is that of its key; compiled code fills.
    `pieces` has the room for moving keys, by the number of pieces, `turns` that for the times of
    predictions foretold and the keys that they give: replicas share both.
    """

    lifecycle: Lifecycle
    costs: TableCosts
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
        if priority_order.key is None and chains and not _reserves(priority_order):
            self._chain(service)
        live.members.clear()
        live.inbox.clear()
        live.kv = self.factory.ledger(live.group)
        state = self.lifecycle.state
        table = self._table(priority_order, live.group, service)
        in_numbers = self._in_numbers(priority_order, live.group, service)
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
        self, priority_order: PriorityOrder, group: Group, service: ServiceId
    ) -> ReplicaRule:
        rule, costs = priority_order.rule, self.costs
        capacity_blocks = costs.kv_blocks(service, group.tensor_parallel)
        block_tokens, log = costs.block_tokens(service), self.recorder.keep_iterations
        if isinstance(rule, StaticBatching):
            return static_rule(
                rule,
                capacity_blocks=capacity_blocks,
                block_tokens=block_tokens,
                log=log,
                max_tokens=self.factory.max_num_batched_tokens,
                decide_s=self.deciding.before_s(0.0, whole=True),
            )
        self._refuse(rule)
        return replica_rule(
            rule,
            capacity_blocks=capacity_blocks,
            block_tokens=block_tokens,
            log=log,
            displaces=priority_order.displaces,
        )

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
            if not np.isin(fresh, live.open_ids()).any():
                continue
            if live.replica is None:
                stepper.interrupt(live)
                continue
            live.replica.tell_keys(live.open_ids())
            live.replica.add(live.replica.withdraw(everything=False), self.lifecycle.state.now_s)
        fresh.clear()

    def _refuse(self, rule: ContinuousBatching) -> None:
        """Raise ValueError where a rule asks for larger batches than the engine has."""
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            asked, most = getattr(rule, name), getattr(self.factory, name)
            if asked > most:
                raise ValueError(f"the policy's {name}={asked} exceeds the engine's {most}")

    def _key(self, replica: ReplicaState, order: PriorityOrder, ids: Ints) -> None:
        """Tell a replica the keys of these requests, and what is reserved when they are admitted.

        Those that hold KV keep what was set aside for them.
        """
        state, started_s = self.lifecycle.state, perf_counter()
        arrays, table = state.arrays, state.table(ids)
        key = order.keys(table)
        if isinstance(key, MovingKey):
            self._set_pieces(replica, ids, key)
            key = key.at(table.generated_tokens)
        arrays.key[ids] = key
        if _reserves(order):
            free = (table.kv_tokens == 0) & ~np.isin(ids, replica.begun_ids())
            arrays.wanted[ids] = order.reserved_tokens(table)
            arrays.reserved[ids[free]] = arrays.wanted[ids[free]]
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

    def _set_pieces(self, replica: ReplicaState, ids: Ints, key: MovingKey) -> None:
        """Write the pieces of moving keys where the replica finds them."""
        count = key.value.shape[1]
        if count not in self.pieces:
            requests = len(self.lifecycle.state.arrays.key)
            self.pieces[count] = np.zeros((requests, count, PIECE))
        pieces = self.pieces[count]
        pieces[ids, :, END] = key.until_tokens
        pieces[ids, :, VALUE], pieces[ids, :, SLOPE] = key.value, key.slope
        asks = replica.rule.asks or bool(np.isfinite(key.until_tokens[:, -1]).any())
        if asks and replica.rule.until:
            raise ValueError("under static batching the last piece of a moving key must not end")
        replica.rule = replica.rule._replace(moves=True, asks=asks)
        replica.requests = replica.requests._replace(pieces=pieces)

    def _chain(self, service: ServiceId) -> None:
        """Calls of a chain follow each other within the replicas of a service."""
        workload, graph = self.lifecycle.workload, self.lifecycle.graph
        index = [s.id for s in workload.services].index(service)
        rows = (workload.service == index) & (graph.chain != NOBODY)
        self.lifecycle.state.arrays.next[rows] = graph.chain[rows]


def _reserves(order: PriorityOrder) -> bool:
    """Whether KV is set aside for those that are admitted."""
    return order.reserve_tokens is not None or isinstance(order.rule, StaticBatching)
