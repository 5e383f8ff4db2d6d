"""Discrete-event simulator: the same policies, costs from a table instead of a GPU.

At every instant all completions, arrivals and timers are applied before any policy is asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, Protocol

import numpy as np

from harness.costs.iteration import IterationTable
from harness.costs.model import TableCosts
from harness.engines.engine import refuse_unmet_needs
from harness.engines.frames import request_frame
from harness.engines.live_state import LiveCluster, LiveGroup, LiveState
from harness.engines.recorder import Recorder
from harness.engines.simulator.deploying import Deployer
from harness.engines.simulator.fast.replica import ReplicaState, replica_rule
from harness.engines.simulator.fast.run_ahead import run_replicas
from harness.engines.simulator.stepping import Flight, Stepper
from harness.engines.simulator.timeline import Kind, Timeline
from harness.engines.state import ELSEWHERE, Ints, new_arrays
from harness.interface.decisions import Batch, ContinuousBatching, Decision, PriorityOrder
from harness.interface.entities import Cluster, Group, Service, ServiceId
from harness.interface.events import Event, Finished, Predicted, ServiceDrained
from harness.interface.graph import NOBODY, Graph
from harness.interface.kv_ledger import KvLedger
from harness.interface.policies import Capability, LengthPredictor, System
from harness.workloads.workload import Workload

NOTHING_DONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulator:
    """An engine. `fast_forward` off steps every iteration: same results, for tests."""

    supports: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.REDEPLOY, Capability.TO_COMPLETION}
    )

    cluster: Cluster
    costs: TableCosts
    max_num_seqs: int
    max_num_batched_tokens: int
    fast_forward: bool = True

    @property
    def about(self) -> str:
        """Its seconds come from the cost model."""
        return "simulated"

    @property
    def runs_alone(self) -> bool:
        """It does not: its clock is virtual."""
        return False

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload on the virtual clock. See `Engine.run`."""
        refuse_unmet_needs(self, system)
        serve(self, workload, system, recorder, lambda stepper: stepper)


class GroupStepper(Protocol):
    """Runs groups decision by decision; see `Stepper`."""

    @property
    def flights(self) -> Mapping[int, Flight]:
        """Batches being computed, by `id` of their live group."""

    def ask(self, live: LiveGroup) -> Decision | None:
        """Ask about an idle group and apply the answer; returns one that holds a priority order."""

    def interrupt(self, live: LiveGroup) -> None:
        """Something happened to a group."""

    def end(self, flight: Flight) -> bool:
        """A batch is done."""


def serve(
    engine: Simulator,
    workload: Workload,
    system: System,
    recorder: Recorder,
    around: Callable[[Stepper], GroupStepper],
) -> None:
    """Serve the workload on the virtual clock; `around` may put something before the stepper."""
    run = _Run(engine, workload, system, recorder, around)
    run.loop()
    recorder.requests = request_frame(workload, run.state.arrays)


