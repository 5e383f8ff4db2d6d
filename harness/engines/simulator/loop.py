"""Discrete-event simulator: the same policies, costs from a table instead of a GPU.

At every instant all completions, arrivals and timers are applied before any policy is asked, and
what a new deployment does at once before any group is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.costs.model import TableCosts
from harness.engines.applications import TOLD
from harness.engines.ask import ask_deployment, counts_of, refuse_standstill
from harness.engines.engine import Slots, refuse_seconds, refuse_unmet_needs
from harness.engines.host_memory import NO_HOST_MEMORY, HostMemory
from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.recorder import GpuUse, Recorder, record
from harness.engines.simulator.arriving import Arriving
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.deciding import TIMED, Deciding
from harness.engines.simulator.deploying import Deployer
from harness.engines.simulator.flight import Flight
from harness.engines.simulator.group import GroupFactory, LiveGroup
from harness.engines.simulator.kernel.world import REMAINING, TURN
from harness.engines.simulator.orders import Orders
from harness.engines.simulator.prefix_caches import PrefixCaches
from harness.engines.simulator.stepping import Stepper
from harness.engines.simulator.timeline import Due, Timeline
from harness.engines.simulator.units import Units
from harness.engines.simulator.warm_up import warm_up
from harness.engines.state import Floats, Ints
from harness.interface.apps import OUTSIDE
from harness.interface.entities import Cluster, GroupId, ResourceId
from harness.interface.events import Finished, Iterated, Overran, Predicted
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability, System
from harness.workloads.prefixes import Prefixes
from harness.workloads.workload import Workload

SUPPORTS = frozenset(
    {
        Capability.REDEPLOY,
        Capability.TO_COMPLETION,
        Capability.SHARED_GROUP,
        Capability.SWAP,
        Capability.GPU_SHARE,
        Capability.PROMISED_KV,
    }
)
"""What policies may need of the simulator where prefixes are not cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulator:
    """An engine. `fast_forward` off steps every iteration: same results, for tests.

    A run ends at `horizon_s`, if that is given, with whatever is unfinished then. What deciding
    costs on its clock is `charge_decisions`: none, timed, measured, or seconds; see `Deciding`. The
    clock starts when the first deployment begins to load, with `loads_first` when it has. Calls
    come `hand_over_s` after the last answer that they waited for. Preempted KV goes to
    `host_memory` and back; `swap_overlaps` says whether while the GPUs compute, or an iteration is
    that much longer. With `prefix_caching` (None: without) full blocks are shared by requests that
    begin alike, and kept while there is room; see `PrefixLedger`. Shares of the SMs of a group's
    batches add up to `most_gpu_share`; above 1 `oversubscription_slows` says whether a batch takes
    as many times longer as the shares in flight exceed 1 when it starts, or no longer.
    """

    cluster: Cluster
    costs: TableCosts
    max_num_seqs: int
    max_num_batched_tokens: int
    fast_forward: bool = True
    horizon_s: float | None = None
    charge_decisions: str | float = "none"
    loads_first: bool = False
    hand_over_s: float = 0.0
    host_memory: HostMemory = NO_HOST_MEMORY
    swap_overlaps: bool = False
    prefix_caching: bool | None = False
    most_gpu_share: float = 1.0
    oversubscription_slows: bool | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for seconds and for shares of the SMs that no run can have."""
        refuse_seconds(self.horizon_s, self.hand_over_s)
        if not 1.0 <= self.most_gpu_share <= 2.0:
            raise ValueError(
                f"engine.most_gpu_share is {self.most_gpu_share}, it must be between 1 and 2"
            )
        if self.most_gpu_share > 1.0 and self.oversubscription_slows is None:
            raise ValueError(
                f"engine.most_gpu_share is {self.most_gpu_share:g}, above 1, and"
                " engine.oversubscription_slows does not say whether (true) or not (false) batches"
                " on SMs that are given twice take longer"
            )

    @property
    def supports(self) -> frozenset[Capability]:
        """With prefix caching no more than vLLM has beside it."""
        return frozenset({Capability.REDEPLOY}) if self.prefix_caching else SUPPORTS

    @property
    def about(self) -> str:
        """Its seconds come from the cost model."""
        return "simulated"

    @property
    def runs_alone(self) -> bool:
        """Its clock is virtual, but where the time of deciding is measured."""
        return self.charge_decisions in TIMED

    @property
    def slots(self) -> Slots:
        """One core."""
        return Slots(cpus=1, gpus=0)

    @property
    def computed_by(self) -> tuple[str, ...]:
        """Nothing but what every run needs."""
        return ()

    def files(self, services: Sequence[str]) -> Mapping[str, str]:
        """None: what a model costs is in the profile."""
        return {}

    def warm_up(self) -> None:
        """Load the compiled kernel."""
        warm_up()

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload on the virtual clock. See `Engine.run`."""
        refuse_unmet_needs(self, system)
        serve(self, workload, system, recorder)


