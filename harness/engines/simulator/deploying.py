"""Turns one deployment into another: stops groups, loads groups, takes their requests back."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.engines.ask import refuse_gpus, refuse_shared_groups
from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.live import LiveState
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.kernel import loop
from harness.engines.simulator.rules import refuse_unfit
from harness.engines.simulator.stepping import Stepper
from harness.engines.simulator.timeline import Due, Timeline
from harness.interface.decisions import Deployment
from harness.interface.entities import GpuId, Group, GroupId, RequestId, ServiceId
from harness.interface.events import Arrived, Moved
from harness.interface.policies import Capability, CostModel


@dataclass(slots=True, kw_only=True)
class Deployer:
    """Which groups are live, loading, stopping or still waiting for GPUs.

    With `loads_first` the clock starts when the first deployment has loaded: that takes no time on
    it. A group that is to go ends its iteration in flight first. Its unfinished requests keep what
    they have generated, lose their KV, and go to the groups of their service, or wait for one.
    `resident` has, by name, the group that last loaded, as long as no other has come to its GPUs:
    its successor of that name on just those GPUs is the same engine. It does not start again, reads
    only the services that it does not have, and meanwhile serves the others.
    """

    lifecycle: Lifecycle
    groups: dict[GroupId, LiveGroup]
    timeline: Timeline
    stepper: Stepper
    compiled: CompiledGroups
    costs: CostModel
    recorder: Recorder
    supports: frozenset[Capability]
    new_group: Callable[[Group], LiveGroup]
    loads_first: bool
    told: Listeners
    stopping: list[LiveGroup] = field(default_factory=list)
    occupied: dict[GpuId, LiveGroup] = field(default_factory=dict)
    announced: set[int] = field(default_factory=set)
    resident: dict[GroupId, Group] = field(default_factory=dict)

    @property
    def state(self) -> LiveState:
        """What all groups share."""
        return self.lifecycle.state

    def deploy(self, wanted: Deployment) -> None:
        """Make `wanted` the deployment. Raises ValueError when it cannot be."""
        self._refuse(wanted)
        old = {live.group for live in self.groups.values() if not live.is_stopping}
        changed = {s for g in old.symmetric_difference(wanted.groups) for s in g.services}
        self.state.deployment = wanted
        for live in list(self.groups.values()):
            if live.group not in wanted.groups:
                self._stop(live)
            elif live.group.services & changed:
                self._withdraw_waiting(live, changed)
        for group in wanted.groups:
            if group.id not in self.groups:
                self.groups[group.id] = self.new_group(group)
        self._load_where_free()
        self.lifecycle.dispatching.changed |= changed
        for service in sorted(changed):
            self.lifecycle.hand_out(service)

    def _refuse(self, wanted: Deployment) -> None:
        refuse_gpus(wanted, self.state.cluster)
        refuse_shared_groups(wanted, self.supports)
        for group in wanted.groups:
            for service in group.services:
                if service not in self.lifecycle.services:
                    raise ValueError(f"a deployment serves {service}, which this run does not know")
            refuse_unfit(self.costs, group.services, group.tensor_parallel)

    def _stop(self, live: LiveGroup) -> None:
        """Let a group end its iteration, then free its GPUs."""
        del self.groups[live.group.id]
        self.lifecycle.reading.pop(live.group.id, None)
        now_s = self.state.now_s
        loaded = live.ready_s <= now_s
        self.stepper.interrupt(live)
        ends_s = [flight.ends_s for flight in self.stepper.under_way(live)]
        live.stop_s = max(ends_s, default=now_s)
        if live.is_compiled:
            live.stop_s = max(now_s, self.compiled.stop(live.number))
        if not loaded:
            self._record_load(live)
        self.stopping.append(live)
        self.timeline.add(live.stop_s, Due.GROUP_STOPS, live)

    def stopped(self, live: LiveGroup) -> None:
        """The last iteration of a stopping group is over."""
        self.stopping.remove(live)
        self._withdraw_all(live)
        for call in self.compiled.leave_delayed(live.number):
            self.lifecycle.belongs(call, live.group.id)
        self.compiled.close(live.number)
        for gpu in live.group.gpus:
            if self.occupied.get(gpu) is live:
                del self.occupied[gpu]
        self._load_where_free()
        for service in sorted(live.group.services):
            self.lifecycle.hand_out(service)

    def end(self) -> None:
        """Report what all have done by now, groups that are loading still among them.

        Of an iteration that is cut off, the part up to now.
        """
        now_s = self.state.now_s
        self.compiled.settle()
        for live in [*self.groups.values(), *self.stopping]:
            begun_s, ends_s = self.compiled.boundary_s(live.number)
            self.compiled.close(live.number)
            if live.is_compiled and ends_s > now_s:
                span_s = np.array([[begun_s, now_s]])
                self.recorder.intervals(live.group, GpuUse.BUSY, span_s)
        for live in self.groups.values():
            if live.ready_s > self.state.now_s:
                self._record_load(live)

    def _record_load(self, live: LiveGroup) -> None:
        """Report that a group has been loading until now, if it has begun."""
        if np.isfinite(live.ready_s) and self.state.now_s > live.loads_from_s:
            span_s = [live.loads_from_s, self.state.now_s]
            self.recorder.intervals(live.group, GpuUse.LOADING, np.array([span_s]))

    def _load_where_free(self) -> None:
        """Start loading every wanted group all of whose GPUs are free."""
        starting: list[tuple[LiveGroup, Group | None]] = []
        for live in self.groups.values():
            if live.ready_s < np.inf or any(gpu in self.occupied for gpu in live.group.gpus):
                continue
            for gpu in live.group.gpus:
                self.occupied[gpu] = live
            starting.append((live, self._predecessor(live.group)))
        replicas = Counter(s for live, before in starting for s in _missing(live.group, before))
        for live, before in starting:
            self._load(live, before, replicas)

    def _load(
        self, live: LiveGroup, before: Group | None, replicas: Mapping[ServiceId, int]
    ) -> None:
        """Start loading a group, as the same engine as `before` if there is one."""
        live.loads_from_s = self.state.now_s
        missing = _missing(live.group, before)
        has_loaded = self.loads_first and live.loads_from_s == 0
        load_s = 0.0 if has_loaded else self._load_s(live, missing, before is None, replicas)
        kept = live.group.services - missing
        live.ready_s = live.loads_from_s + (0.0 if kept else load_s)
        if before is not None:
            self.resident[live.group.id] = replace(live.group, services=kept)
        if kept and load_s:
            self.lifecycle.reading[live.group.id] = missing
        self.timeline.add(live.loads_from_s + load_s, Due.GROUP_READY, live)

    def _predecessor(self, group: Group) -> Group | None:
        """The namesake that has loaded on just the GPUs of a group, which now are the group's.

        A group of another name is another engine, which finds nothing loaded.
        """
        before = self.resident.get(group.id)
        for name, other in list(self.resident.items()):
            if set(other.gpus) & set(group.gpus):
                del self.resident[name]
        return before if before is not None and before.gpus == group.gpus else None

    def _load_s(
        self,
        live: LiveGroup,
        missing: frozenset[ServiceId],
        starts: bool,
        replicas: Mapping[ServiceId, int],
    ) -> float:
        """Seconds until all these are loaded, beside so many `replicas` of each.

        They start side by side, if the engine `starts`; the weights come one after the other.
        """
        degree, start_s, read_s = live.group.tensor_parallel, 0.0, 0.0
        for service in sorted(missing):
            whole_s = self.costs.load_s(service, degree, replicas=replicas[service])
            if starts and len(missing) == 1:
                return whole_s
            alone_s = self.costs.start_s(service, degree)
            start_s, read_s = max(start_s, alone_s), read_s + whole_s - alone_s
        return start_s + read_s if starts else read_s

    def ready(self, live: LiveGroup) -> bool:
        """A group has loaded. False if it was stopped meanwhile."""
        if live.is_stopping:
            return False
        self.resident[live.group.id] = live.group
        if live.ready_s > live.loads_from_s:
            self._record_load(live)
        read = self.lifecycle.reading.pop(live.group.id, frozenset())
        self.lifecycle.dispatching.changed |= read
        for service in sorted(read):
            self.lifecycle.hand_out(service)
        return True

    def _withdraw_all(self, live: LiveGroup) -> None:
        """Take every request out of a group; what has KV loses it."""
        taken = list(live.inbox)
        live.inbox.clear()
        if live.is_compiled:
            self.compiled.settle()
            taken += self.compiled.withdraw(live.number, everything=True).tolist()
        for request in list(live.members):
            live.let_go(request)
            taken.append(request)
        self._hold_back(taken, live)

    def _withdraw_waiting(self, live: LiveGroup, services: Container[ServiceId]) -> None:
        """Take the requests of some services out of a group, where they hold no KV."""
        service_of = self.state.workload.service_of
        taken = [request for request in live.inbox if service_of(request) in services]
        live.inbox = [request for request in live.inbox if service_of(request) not in services]
        if live.is_compiled:
            index = [i for i, s in enumerate(self.lifecycle.services) if s in services]
            compiled = self.compiled
            taken += compiled.withdraw(live.number, everything=False, services=index).tolist()
        live.refresh()
        for request, view in list(live.members.items()):
            holds = view.kv_tokens or view.swapped_tokens
            waits = not holds and not view.is_running
            if waits and view.facts.service in services:
                live.let_go(request)
                taken.append(request)
        self._hold_back(taken, live)

    def _hold_back(self, requests: Iterable[int], live: LiveGroup) -> None:
        """Requests have left a group."""
        for request in requests:
            live.told.forget(RequestId(request))
            self.lifecycle.hold_back(self.state.workload.service_of(request), [request])

    def deliver(self, requests: Sequence[int], groups: Sequence[GroupId]) -> None:
        """Each request comes to its group."""
        for request, group in zip(requests, groups, strict=True):
            self._receive(request, self.groups[group])
        if self.told.wants(Arrived) or self.told.wants(Moved):
            for request, group in zip(requests, groups, strict=True):
                self._announce(request, group)

    def _receive(self, request: int, live: LiveGroup) -> None:
        """A request comes to a group, which takes it in before its next iteration."""
        live.inbox.append(request)
        if not live.is_compiled:
            live.told.promotions.come(RequestId(request))
        first_s, more_s = live.received_s[self.state.workload.service_of(request)]
        if first_s == 0.0:
            return
        if live.is_compiled:
            loop.receive(self.compiled.world, live.number, first_s, more_s)
        else:
            live.receiving_s += more_s if live.receiving_s > 0.0 else first_s
            self.stepper.interrupt(live)

    def _announce(self, request: int, group: GroupId) -> None:
        """Tell of a request's first group as its arrival, of any other as a move."""
        kind = Moved if request in self.announced else Arrived
        self.announced.add(request)
        if self.told.wants(kind):
            self.told.tell(kind(self.state.now_s, self.state.facts(request), group))


def _missing(group: Group, before: Group | None) -> frozenset[ServiceId]:
    """Services of a group that its predecessor has not loaded."""
    return group.services - (before.services if before is not None else frozenset())
