"""Turns one deployment into another: stops groups, loads groups, hands requests around."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from harness.engines.live_state import LiveCluster, LiveGroup, LiveState
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.stepping import Flight
from harness.engines.simulator.timeline import Kind, Timeline
from harness.interface.decisions import Deployment
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.events import Arrived, Deployed, Event, Moved
from harness.interface.policies import CostModel, DispatchPolicy


class Steps(Protocol):
    """Who computes batches, as far as a deployment needs it."""

    @property
    def flights(self) -> Mapping[int, Flight]:
        """Batches being computed, by `id` of their live group."""

    def interrupt(self, live: LiveGroup) -> None:
        """Something happened to a group."""


@dataclass(slots=True)
class Deployer:
    """Which groups are live, loading, stopping or still waiting for GPUs.

    A group that is to go ends its iteration in flight first. Its unfinished requests keep what
    they have generated, lose their KV, and go to the groups of their service, or wait for one.
    The next call of a chain goes to the group that answered the one before it, if that still is.
    """

    state: LiveState
    view: LiveCluster
    timeline: Timeline
    stepper: Steps
    costs: CostModel
    dispatch: DispatchPolicy
    recorder: Recorder
    new_group: Callable[[Group], LiveGroup]
    tell: Callable[[Event], None]
    wants: Callable[[type[Event]], bool]
    stopping: list[LiveGroup] = field(default_factory=list)
    occupied: dict[GpuId, LiveGroup] = field(default_factory=dict)
    held_back: dict[ServiceId, list[int]] = field(default_factory=dict)
    announced: set[int] = field(default_factory=set)
    home: dict[int, GroupId] = field(default_factory=dict)
    following: dict[int, GroupId] = field(default_factory=dict)

    def deploy(self, wanted: Deployment) -> None:
        """Make `wanted` the deployment. Raises ValueError when it cannot be."""
        self._refuse(wanted)
        state = self.state
        old = {live.group for live in state.groups.values() if not live.is_stopping}
        changed = {s for g in old.symmetric_difference(wanted.groups) for s in g.services}
        state.deployment = wanted
        for live in list(state.groups.values()):
            if live.group not in wanted.groups:
                self._stop(live)
            elif live.group.services & changed:
                self._withdraw(live, everything=False)
        for group in wanted.groups:
            if group.id not in state.groups:
                state.groups[group.id] = self.new_group(group)
        self._load_where_free()
        for service in sorted(changed):
            self.hand_out(service)

    def _refuse(self, wanted: Deployment) -> None:
        used = [gpu for group in wanted.groups for gpu in group.gpus]
        if unknown := set(used) - set(self.state.cluster.gpus):
            count = len(self.state.cluster.gpus)
            raise ValueError(f"a deployment uses GPU {min(unknown)}, the cluster has {count}")
        if len(set(used)) < len(used):
            twice = next(gpu for gpu in used if used.count(gpu) > 1)
            raise ValueError(f"a deployment puts two groups on GPU {twice}")
        for group in wanted.groups:
            for service in group.services:
                if service not in self.view.services:
                    raise ValueError(f"a deployment serves {service}, which this run does not know")
                if self.costs.kv_blocks(service, group.tensor_parallel) <= 0:
                    raise ValueError(
                        f"{service} does not fit {group.tensor_parallel} GPUs of this cluster"
                    )

    def _stop(self, live: LiveGroup) -> None:
        """Let a group end its iteration, then free its GPUs."""
        del self.state.groups[live.group.id]
        now_s = self.state.now_s
        loaded = live.ready_s <= now_s
        self.stepper.interrupt(live)
        flight = self.stepper.flights.get(id(live))
        live.stop_s = now_s if flight is None else flight.ends_s
        if live.replica is not None:
            live.stop_s = max(now_s, live.replica.flight_ends_s)
        if not loaded and np.isfinite(live.ready_s):
            load_s = self._load_s(live.group)
            self.recorder.intervals(
                live.group, GpuUse.LOADING, np.array([[live.ready_s - load_s, now_s]])
            )
        self.stopping.append(live)
        self.timeline.add(live.stop_s, Kind.GROUP_STOPS, live)

    def stopped(self, live: LiveGroup) -> None:
        """The last iteration of a stopping group is over."""
        self.stopping.remove(live)
        self._withdraw(live, everything=True)
        self.record_replica(live)
        for gpu in live.group.gpus:
            if self.occupied.get(gpu) is live:
                del self.occupied[gpu]
        self._load_where_free()
        for service in sorted(live.group.services):
            self.hand_out(service)

    def record_replica(self, live: LiveGroup) -> None:
        """Report what a replica has done."""
        if live.replica is not None:
            self.recorder.intervals(live.group, GpuUse.BUSY, live.replica.busy_s().copy())
            self.recorder.iterations(live.group, live.replica.log())

    def _load_where_free(self) -> None:
        """Start loading every wanted group all of whose GPUs are free."""
        now_s = self.state.now_s
        for live in self.state.groups.values():
            if live.ready_s < np.inf or any(gpu in self.occupied for gpu in live.group.gpus):
                continue
            for gpu in live.group.gpus:
                self.occupied[gpu] = live
            live.ready_s = now_s + self._load_s(live.group)
            self.timeline.add(live.ready_s, Kind.GROUP_READY, live)

    def _load_s(self, group: Group) -> float:
        """Services of a group load one after the other."""
        return sum(
            self.costs.load_s(service, group.tensor_parallel) for service in sorted(group.services)
        )

    def ready(self, live: LiveGroup) -> bool:
        """A group has loaded. False if it was stopped meanwhile."""
        if live.is_stopping:
            return False
        now_s, groups = self.state.now_s, self.state.groups.values()
        span_s = [now_s - self._load_s(live.group), now_s]
        self.recorder.intervals(live.group, GpuUse.LOADING, np.array([span_s]))
        if all(other.ready_s <= now_s for other in groups):
            self.tell(Deployed(now_s, self.state.deployment))
        return True

    def _withdraw(self, live: LiveGroup, *, everything: bool) -> None:
        """Take requests out of a group: those without KV, or all."""
        taken = list(live.inbox)
        live.inbox.clear()
        if live.replica is not None:
            taken += live.replica.withdraw(everything=everything).tolist()
        for request, view in list(live.members.items()):
            if everything or (view.kv_tokens == 0 and not view.is_running):
                if view.kv_tokens > 0:
                    self.state.arrays.preemptions[request] += 1
                    self.state.arrays.preempted_at_s[request] = self.state.now_s
                    self.state.arrays.kv[request] = 0
                live.kv.close(request)
                del live.members[request]
                taken.append(request)
        for taken_id in taken:
            service = self.state.workload.service_of(taken_id)
            self.held_back.setdefault(service, []).append(taken_id)

    def hand_out(self, service: ServiceId) -> None:
        """Dispatch a service's requests that are in no group, if it has groups."""
        requests = sorted(self.held_back.pop(service, []))
        homes = [g.id for g in self.state.deployment.groups if service in g.services]
        if not homes or not requests:
            self.held_back[service] = requests
            return
        chosen = self._dispatch(requests, service, homes)
        for request, group in zip(requests, chosen, strict=True):
            if group not in homes:
                raise ValueError(
                    f"r{request} of {service} was dispatched to {group}, which does not serve it"
                )
            self.state.groups[group].inbox.append(request)
        if len(self.state.workload.edges):
            self.home.update(zip(requests, chosen, strict=True))
        if self.wants(Arrived) or self.wants(Moved):
            for request, group in zip(requests, chosen, strict=True):
                self._announce(request, group)

    def _dispatch(
        self, requests: list[int], service: ServiceId, homes: list[GroupId]
    ) -> list[GroupId]:
        """A group for each request: where its predecessor was, else as the policy says."""
        known = {r: self.following.pop(r) for r in requests if r in self.following}
        known = {r: group for r, group in known.items() if group in homes}
        asked = [r for r in requests if r not in known]
        if asked:
            known |= zip(asked, self.dispatch.dispatch(asked, service, self.view), strict=True)
        return [known[r] for r in requests]

    def follow(self, request: int, follower: int, *, is_there: bool) -> None:
        """A call of a chain has been answered: the next one belongs where it was, or is there."""
        group = self.home.pop(request)
        self.home[follower] = group
        if not is_there:
            self.following[follower] = group

    def _announce(self, request: int, group: GroupId) -> None:
        """Tell of a request's first group as its arrival, of any other as a move."""
        kind = Moved if request in self.announced else Arrived
        self.announced.add(request)
        if self.wants(kind):
            self.tell(kind(self.state.now_s, self.state.facts(request), group))