def serve(
    engine: Simulator,
    workload: Workload,
    system: System,
    recorder: Recorder,
    new_stepper: Callable[..., Stepper] = Stepper,
) -> None:
    """Serve the workload on the virtual clock."""
    run = _Run(engine, workload, system, recorder, new_stepper)
    run.loop()
    record(workload, run.state.arrays, recorder)
    recorder.counts.update(counts_of(system.scheduling, run.told.heard.promotions))


def _intake_s(workload: Workload, costs: TableCosts) -> Floats:
    """Seconds from when each request is sent until it reaches its scheduler."""
    found = np.zeros(len(workload))
    for index, service in enumerate(workload.services):
        if service.id != OUTSIDE:
            rows = workload.service == index
            found[rows] = costs.intake_s(service.id, workload.prompt_tokens[rows])
    return found


class _Run:
    """One run: wires the parts together and moves the clock.

    `has_drained` says that a service has answered its last request since the placement was asked,
    which is asked again then and at `wake_s`: what an earlier deployment asked for is forgotten.
    `wakes` counts the instants since something was computed, predicted or arrived; only timers end
    then, and groups come and go.
    """

    def __init__(
        self,
        engine: Simulator,
        workload: Workload,
        system: System,
        recorder: Recorder,
        new_stepper: Callable[..., Stepper],
    ) -> None:
        self.engine, self.workload, self.system, self.recorder = engine, workload, system, recorder
        self.told, self.timeline = Listeners(system, recorder), Timeline()
        self.groups: dict[GroupId, LiveGroup] = {}
        self.lifecycle = self._lifecycle()
        self.state = self.lifecycle.state
        if engine.prefix_caching:
            self.state.keep_cached()
        self.deciding = Deciding.of(engine.charge_decisions, engine.costs)
        self.compiled = CompiledGroups(
            self.state.arrays,
            len(workload.services),
            tell_keys=lambda number, ids: self.orders.tell_keys(number, ids),
            record=self._record,
        )
        self.compiled.state["stops_at_finish"] = Finished in self.told.subscribes
        self.stepper = self._stepper(new_stepper)
        factory = self._factory()
        self.lifecycle.home_of = factory.home_of
        self.deployer = self._deployer(factory)
        self.has_drained, self.wakes = False, 0
        self.wake_s: float | None = -1.0
        self.units = self._units()
        self.arrivals = self._arrivals()
        self.orders = self._orders(factory)

    def _lifecycle(self) -> Lifecycle:
        return Lifecycle(
            self.workload,
            self.engine.cluster,
            self.system,
            groups=self.groups,
            deliver=lambda requests, to: self.deployer.deliver(requests, to),
            intake_s=_intake_s(self.workload, self.engine.costs),
            catch_up=self._catch_up,
        )

    def _units(self) -> Units | None:
        """Of applications; stepped groups read what compiled ones do.

        Raises ValueError where KV would be cached twice.
        """
        parts = self.lifecycle, self.timeline, self.compiled, self.told, self.recorder
        units = Units.of(*parts, self._in_order)
        self.stepper.contents = None if units is None else units.contents
        if self.stepper.contents is not None and self.engine.prefix_caching:
            raise ValueError(
                "engine.prefix_caching=true beside workload.adapters or workload.contexts: a run "
                "has one cache"
            )
        return units

    def _factory(self) -> GroupFactory:
        engine = self.engine
        return GroupFactory(
            state=self.state,
            services=self.lifecycle.services,
            costs=engine.costs,
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            most_share=engine.most_gpu_share,
            host_memory=engine.host_memory,
            swap_overlaps=engine.swap_overlaps,
            compiled=self.compiled,
            prefixes=Prefixes.of(self.workload) if engine.prefix_caching else None,
        )

    def _orders(self, factory: GroupFactory) -> Orders:
        return Orders(
            lifecycle=self.lifecycle,
            told=self.told,
            deciding=self.deciding,
            factory=factory,
            recorder=self.recorder,
            arrivals=self.arrivals,
            compiled=self.compiled,
            caches=PrefixCaches.of(self.compiled) if self.engine.prefix_caching else None,
        )

    def _arrivals(self) -> Arriving:
        # Which calls begin when is not known ahead where they may wait for backends.
        keeps = self.recorder.keep_events or self.state.backends is not None
        think_s = self.workload.think_s
        return Arriving(
            lifecycle=self.lifecycle,
            groups=self.groups,
            timeline=self.timeline,
            compiled=self.compiled,
            fast_forward=self.engine.fast_forward,
            are_heard=keeps or bool(self.told.subscribes - {Overran}),
            calls_are=keeps or bool(self.told.subscribes - {Overran} - TOLD),
            units=self.units,
            hand_over_s=self.engine.hand_over_s if think_s is None else think_s,
            tell=self.told.tell,
        )

    def _catch_up(self) -> None:
        """A policy is going to look at what groups have computed."""
        self.stepper.catch_up()
        self.compiled.settle()

    def _in_order(self, holders: bool) -> Ints:
        """Requests that wait for their KV, those of each group by the keys of its order now.

        With `holders` those that hold KV come before them.
        """
        self._catch_up()
        first, found = [], [np.zeros(0, np.int64)]
        for live in self.groups.values():
            ids, order = live.open_ids(), live.told.order
            holds = self.state.arrays.kv[ids] > 0
            if holders:
                first.append(ids[holds])
            ids = ids[~holds]
            if order is not None and len(ids):
                table = self.state.table(ids)
                key = order.keys(table)
                if isinstance(key, MovingKey):
                    key = key.at(table, np.arange(len(ids)))
                ids = ids[np.lexsort((ids, key))]
            found.append(ids)
        return np.concatenate([*first, *found])

    def _record(self, number: int, busy_s: Floats, rows: Floats) -> None:
        """What a compiled group has done."""
        group = self.orders.by_number[number].group
        self.recorder.intervals(group, GpuUse.BUSY, busy_s)
        self.recorder.iterations(group, rows)

    def _stepper(self, new_stepper: Callable[..., Stepper]) -> Stepper:
        return new_stepper(
            state=self.state,
            timeline=self.timeline,
            policy=self.system.scheduling,
            recorder=self.recorder,
            supports=self.engine.supports,
            fast_forward=self.engine.fast_forward and not self.deciding.is_timed,
            deciding=self.deciding,
            costs=self.engine.costs,
            slows_beyond_all=bool(self.engine.oversubscription_slows),
            hears=self.told.subscribes,
            heard=self.told.heard,
            tell=self.told.tell,
            finish=lambda request: self._finish(np.array([request])),
        )

    def _deployer(self, factory: GroupFactory) -> Deployer:
        return Deployer(
            lifecycle=self.lifecycle,
            groups=self.groups,
            timeline=self.timeline,
            stepper=self.stepper,
            compiled=self.compiled,
            costs=self.engine.costs,
            recorder=self.recorder,
            supports=self.engine.supports,
            new_group=factory.group,
            loads_first=self.engine.loads_first,
            told=self.told,
        )

    def loop(self) -> None:
        """Until all is answered, or the horizon. ValueError when some never can be answered."""
        horizon_s = np.inf if self.engine.horizon_s is None else self.engine.horizon_s
        self._arrive()
        self._prewarm()
        self._decide()
        while not self.lifecycle.is_over and self.state.now_s < horizon_s:
            soonest_s = min(self.timeline.next_s, self.arrivals.next_s, horizon_s)
            next_s, done = self._run_compiled(soonest_s)
            if horizon_s == np.inf:
                self._refuse_standstill(next_s)
            self.state.now_s = self.compiled.state["now_s"] = next_s
            if Iterated in self.told.subscribes:
                self.stepper.catch_up()
            self._finish(done)
            if self._may_be_compiled:
                self.orders.tell_overruns()
            self._happen_due()
            if self.units is not None:
                self.units.tell_ended()
            self._arrive()
            self._prewarm()
            if next_s < horizon_s:
                self._decide()
        self.deployer.end()
        if self.told.heard.promotions is not None:
            self.told.heard.promotions += int(self.compiled.state["promotions"])
        if self.units is not None:
            self.units.end()
        if not self.lifecycle.is_over:
            self.recorder.cut_off_s = self.state.now_s
            self.stepper.cut_off()

    @property
    def _may_be_compiled(self) -> bool:
        """Whether compiled code has had anything to do."""
        return bool(self.orders.by_number) or self.compiled.releases

    def _prewarm(self) -> None:
        if self.units is not None:
            self.units.prewarm()

    def _refuse_standstill(self, next_s: float) -> None:
        """Raise ValueError where nothing will ever happen again after the instant that is next."""
        kinds = Due.BATCH_ENDS, Due.UNIT_ENDS, Due.BACKEND_READY, Due.ARRIVAL, Due.PREDICTION
        comes = self.arrivals.next_s < np.inf or self.timeline.has(*kinds)
        if comes or self.compiled.is_working:
            self.wakes = 0
            return
        self.wakes += 1
        wakes = self.wakes if next_s < np.inf else None
        refuse_standstill(self.lifecycle.remaining, wakes=wakes, now_s=next_s)

    def _run_compiled(self, until_s: float) -> tuple[float, Ints]:
        """Run compiled groups to then, or to the first instant that concerns others.

        Returns that instant, and the requests answered by then, in order of their end.
        """
        if not self._may_be_compiled:
            return until_s, np.zeros(0, np.int64)
        compiled, turns = self.compiled, self.lifecycle.dispatching.turns
        services = self.lifecycle.workload.services
        facts = compiled.world.services
        facts[:, REMAINING] = list(self.lifecycle.remaining.values())
        facts[:, TURN] = [turns[service.id] for service in services]
        compiled.run(until_s)
        for service, turn in zip(services, facts[:, TURN].tolist(), strict=True):
            turns[service.id] = turn
        return float(compiled.state["now_s"]), compiled.take_done()

    def _happen_due(self) -> None:
        """All that is due now."""
        while due := self.timeline.pop_due(self.state.now_s):
            self._happen(*due)

    def _happen(self, kind: Due, subject: object) -> None:
        """One thing of the timeline. Policies are asked when all that is due has happened."""
        if kind is Due.BATCH_ENDS and isinstance(subject, Flight):
            self.stepper.end(subject)
        elif kind is Due.PREDICTION and isinstance(subject, Predicted):
            self.arrivals.predicted(subject)
        elif kind is Due.UNIT_ENDS and isinstance(subject, int):
            self.state.arrays.finished_s[subject] = self.state.now_s
            self._finish(np.array([subject]))
        elif kind is Due.BACKEND_READY and self.units is not None and isinstance(subject, str):
            self.units.loaded(ResourceId(subject))
        elif kind is Due.ARRIVAL and isinstance(subject, int):
            self.arrivals.released.append(subject)
        elif isinstance(subject, LiveGroup):
            if kind is Due.GROUP_STOPS:
                self.deployer.stopped(subject)
            elif kind is Due.GROUP_READY:
                self.deployer.ready(subject)
            elif subject.wakes_by(self.state.now_s):
                self.stepper.interrupt(subject)

    def _arrive(self) -> None:
        """Hand out the requests that have arrived."""
        arrivals, compiled = self.arrivals, self.compiled
        if self._may_be_compiled and (outside := compiled.take_outside()):
            self.orders.take_over(outside)
            arrivals.released += outside
        if arrivals.next_s <= self.state.now_s or arrivals.released:
            arrivals.hand_out()
        if arrivals.has_handed_over:
            arrivals.has_handed_over = False
            self.orders.tell_coming()

    def _decide(self) -> None:
        """Ask for a placement if one is due, then every group that can do something."""
        self.arrivals.settle()
        self._place_if_due()
        # Groups that stop or load at once have done so before others are asked. Keys are told
        # afterwards, since policies observe events of both.
        self._happen_due()
        self.orders.look_again(self.groups.values(), self.arrivals.fresh, self.stepper)
        for live in self.groups.values():
            if live.inbox:
                self.stepper.interrupt(live)
            if live.is_ready:
                self._ask(live)
        self.orders.refresh()

    def _place_if_due(self) -> None:
        """Ask for a deployment where a service has drained, or it is time to."""
        life, now_s = self.lifecycle, self.state.now_s
        is_due = self.has_drained or (self.wake_s is not None and self.wake_s <= now_s)
        self.has_drained = False
        if not is_due or life.is_over:
            return
        self._catch_up()
        deployment = ask_deployment(self.system.placement, life.view, self.recorder)
        self.wake_s = deployment.wake_s
        if deployment.wake_s is not None:
            self.timeline.add(deployment.wake_s, Due.PLACEMENT_WAKES)
        if deployment != self.state.deployment:
            self.deployer.deploy(deployment)

    def _ask(self, live: LiveGroup) -> None:
        if not live.is_compiled:
            decision = self.stepper.ask(live)
            if decision is not None and decision.priority_order is not None:
                self.orders.follow(live, decision.priority_order)
        elif live.inbox:
            self.orders.take_in(live)

    def _finish(self, requests: Ints) -> None:
        """Count finished requests and notice when a service is drained."""
        if not len(requests):
            return
        asked = requests if self.units is None else self.units.note(requests)
        if self.told.wants(Finished):
            for request in asked.tolist():
                finished_s = float(self.state.arrays.finished_s[request])
                tokens = int(self.workload.output_tokens[request])
                self.told.tell(Finished(finished_s, self.state.facts(request), tokens))
        self.has_drained |= self.lifecycle.answered(requests)
        if self.workload.answers_release:
            self.arrivals.release(requests)
