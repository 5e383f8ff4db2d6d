"""Groups under a priority order: how one becomes a replica, in which order its requests wait."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from harness.costs.model import TableCosts
from harness.engines.lifecycle import Lifecycle
from harness.engines.recorder import Recorder
from harness.engines.simulator.deciding import Deciding
from harness.engines.simulator.fast.replica import ReplicaState, replica_rule
from harness.engines.simulator.group import GroupFactory, LiveGroup
from harness.engines.simulator.stepping import GroupStepper
from harness.engines.state import Ints
from harness.interface.decisions import ContinuousBatching, PriorityOrder
from harness.interface.entities import ServiceId
from harness.interface.filling import keys_of
from harness.interface.graph import NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Turns groups into replicas and gives them their requests in order.

    Of an order's time to decide, what is recorded is that of its key; compiled code fills.
    """

    lifecycle: Lifecycle
    costs: TableCosts
    deciding: Deciding
    recorder: Recorder
    factory: GroupFactory

    def follow(self, live: LiveGroup, priority_order: PriorityOrder, *, chains: bool) -> None:
        """Turn a group into a replica.

        With `chains` the next call of a chain arrives in it unasked where the order is that of
        arrival.
        """
        rule = priority_order.rule
        assert isinstance(rule, ContinuousBatching)
        self._refuse(rule)
        (service,) = live.group.services
        costs, tp = self.costs, live.group.tensor_parallel
        in_numbers = replica_rule(
            rule,
            capacity_blocks=costs.kv_blocks(service, tp),
            block_tokens=costs.block_tokens(service),
            log=self.recorder.keep_iterations,
        )
        live.priority_order = priority_order
        ids = live.open_ids()
        if priority_order.key is None and chains:
            self._chain(service)
        self._key(live, ids)
        live.members.clear()
        live.inbox.clear()
        live.kv = self.factory.ledger(live.group)
        state = self.lifecycle.state
        table = self.deciding.table(service, tp)
        live.replica = ReplicaState.empty(table, in_numbers, state.arrays, state.now_s)
        live.replica.add(ids, state.now_s)

    def take_in(self, live: LiveGroup) -> None:
        """Requests of its inbox wait in the replica."""
        assert live.replica is not None
        ids = np.array(sorted(live.inbox), np.int64)
        live.inbox.clear()
        self._key(live, ids)
        live.replica.add(ids, self.lifecycle.state.now_s)

    def look_again(
        self, groups: Iterable[LiveGroup], fresh: list[int], stepper: GroupStepper
    ) -> None:
        """Groups order those anew whose predictions have become ready: `fresh`, empty afterwards.

        Who waits in a replica does; the others are asked again.
        """
        for live in groups if fresh else ():
            if not np.isin(fresh, live.open_ids()).any():
                continue
            if live.replica is None:
                stepper.interrupt(live)
                continue
            self._key(live, live.open_ids())
            live.replica.add(live.replica.withdraw(everything=False), self.lifecycle.state.now_s)
        fresh.clear()

    def _refuse(self, rule: ContinuousBatching) -> None:
        """Raise ValueError where a rule asks for larger batches than the engine has."""
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            asked, most = getattr(rule, name), getattr(self.factory, name)
            if asked > most:
                raise ValueError(f"the policy's {name}={asked} exceeds the engine's {most}")

    def _key(self, live: LiveGroup, ids: Ints) -> None:
        assert live.priority_order is not None
        state, started_s = self.lifecycle.state, perf_counter()
        state.arrays.key[ids] = keys_of(state.table(ids), live.priority_order)
        self.recorder.decided("schedule", perf_counter() - started_s)

    def _chain(self, service: ServiceId) -> None:
        """Calls of a chain follow each other within the replicas of a service."""
        workload, graph = self.lifecycle.workload, self.lifecycle.graph
        index = [s.id for s in workload.services].index(service)
        rows = (workload.service == index) & (graph.chain != NOBODY)
        self.lifecycle.state.arrays.next[rows] = graph.chain[rows]
