"""Discrete-event simulator: the same policies, costs from a table instead of a GPU.

At every instant all completions, arrivals and timers are applied before any policy is asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.costs.iteration import IterationTable
from harness.costs.model import TableCosts
from harness.engines.ask import ask_deployment
from harness.engines.engine import refuse_unmet_needs
from harness.engines.frames import request_frame
from harness.engines.lifecycle import Lifecycle
from harness.engines.recorder import Recorder
from harness.engines.simulator.arriving import Arrivals
from harness.engines.simulator.deploying import Deployer
from harness.engines.simulator.fast.run_ahead import run_replicas
from harness.engines.simulator.fast.warm_up import warm_up
from harness.engines.simulator.following import Following
from harness.engines.simulator.group import GroupFactory, LiveGroup
from harness.engines.simulator.stepping import Flight, GroupStepper, Stepper
from harness.engines.simulator.timeline import Kind, Timeline
from harness.engines.state import ELSEWHERE, Ints
from harness.interface.decisions import Batch
from harness.interface.entities import Cluster, GroupId, ServiceId
from harness.interface.events import Event, Finished, Predicted, ServiceDrained
from harness.interface.policies import Capability, System
from harness.workloads.workload import Workload

NOTHING_DONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulator:
    """An engine. `fast_forward` off steps every iteration: same results, for tests."""

    supports: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.REDEPLOY, Capability.TO_COMPLETION, Capability.SHARED_GROUP}
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

    def warm_up(self) -> None:
        """Load the compiled kernel."""
        warm_up()

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload on the virtual clock. See `Engine.run`."""
        refuse_unmet_needs(self, system)
        serve(self, workload, system, recorder, lambda stepper: stepper)


def serve(
    engine: Simulator,
    workload: Workload,
    system: System,
    recorder: Recorder,
    around: Callable[[Stepper], GroupStepper],
) -> None:
    """Serve the workload on the virtual clock; `around` may put something before the stepper."""
    run = _Run(engine=engine, workload=workload, system=system, recorder=recorder, around=around)
    run.loop()
    recorder.requests = request_frame(workload, run.lifecycle.state.arrays)


