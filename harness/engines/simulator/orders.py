"""Groups under a priority order: how one is compiled, and which keys its requests have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.recorder import Recorder
from harness.engines.simulator.arriving import Arriving
from harness.engines.simulator.cached_contents import NEEDS_WHOLE_PROMPTS
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.deciding import Deciding
from harness.engines.simulator.group import GroupFactory, LiveGroup
from harness.engines.simulator.kernel import renewal, world
from harness.engines.simulator.kernel.layout import ALL, Rule
from harness.engines.simulator.prefix_caches import PrefixCaches
from harness.engines.simulator.rules import open_group, order_rule, reserves, tell_keys
from harness.engines.simulator.stepping import Stepper
from harness.engines.simulator.timeline import Due
from harness.engines.state import UNDISPATCHED, Ints
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PriorityOrder,
    StaticBatching,
    has_phases,
)
from harness.interface.entities import RequestId, ServiceId
from harness.interface.events import Overran
from harness.interface.graph import NO_CALL
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.moving import MovingKey
from harness.interface.tables import RequestTable


@dataclass(slots=True, kw_only=True)
class Orders:
    """Turns groups into compiled ones, and tells them the keys of their requests.

    Of an order's time to decide, what is recorded is that of its key; compiled code fills.
    `by_number` has the last compiled group of every number, `told_coming` by service the order of
    which the keys of requests to come have been told, after so many `overruns`.
    """

    lifecycle: Lifecycle
    told: Listeners
    deciding: Deciding
    recorder: Recorder
    factory: GroupFactory
    arrivals: Arriving
    compiled: CompiledGroups
    caches: PrefixCaches | None
    by_number: dict[int, LiveGroup] = field(default_factory=dict)
    told_coming: dict[ServiceId, PriorityOrder] = field(default_factory=dict)
    overruns: int = 0

    def follow(self, live: LiveGroup, priority_order: PriorityOrder) -> None:
        """Compile a group: from now on its batches are filled by this order."""
        state, ids = self.lifecycle.state, live.open_ids()
        live.priority_order, live.is_compiled = priority_order, True
        live.members.clear()
        live.inbox.clear()
        live.kv = self.factory.ledger(live.group)
        if priority_order.swaps:
            self.compiled.use(swap=state.swap_rows())
        if priority_order.promotion is not None:
            self.told.heard.promotions = self.told.heard.promotions or 0
        self._open(live, priority_order)
        self._receive(live)
        self.by_number[live.number] = live
        self._note_asked(live, priority_order)
        self._key([live], ids)
        self.compiled.add(live.number, ids)
        self._key([live], self.compiled.coming_to(live.number))
        self.lifecycle.dispatching.changed |= live.group.services

    def _open(self, live: LiveGroup, order: PriorityOrder) -> None:
        """Open the compiled group, with the costs and the KV blocks of all its services.

        Costs of an iteration have the time to decide in them, but where that is charged by batch.
        """
        is_static, degree = isinstance(order.rule, StaticBatching), live.group.tensor_parallel
        costs = self.deciding.costs if is_static else self.deciding
        services = sorted(live.group.services)
        open_group(
            self.compiled,
            live.number,
            order,
            self._rule(order, live),
            {service: costs.table(service, degree) for service in services},
            {service: live.kv.block_bytes(service) for service in services},
            services={service: self.arrivals.index(service) for service in services},
            ready_s=self.lifecycle.state.now_s,
        )
        if self.caches is not None:
            self.caches.open(live.number)

    def _receive(self, live: LiveGroup) -> None:
        """The compiled group takes in requests: those that have come, and others as long."""
        group = self.compiled.world.groups[live.number]
        for service, received in live.received_s.items():
            place = self.arrivals.index(service) if group["services_end"] else 0
            group["received_s"][place] = received
        group["receiving_s"], live.receiving_s = live.receiving_s, 0.0

    def tell_coming(self) -> None:
        """Requests to come have been handed over."""
        self.told_coming.clear()
        self.lifecycle.dispatching.changed.update(self.lifecycle.services)
        for live in self.arrivals.groups.values():
            if live.is_compiled:
                self._key([live], self.compiled.coming_to(live.number))

    def refresh(self) -> None:
        """See which services compiled code can dispatch by itself, where that may have changed."""
        changed = self.lifecycle.dispatching.changed
        for service in sorted(changed):
            self._refresh(service)
        changed.clear()

    def _refresh(self, service: ServiceId) -> None:
        """An order of dispatch stands, and all groups follow one priority order on as many GPUs."""
        life, index = self.lifecycle, self.arrivals.index(service)
        facts, dispatching = self.compiled.world.services[index], life.dispatching
        facts[world.HOW], facts[world.CALLS_OUTSIDE] = world.BY_POLICY, True
        homes = life.homes(service)
        lives = [self.arrivals.groups[home] for home in homes]
        if not lives or not all(live.is_compiled for live in lives):
            return
        orders = [(live.priority_order, live.group.tensor_parallel) for live in lives]
        is_even = all(order == orders[0] for order in orders)
        order = lives[0].priority_order
        assert order is not None
        standing, given_for = dispatching.orders.get(service, (None, []))
        stands = standing is not None and given_for == homes
        facts[world.CALLS_OUTSIDE] = not (
            is_even
            and _goes_by_arrival(order)
            and (not stands or not isinstance(standing, LoadOrder) or standing.weight is None)
        )
        if not (stands and is_even):
            return
        facts[world.HOW] = world.IN_TURN
        if isinstance(standing, LoadOrder):
            facts[world.HOW] = world.BY_TOKENS if standing.adds_generated else world.BY_LOAD
        if isinstance(standing, LoadOrder) and standing.weight is None:
            dispatching.weigh(standing, np.flatnonzero(life.workload.service == index))
        self.compiled.set_homes(index, [live.number for live in lives])
        facts[world.HOMES] = len(lives)
        self._tell_undispatched(service, lives, standing)

    def _tell_undispatched(
        self,
        service: ServiceId,
        lives: Sequence[LiveGroup],
        standing: LoadOrder | TurnOrder | None,
    ) -> None:
        """Tell the keys of requests to come that may go to any of these groups, and their load."""
        order = lives[0].priority_order
        coming = self.compiled.coming_to(UNDISPATCHED)
        here = self.lifecycle.workload.service[coming] == self.arrivals.index(service)
        if isinstance(standing, LoadOrder):
            self.lifecycle.dispatching.weigh(standing, coming[here])
        if order is None or self.told_coming.get(service) is order:
            return
        self.told_coming[service] = order
        self._key(lives, coming[here])

    def _rule(self, order: PriorityOrder, live: LiveGroup) -> Rule:
        if isinstance(order.rule, ContinuousBatching):
            self._refuse(order.rule)
        rule = order_rule(
            order,
            self.deciding.costs,
            live.group.services,
            live.group.tensor_parallel,
            log_columns=self.recorder.log_columns,
            max_tokens=self.factory.max_num_batched_tokens,
            decide_s=self.deciding.before_s(0.0, whole=True),
        )
        is_shared = has_phases(live.group.services, order)
        is_whole = not (rule.chunked_prefill or rule.pads or rule.until or is_shared)
        if len(self.compiled.world.held.cache) and not is_whole:
            raise ValueError(NEEDS_WHOLE_PROMPTS)
        rule = rule._replace(
            tells=order.reserve_tokens is not None and Overran in self.told.subscribes,
            keeps_gaps=rule.until != ALL,
        )
        if is_shared or not order.swaps or order.displaces not in (None, Displaced.SWAP):
            return rule
        (service,) = live.kv.services.values()
        host, token_bytes = live.host, service.kv_bytes_per_token
        return rule._replace(
            host_tokens=host.capacity_bytes // token_bytes,
            token_bytes=token_bytes,
            swap_token_s=token_bytes / host.bytes_per_s,
            swap_overlaps=host.overlaps,
        )

    def _refuse(self, rule: ContinuousBatching) -> None:
        """Raise ValueError where a rule asks for larger batches than the engine has."""
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            asked, most = getattr(rule, name), getattr(self.factory, name)
            if asked > most:
                raise ValueError(f"the policy's {name}={asked} exceeds the engine's {most}")

    def take_in(self, live: LiveGroup) -> None:
        """Requests of its inbox wait in the compiled group.

        Where all keys are due still, the group was empty: these are all that there are to ask.
        """
        ids, order = np.array(sorted(live.inbox), np.int64), live.priority_order
        live.inbox.clear()
        if order is not None and live.told.are_stale(self.told.heard, self.lifecycle.state.now_s):
            self._note_asked(live, order)
        self._key([live], ids)
        self.compiled.add(live.number, ids)

    def take_over(self, requests: Iterable[int]) -> None:
        """Requests have come that compiled code leaves to others; predictions of them are events.

        A request that was meant for a group belongs there, while that serves it.
        """
        foretold = self.arrivals.foretold
        late = [request for request in requests if request in foretold]
        for request in late:
            self.arrivals.tell_later(request)
        if late:
            self.compiled.drop_turns(np.array(late, np.int64))
        for request in requests:
            number = self._meant_for(request)
            if number >= 0:
                self.lifecycle.belongs(request, self.factory.by_number[number].group.id)

    def _meant_for(self, request: int) -> int:
        """Number of the group that a request was named for, or of its predecessor in a chain."""
        group, predecessor = self.lifecycle.state.arrays.group, self.lifecycle.graph.predecessor
        if group[request] < 0 and predecessor[request] != NO_CALL:
            return int(group[predecessor[request]])
        return int(group[request])

    def tell_overruns(self) -> None:
        """Tell of requests that have outgrown what was set aside for them."""
        for number, requests in self.compiled.take_overruns():
            group, now_s = self.by_number[number].group.id, self.lifecycle.state.now_s
            for request in requests.tolist():
                self.told.tell(Overran(now_s, RequestId(request), group))

    def look_again(self, groups: Iterable[LiveGroup], fresh: list[int], stepper: Stepper) -> None:
        """Ask what is due of keys: those of `fresh`, whose predictions are known; then it is empty.

        Where all keys of a compiled group are due, they are asked and its waiting requests put in
        order; policies of other groups are asked again. After an overrun in any group, keys of
        requests to come are told again.
        """
        self.arrivals.settle()
        if self.told.heard.overruns != self.overruns:
            self.overruns = self.told.heard.overruns
            self.tell_coming()
        due = []
        for live in groups:
            order = live.priority_order
            if order is not None and _goes_by_arrival(order):
                continue
            if live.is_compiled:
                due.append(live)
            elif any(request in live.members or request in live.inbox for request in fresh):
                stepper.interrupt(live)
        if due:
            self._ask_again(due, fresh)
        fresh.clear()

    def _ask_again(self, lives: Sequence[LiveGroup], fresh: Sequence[int]) -> None:
        """Ask keys that are due in compiled groups, and put their waiting requests in order."""
        now_s, heard = self.lifecycle.state.now_s, self.told.heard
        stale = [live.told.are_stale(heard, now_s) for live in lives]
        if not fresh and not any(stale):
            return
        asked: dict[int, Ints] = {}
        open_ids = _open_ids(self.compiled, [live.number for live in lives])
        for live, is_stale, ids in zip(lives, stale, open_ids, strict=True):
            if live.priority_order is not None and is_stale and len(ids):
                self._note_asked(live, live.priority_order)
            elif is_stale:
                self.compiled.world.groups[live.number]["stops_at_arrival"] = True
            found = ids if is_stale else ids[np.isin(ids, fresh)]
            if len(found):
                asked[live.number] = found
        if not asked:
            return
        self.compiled.settle()
        table = self.lifecycle.state.table(np.concatenate(list(asked.values())))
        first = 0
        for number, ids in asked.items():
            self._key([self.by_number[number]], ids, table.of(slice(first, first + len(ids))))
            first += len(ids)
        renewal.sort_anew(self.compiled.world, np.array(list(asked), np.int64))

    def _note_asked(self, live: LiveGroup, order: PriorityOrder) -> None:
        """The keys of all requests of a group are asked now, and again at `renew_s`."""
        live.told.note_all(order, self.told.heard, self.lifecycle.state.now_s)
        self.compiled.world.groups[live.number]["stops_at_arrival"] = False
        if order.renew_s is not None:
            self.arrivals.timeline.add(live.told.due_s, Due.GROUP_WAKES, live)

    def tell_keys(self, number: int, ids: Ints) -> None:
        """Running requests of a group are past the last piece of their key."""
        self._key([self.by_number[number]], ids)

    def _key(
        self, lives: Sequence[LiveGroup], ids: Ints, table: RequestTable | None = None
    ) -> None:
        """Tell the keys of requests of groups under one order, and by predictions that will come.

        They are in these groups, or will come to any of them; `table` has what is known of them.
        """
        order, started_s = lives[0].priority_order, perf_counter()
        assert order is not None
        if len(ids):
            numbers = [live.number for live in lives]
            known = self.lifecycle.state.table(ids) if table is None else table
            tell_keys(self.compiled, numbers, order, ids, known)
        self.recorder.decided("schedule", perf_counter() - started_s)
        if self.arrivals.foretold:
            self._foretell(order, ids)

    def _foretell(self, order: PriorityOrder, ids: Ints) -> None:
        """Note which keys predictions will give, and when.

        Where they do more than that, they come as events.
        """
        foretold = self.arrivals.foretold
        known = np.array([i for i in ids.tolist() if i in foretold], np.int64)
        if not len(known):
            return
        table = self.lifecycle.state.table(known)
        means = [foretold[request].length.mean_tokens for request in known.tolist()]
        key = order.keys(replace(table, predicted_mean_tokens=np.array(means)))
        is_more = order.reserve_tokens is not None or order.promotion is not None
        if isinstance(key, MovingKey) or is_more:
            for request in known.tolist():
                self.arrivals.tell_later(request)
            return
        at_s = np.array([foretold[request].now_s for request in known.tolist()])
        self.compiled.add_turns(at_s, known, key)


def _open_ids(compiled: CompiledGroups, numbers: Sequence[int]) -> list[Ints]:
    """Unfinished requests of each of these groups, ascending."""
    groups, chosen = compiled.world.groups, np.array(numbers, np.int64)
    most = sum(int(groups[n][chosen].sum()) for n in ("n_waiting", "n_decoding", "n_partial"))
    ids, counts = np.zeros(most, np.int64), np.zeros(len(chosen), np.int64)
    renewal.collect_open(compiled.world, chosen, ids, counts)
    ends = np.cumsum(counts).tolist()
    ids = ids[: ends[-1]]
    ids = ids[np.lexsort((ids, np.repeat(np.arange(len(chosen)), counts)))]
    return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _goes_by_arrival(order: PriorityOrder) -> bool:
    """Whether nothing that becomes known of a request changes its place, or what it is given."""
    return order.key is None and not reserves(order)