class _Run:
    """One run: wires the parts together and moves the clock."""

    def __init__(
        self,
        engine: Simulator,
        workload: Workload,
        system: System,
        recorder: Recorder,
        around: Callable[[Stepper], GroupStepper],
    ) -> None:
        self.engine, self.workload, self.system, self.recorder = engine, workload, system, recorder
        self.services: Mapping[ServiceId, Service] = {s.id: s for s in workload.services}
        self.subscribes = system.scheduling.subscribes | system.placement.subscribes
        self.graph = Graph(workload.edges, workload.service)
        self.roots = np.flatnonzero(self.graph.waits == 0)
        self.root_s = workload.arrival_s[self.roots]
        arrays = new_arrays(
            workload.prompt_tokens,
            workload.output_tokens,
            np.zeros(len(workload), np.int64),
            np.where(self.graph.waits == 0, workload.arrival_s, np.inf),
        )
        arrays.next[self.graph.has_children] = ELSEWHERE
        self.state = LiveState(workload, engine.cluster, arrays, self.graph.waits.copy())
        self.timeline = Timeline()
        self.remaining = {
            s.id: int((workload.service == i).sum()) for i, s in enumerate(workload.services)
        }
        self.drained: list[ServiceId] = []
        self.fresh: list[int] = []
        self.released: list[int] = []
        self.place_due = True
        self.stepper = around(
            Stepper(
                self.state,
                self.timeline,
                system.scheduling,
                recorder,
                engine.supports,
                engine.fast_forward,
                self._table_of,
                self.tell,
                self._finish_in,
            )
        )
        self.view = LiveCluster(self.state, self.services)
        self.deployer = Deployer(
            self.state,
            self.view,
            self.timeline,
            self.stepper,
            engine.costs,
            system.dispatch,
            recorder,
            self._new_group,
            self.tell,
            self.wants,
        )

    def tell(self, event: Event) -> None:
        """Report an event to the recorder and to whoever wants to hear it."""
        self.recorder.event(event)
        for policy in (self.system.scheduling, self.system.placement):
            if type(event) in policy.subscribes:
                policy.observe(event)

    def wants(self, kind: type[Event]) -> bool:
        """Whether an event of this type is worth building."""
        return self.recorder.keep_events or kind in self.subscribes

    def loop(self) -> None:
        """Until every request is answered. Raises ValueError when some never can be."""
        self._arrive()
        self._decide()
        while sum(self.remaining.values()):
            next_s, done = min(self.timeline.next_s, self._next_arrival_s()), NOTHING_DONE
            if groups := self._replica_groups():
                next_s, done = run_replicas(
                    groups, self.remaining, next_s, may_stop=bool(len(self.workload.edges))
                )
            if next_s == np.inf:
                waiting = {s: n for s, n in self.remaining.items() if n}
                raise ValueError(
                    f"requests wait for ever: {waiting} unfinished and nothing is going to happen"
                )
            self.state.now_s = next_s
            self._finish(done)
            while due := self.timeline.pop_due(next_s):
                self._happen(*due)
            self._arrive()
            self._decide()
        for live in [*self.state.groups.values(), *self.deployer.stopping]:
            self.deployer.record_replica(live)

    def _replica_groups(self) -> list[LiveGroup]:
        """Those that follow a priority order."""
        every = (*self.state.groups.values(), *self.deployer.stopping)
        return [live for live in every if live.replica is not None]

    def _next_arrival_s(self) -> float:
        arrived = self.state.arrived
        return float(self.root_s[arrived]) if arrived < len(self.roots) else np.inf

    def _happen(self, kind: Kind, subject: object) -> None:
        """One thing of the timeline. Policies are asked when all that is due has happened."""
        if kind is Kind.BATCH_ENDS and isinstance(subject, Flight):
            self.stepper.end(subject)
        elif kind is Kind.PREDICTION and isinstance(subject, Predicted):
            self._predicted(subject)
        elif kind is Kind.PLACEMENT_WAKES:
            self.place_due = True
        elif isinstance(subject, LiveGroup):
            if kind is Kind.GROUP_STOPS:
                self.deployer.stopped(subject)
            elif kind is Kind.GROUP_READY:
                self.deployer.ready(subject)
            else:
                self.stepper.interrupt(subject)

    def _arrive(self) -> None:
        """Dispatch every request that has arrived, and those to come if nobody can tell."""
        state = self.state
        if (
            self._next_arrival_s() > state.now_s
            and not self.released
            and not self._replica_groups()
        ):
            return
        first = state.arrived
        state.arrived = int(np.searchsorted(self.root_s, state.now_s, side="right"))
        if state.arrived < len(self.roots) and self._may_look_ahead():
            next_s = self.timeline.next_s
            state.arrived = int(np.searchsorted(self.root_s, next_s, side="left"))
        state.arrived = max(first, state.arrived)
        new = np.concatenate([self.roots[first : state.arrived], np.array(self.released, np.int64)])
        self.released.clear()
        if not len(new):
            return
        for index in np.unique(self.workload.service[new]).tolist():
            service = self.workload.services[index].id
            ids = new[self.workload.service[new] == index].tolist()
            self.deployer.held_back.setdefault(service, []).extend(ids)
            self.deployer.hand_out(service)
        if self.system.predictor is not None:
            for request in new.tolist():
                self._predict(self.system.predictor, request)
            if self.system.predictor.foresees and state.arrived > first:
                self._foresee(self.system.predictor)

    def _may_look_ahead(self) -> bool:
        """Nobody learns from arrivals, the groups stay, and all of them fill batches themselves."""
        system = self.system
        return (
            self.engine.fast_forward
            and self._is_unheard()
            and system.predictor is None
            and not system.dispatch.reads_load
            and not len(self.workload.edges)
            and Capability.REDEPLOY not in system.placement.requires
            and bool(self.state.groups)
            and all(live.replica is not None for live in self.state.groups.values())
        )

    def _is_unheard(self) -> bool:
        """Whether nobody learns from arrivals, and none of them is yet to be predicted."""
        predictor = self.system.predictor
        is_known = predictor is None or predictor.foresees
        return is_known and not (self.subscribes or self.recorder.keep_events)

    def _foresee(self, predictor: LengthPredictor) -> None:
        """Predict the calls that wait, of the applications that have come in."""
        state = self.state
        waiting = (state.waits > 0) & (self.workload.arrival_s <= state.now_s)
        for call in np.flatnonzero(waiting).tolist():
            if call not in state.predicted:
                state.predicted[call] = predictor.predict(self.workload.facts(call))[0]

    def _predict(self, predictor: LengthPredictor, request: int) -> None:
        """Ask for a prediction, which becomes known when it has been computed."""
        facts = self.state.facts(request)
        length, seconds = predictor.predict(facts)
        at_s = self.state.now_s + seconds
        event = Predicted(at_s, facts.id, length)
        if seconds > 0:
            self.timeline.add(at_s, Kind.PREDICTION, event)
        else:
            self._predicted(event)

    def _predicted(self, event: Predicted) -> None:
        """A prediction is ready."""
        self.state.predicted[event.request] = event.length
        self.fresh.append(event.request)
        self.tell(event)

    def _reorder(self) -> None:
        """Groups look again at the order of requests whose predictions have become ready."""
        if not self.fresh:
            return
        for live in self.state.groups.values():
            if not np.isin(self.fresh, live.open_ids()).any():
                continue
            if live.replica is not None and live.priority_order is not None:
                self._rekey(live, live.priority_order)
            else:
                self.stepper.interrupt(live)
        self.fresh.clear()

    def _decide(self) -> None:
        """Ask for a placement if one is due, then every group that can do something."""
        self._reorder()
        for service in self.drained:
            self.tell(ServiceDrained(self.state.now_s, service))
        if (self.place_due or self.drained) and sum(self.remaining.values()):
            started = perf_counter()
            deployment = self.system.placement.place(self.view)
            self.recorder.decided("place", perf_counter() - started)
            if deployment.wake_s is not None:
                self.timeline.add(deployment.wake_s, Kind.PLACEMENT_WAKES)
            if deployment != self.state.deployment:
                self.deployer.deploy(deployment)
        self.place_due = False
        self.drained.clear()
        for live in self.state.groups.values():
            if live.inbox:
                self.stepper.interrupt(live)
            if live.is_ready:
                self._ask(live)

    def _ask(self, live: LiveGroup) -> None:
        if live.replica is None:
            decision = self.stepper.ask(live)
            if decision is None or decision.priority_order is None:
                return
            self._follow(live, decision.priority_order)
        elif live.inbox:
            ids = np.array(sorted(live.inbox), np.int64)
            live.inbox.clear()
            self._key(live, ids)
            live.replica.add(ids, self.state.now_s)

    def _follow(self, live: LiveGroup, priority_order: PriorityOrder) -> None:
        """Turn a group into a replica."""
        rule = priority_order.rule
        assert isinstance(rule, ContinuousBatching)
        self._refuse(rule)
        (service,) = live.group.services
        costs, tp = self.engine.costs, live.group.tensor_parallel
        in_numbers = replica_rule(
            rule,
            capacity_blocks=costs.kv_blocks(service, tp),
            block_tokens=costs.block_tokens(service),
            log=self.recorder.keep_iterations,
        )
        live.priority_order = priority_order
        ids = live.open_ids()
        if priority_order.key is None and self._is_unheard():
            self._chain(service)
        self._key(live, ids)
        live.members.clear()
        live.inbox.clear()
        live.kv = self._new_group(live.group).kv
        table = costs.table(service, tp)
        live.replica = ReplicaState.empty(table, in_numbers, self.state.arrays, self.state.now_s)
        live.replica.add(ids, self.state.now_s)

    def _refuse(self, rule: ContinuousBatching) -> None:
        """Raise ValueError where a rule asks for larger batches than the engine has."""
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            asked, most = getattr(rule, name), getattr(self.engine, name)
            if asked > most:
                raise ValueError(f"the policy's {name}={asked} exceeds the engine's {most}")

    def _key(self, live: LiveGroup, ids: Ints) -> None:
        assert live.priority_order is not None
        arrays, key = self.state.arrays, live.priority_order.key
        arrays.key[ids] = arrays.arrival_s[ids] if key is None else key(self.state.table(ids))

    def _chain(self, service: ServiceId) -> None:
        """Calls of a chain follow each other within the replicas of a service."""
        index = [s.id for s in self.workload.services].index(service)
        rows = (self.workload.service == index) & (self.graph.chain != NOBODY)
        self.state.arrays.next[rows] = self.graph.chain[rows]

    def _rekey(self, live: LiveGroup, priority_order: PriorityOrder) -> None:
        """Order the waiting requests of a replica anew."""
        assert live.replica is not None
        self._key(live, live.open_ids())
        live.replica.add(live.replica.withdraw(everything=False), self.state.now_s)

    def _finish_in(self, live: LiveGroup, request: int) -> None:
        self._finish(np.array([request]))

    def _finish(self, requests: Ints) -> None:
        """Count finished requests and notice when a service is drained."""
        if not len(requests):
            return
        if self.wants(Finished):
            for request in requests.tolist():
                finished_s = float(self.state.arrays.finished_s[request])
                tokens = int(self.workload.output_tokens[request])
                self.tell(Finished(finished_s, self.state.facts(request), tokens))
        ended = np.bincount(self.workload.service[requests], minlength=len(self.services))
        for service, count in zip(self.remaining, ended.tolist(), strict=True):
            self.remaining[service] -= count
            if count and not self.remaining[service]:
                self.drained.append(service)
        if len(self.workload.edges):
            self._release(requests)

    def _release(self, answered: Ints) -> None:
        """Calls that waited for these alone arrive now, if a replica has not seen to it."""
        waits, arrival_s = self.state.waits, self.state.arrays.arrival_s
        for request in answered.tolist():
            for call in self.graph.children(request):
                waits[call] -= 1
                is_there = bool(arrival_s[call] < np.inf)
                if self.graph.chain[request] != NOBODY:
                    self.deployer.follow(request, call, is_there=is_there)
                if waits[call] == 0 and not is_there:
                    arrival_s[call] = self.state.now_s
                    self.released.append(call)

    def _table_of(self, live: LiveGroup, batch: Batch) -> IterationTable:
        return self.engine.costs.table(batch.service, live.group.tensor_parallel)

    def _new_group(self, group: Group) -> LiveGroup:
        """An empty group with all the KV that its service leaves free."""
        (service,) = group.services
        block_tokens = self.engine.costs.block_tokens(service)
        tokens = self.engine.costs.kv_blocks(service, group.tensor_parallel) * block_tokens
        services = {service: self.services[service]}
        kv = KvLedger(
            capacity_bytes=tokens * self.services[service].kv_bytes_per_token,
            services=services,
            block_tokens=block_tokens,
        )
        return LiveGroup(
            group,
            services,
            kv,
            self.engine.max_num_seqs,
            self.engine.max_num_batched_tokens,
            self.state,
        )