class _Run:
    """One run: wires the parts together and moves the clock."""

    def __init__(
        self,
        *,
        engine: Simulator,
        workload: Workload,
        system: System,
        recorder: Recorder,
        around: Callable[[Stepper], GroupStepper],
    ) -> None:
        self.engine, self.workload, self.system, self.recorder = engine, workload, system, recorder
        self.subscribes = system.scheduling.subscribes | system.placement.subscribes
        self.groups: dict[GroupId, LiveGroup] = {}
        self.timeline = Timeline()
        self.drained: list[ServiceId] = []
        self.place_due = True
        self.lifecycle = Lifecycle(
            workload, engine.cluster, system, groups=self.groups, deliver=self._deliver
        )
        self.state = self.lifecycle.state
        self.state.arrays.next[self.lifecycle.graph.has_children] = ELSEWHERE
        self.stepper = around(self._stepper())
        factory = self._factory()
        self.deployer = self._deployer(factory)
        self.arrivals = Arrivals(
            lifecycle=self.lifecycle,
            groups=self.groups,
            timeline=self.timeline,
            fast_forward=engine.fast_forward,
            are_heard=recorder.keep_events or bool(self.subscribes),
            tell=self.tell,
        )
        self.following = Following(
            lifecycle=self.lifecycle,
            costs=engine.costs,
            factory=factory,
            keeps_log=recorder.keep_iterations,
        )

    def _stepper(self) -> Stepper:
        return Stepper(
            state=self.state,
            timeline=self.timeline,
            policy=self.system.scheduling,
            recorder=self.recorder,
            supports=self.engine.supports,
            fast_forward=self.engine.fast_forward,
            table_of=self._table_of,
            tell=self.tell,
            finish=lambda request: self._finish(np.array([request])),
        )

    def _factory(self) -> GroupFactory:
        return GroupFactory(
            state=self.state,
            services=self.lifecycle.services,
            costs=self.engine.costs,
            max_num_seqs=self.engine.max_num_seqs,
            max_num_batched_tokens=self.engine.max_num_batched_tokens,
        )

    def _deployer(self, factory: GroupFactory) -> Deployer:
        return Deployer(
            lifecycle=self.lifecycle,
            groups=self.groups,
            timeline=self.timeline,
            stepper=self.stepper,
            costs=self.engine.costs,
            recorder=self.recorder,
            supports=self.engine.supports,
            new_group=factory.group,
            tell=self.tell,
            wants=self.wants,
        )

    def _deliver(self, requests: Sequence[int], groups: Sequence[GroupId]) -> None:
        self.deployer.deliver(requests, groups)

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
        while not self.lifecycle.is_over:
            next_s, done = min(self.timeline.next_s, self.arrivals.next_s), NOTHING_DONE
            if groups := self._replica_groups():
                next_s, done = run_replicas(
                    groups,
                    self.lifecycle.remaining,
                    next_s,
                    may_stop=bool(len(self.workload.edges)),
                )
            if next_s == np.inf:
                waiting = {s: n for s, n in self.lifecycle.remaining.items() if n}
                raise ValueError(
                    f"requests wait for ever: {waiting} unfinished and nothing is going to happen"
                )
            self.state.now_s = next_s
            self._finish(done)
            while due := self.timeline.pop_due(next_s):
                self._happen(*due)
            self._arrive()
            self._decide()
        for live in [*self.groups.values(), *self.deployer.stopping]:
            self.deployer.record_replica(live)

    def _replica_groups(self) -> list[LiveGroup]:
        """Those that follow a priority order."""
        every = (*self.groups.values(), *self.deployer.stopping)
        return [live for live in every if live.replica is not None]

    def _happen(self, kind: Kind, subject: object) -> None:
        """One thing of the timeline. Policies are asked when all that is due has happened."""
        if kind is Kind.BATCH_ENDS and isinstance(subject, Flight):
            self.stepper.end(subject)
        elif kind is Kind.PREDICTION and isinstance(subject, Predicted):
            self.arrivals.predicted(subject)
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
        """Hand out who has arrived. Replicas may be given what is to come at any time."""
        arrivals = self.arrivals
        if arrivals.next_s <= self.state.now_s or arrivals.released or self._replica_groups():
            arrivals.hand_out()

    def _reorder(self) -> None:
        """Groups look again at the order of requests whose predictions have become ready."""
        fresh = self.arrivals.fresh
        if not fresh:
            return
        for live in self.groups.values():
            if not np.isin(fresh, live.open_ids()).any():
                continue
            if live.replica is not None:
                self.following.reorder(live)
            else:
                self.stepper.interrupt(live)
        fresh.clear()

    def _decide(self) -> None:
        """Ask for a placement if one is due, then every group that can do something."""
        self._reorder()
        for service in self.drained:
            self.tell(ServiceDrained(self.state.now_s, service))
        if (self.place_due or self.drained) and not self.lifecycle.is_over:
            deployment = ask_deployment(self.system.placement, self.lifecycle.view, self.recorder)
            if deployment.wake_s is not None:
                self.timeline.add(deployment.wake_s, Kind.PLACEMENT_WAKES)
            if deployment != self.state.deployment:
                self.deployer.deploy(deployment)
        self.place_due = False
        self.drained.clear()
        for live in self.groups.values():
            if live.inbox:
                self.stepper.interrupt(live)
            if live.is_ready:
                self._ask(live)

    def _ask(self, live: LiveGroup) -> None:
        if live.replica is None:
            decision = self.stepper.ask(live)
            if decision is not None and decision.priority_order is not None:
                order, chains = decision.priority_order, self.arrivals.are_unheard
                self.following.follow(live, order, chains=chains)
        elif live.inbox:
            self.following.take_in(live)

    def _finish(self, requests: Ints) -> None:
        """Count finished requests and notice when a service is drained."""
        if not len(requests):
            return
        if self.wants(Finished):
            for request in requests.tolist():
                finished_s = float(self.state.arrays.finished_s[request])
                tokens = int(self.workload.output_tokens[request])
                self.tell(Finished(finished_s, self.state.facts(request), tokens))
        self.drained += self.lifecycle.answered(requests)
        if len(self.workload.edges):
            self.arrivals.released += self.lifecycle.released(requests)

    def _table_of(self, live: LiveGroup, batch: Batch) -> IterationTable:
        return self.engine.costs.table(batch.service, live.group.tensor_parallel)
