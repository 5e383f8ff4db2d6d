"""Discrete-event simulator: the same policies, costs from a table instead of a GPU.

At every instant all completions, arrivals and timers are applied before any policy is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, Protocol

import numpy as np
import pandas as pd

from harness.costs import IterationTable
from harness.decisions import Batch, Standing
from harness.engines.deploying import Deployer
from harness.engines.engine import refuse_unmet_needs
from harness.engines.lane import Ints
from harness.engines.lanes import Lane, lane_rule
from harness.engines.live_state import LiveCluster, LiveGroup, LiveState, new_arrays
from harness.engines.run_ahead import run_lanes
from harness.engines.stepping import Flight, Stepper
from harness.engines.timeline import Kind, Timeline
from harness.entities import Cluster, Group, Service, ServiceId
from harness.events import Arrived, Event, Finished, Predicted, ServiceDrained
from harness.kv_ledger import KvLedger
from harness.policies import Capability, CostModel, System
from harness.recorder import Recorder
from harness.workloads.workload import Workload


class TableCosts(CostModel, Protocol):
    """Costs that compiled code can read."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration by its number of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulator:
    """An engine. `fast_forward` off steps every iteration: same results, for tests."""

    offers: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})

    cluster: Cluster
    costs: TableCosts
    max_batch_requests: int
    max_batch_tokens: int
    fast_forward: bool = True

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload on the virtual clock. See `Engine.run`."""
        refuse_unmet_needs(self, system)
        run = _Run(self, workload, system, recorder)
        run.loop()
        recorder.requests = run.request_frame()


class _Run:
    """One run: wires the parts together and moves the clock."""

    def __init__(
        self, engine: Simulator, workload: Workload, system: System, recorder: Recorder
    ) -> None:
        self.engine, self.workload, self.system, self.recorder = engine, workload, system, recorder
        self.services: Mapping[ServiceId, Service] = {s.id: s for s in workload.services}
        self.hears = system.scheduling.hears | system.placement.hears
        self.state = LiveState(workload, engine.cluster, new_arrays(workload))
        self.timeline = Timeline()
        self.remaining = {
            s.id: int((workload.service == i).sum()) for i, s in enumerate(workload.services)
        }
        self.drained: list[ServiceId] = []
        self.group_of: dict[int, str] = {}
        self.place_due = True
        self.stepper = Stepper(
            self.state,
            self.timeline,
            system.scheduling,
            recorder,
            engine.offers,
            engine.fast_forward,
            self._table_of,
            self.tell,
            self._finish_in,
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
            False,
        )

    def tell(self, event: Event) -> None:
        """Report an event to the recorder and to whoever wants to hear it."""
        self.recorder.event(event)
        for policy in (self.system.scheduling, self.system.placement):
            if type(event) in policy.hears:
                policy.observe(event)

    def wants(self, kind: type[Event]) -> bool:
        """Whether an event of this type is worth building."""
        return self.recorder.keep_events or kind in self.hears

    def loop(self) -> None:
        """Until every request is answered. Raises ValueError when some never can be."""
        self._arrive()
        self._decide()
        while sum(self.remaining.values()):
            next_s = min(self.timeline.next_s, self._next_arrival_s())
            next_s, done = run_lanes(self._lane_groups(), self.remaining, next_s)
            if next_s == np.inf:
                waiting = {s: n for s, n in self.remaining.items() if n}
                raise ValueError(
                    f"requests wait for ever: {waiting} unfinished and nothing is going to happen"
                )
            self.state.now_s = next_s
            for request in done.tolist():
                self._finish(request)
            while due := self.timeline.pop_due(next_s):
                self._happen(*due)
            self._arrive()
            self._decide()
        for live in [*self.state.groups.values(), *self.deployer.stopping]:
            self.deployer.record_lane(live)

    def _lane_groups(self) -> list[LiveGroup]:
        return [*self.state.groups.values(), *self.deployer.stopping]

    def _next_arrival_s(self) -> float:
        arrived, arrival_s = self.state.arrived, self.workload.arrival_s
        return float(arrival_s[arrived]) if arrived < len(arrival_s) else np.inf

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
        """Admit every request that has arrived by now and dispatch it."""
        state = self.state
        first = state.arrived
        state.arrived = int(np.searchsorted(self.workload.arrival_s, state.now_s, side="right"))
        if state.arrived == first:
            return
        new = np.arange(first, state.arrived)
        for index in np.unique(self.workload.service[new]).tolist():
            service = self.workload.services[index].id
            ids = new[self.workload.service[new] == index].tolist()
            self.deployer.held_back.setdefault(service, []).extend(ids)
            self.deployer.hand_out(service)
        if self.wants(Arrived) or self.system.predictor is not None:
            self._announce(new)

    def _announce(self, new: Ints) -> None:
        homes = {i: live.group.id for live in self.state.groups.values() for i in live.inbox}
        for request in new.tolist():
            facts = self.workload.facts(request)
            if request in homes:
                self.tell(Arrived(self.state.now_s, facts, homes[request]))
            if self.system.predictor is not None:
                length, seconds = self.system.predictor.predict(facts)
                at_s = self.state.now_s + seconds
                self.timeline.add(at_s, Kind.PREDICTION, Predicted(at_s, facts.id, length))

    def _predicted(self, event: Predicted) -> None:
        """A prediction is ready: groups under a standing order look at their keys again."""
        self.state.predicted[event.request] = event.length
        self.tell(event)
        for live in self.state.groups.values():
            if (
                live.lane is not None
                and live.standing is not None
                and event.request in live.open_ids()
            ):
                self._rekey(live, live.standing)
            elif event.request in live.members:
                self.stepper.interrupt(live)

    def _decide(self) -> None:
        """Ask for a placement if one is due, then every group that can do something."""
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
        if live.lane is None:
            decision = self.stepper.ask(live)
            if decision is None or decision.standing is None:
                return
            self._follow(live, decision.standing)
        elif live.inbox:
            ids = np.array(sorted(live.inbox), np.int64)
            live.inbox.clear()
            self._key(live, ids)
            live.lane.add(ids, self.state.now_s)

    def _follow(self, live: LiveGroup, standing: Standing) -> None:
        """Turn a group into a lane."""
        (service,) = live.group.services
        costs, tp = self.engine.costs, live.group.tensor_parallel
        rule = lane_rule(
            standing.rule,
            capacity_blocks=costs.kv_blocks(service, tp),
            block_tokens=costs.block_tokens(service),
            log=self.recorder.keep_iterations,
        )
        live.standing = standing
        ids = live.open_ids()
        self._key(live, ids)
        live.members.clear()
        live.kv = self._new_group(live.group).kv
        live.lane = Lane.empty(costs.table(service, tp), rule, self.state.arrays, self.state.now_s)
        live.lane.add(ids, self.state.now_s)

    def _key(self, live: LiveGroup, ids: Ints) -> None:
        assert live.standing is not None
        self.state.arrays.key[ids] = live.standing.key(self.state.table(ids))

    def _rekey(self, live: LiveGroup, standing: Standing) -> None:
        """Order the waiting requests of a lane anew."""
        assert live.lane is not None
        self._key(live, live.open_ids())
        live.lane.add(live.lane.withdraw(everything=False), self.state.now_s)

    def _finish_in(self, live: LiveGroup, request: int) -> None:
        self._finish(request)

    def _finish(self, request: int) -> None:
        """Count a finished request and notice when its service is drained."""
        service = self.workload.service_of(request)
        self.remaining[service] -= 1
        if not self.remaining[service]:
            self.drained.append(service)
        if self.wants(Finished):
            finished_s = float(self.state.arrays.finished_s[request])
            self.tell(
                Finished(
                    finished_s,
                    self.workload.facts(request),
                    int(self.workload.output_tokens[request]),
                )
            )

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
            self.engine.max_batch_requests,
            self.engine.max_batch_tokens,
            self.state,
        )

    def request_frame(self) -> pd.DataFrame:
        """One row per request: times, tokens, preemptions; NaN where it did not come to that."""
        arrays, workload = self.state.arrays, self.workload
        names = pd.Index([str(s.id) for s in workload.services])
        return pd.DataFrame(
            {
                "request": np.arange(len(workload)),
                "service": pd.Categorical(names[workload.service], categories=names),
                "app": workload.app,
                "arrival_s": workload.arrival_s,
                "first_token_s": arrays.first_token_s,
                "finished_s": arrays.finished_s,
                "prompt_tokens": workload.prompt_tokens,
                "output_tokens": arrays.generated,
                "gpu_s": arrays.gpu_s,
                "preemptions": arrays.preemptions,
            }
        )
