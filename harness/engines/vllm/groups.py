"""The groups of a run on real vLLM: which are loading, live or leaving, and what waits for them.

One deployment is turned into another as in the simulator: a group that is to go ends its iteration,
gives its requests back with the tokens they have, and frees its GPUs, unless it goes on under its
name with other services; a group whose GPUs are all free loads; the requests of a service go to its
groups, or wait for one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from harness.engines.ask import refuse_gpus, refuse_shared_groups
from harness.engines.state import Ints
from harness.engines.told_keys import Heard
from harness.engines.vllm.group import (
    EngineSettings,
    Report,
    Resolved,
    Submission,
    VllmGroup,
    new_engines,
)
from harness.engines.vllm.measured import Life
from harness.engines.vllm.options import VllmOptions
from harness.engines.vllm.processor import has_gpus
from harness.engines.vllm.ray import GroupLost, RayGroup
from harness.engines.vllm.served import SUPPORTS
from harness.interface.decisions import Deployment
from harness.interface.entities import (
    Cluster,
    GpuId,
    Group,
    GroupId,
    LengthPrediction,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.events import Event
from harness.interface.policies import SchedulingPolicy

GroupHandle: TypeAlias = VllmGroup | RayGroup
"""One group being served, in this process or another: what both have is asked of either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoader:
    """Starts groups that decide by one policy; times are of `clock`, in seconds.

    `heard` counts what the policy object here has observed, for the groups of this process.
    """

    options: VllmOptions
    policy: SchedulingPolicy
    services: dict[ServiceId, Service]
    clock: Callable[[], float]
    keeps_answers: bool
    heard: Heard = field(default_factory=Heard)

    def start(self, group: Group) -> GroupHandle:
        """Start a group's engines, or take some that are loaded."""
        services, settings = self._wanted(group)
        if self.options.ray:
            return RayGroup.start(
                settings,
                group=group,
                services=services,
                policy=self.policy,
                keep_answers=self.keeps_answers,
                on_gpus=has_gpus(),
            )
        served = self.options.loaded.pop(settings, None)
        if served is None:
            served = VllmGroup(new_engines(settings), self.keeps_answers, settings)
        served.keep_answers = self.keeps_answers
        served.use(self.policy, group=group, services=services, clock=self.clock, heard=self.heard)
        return served

    def change(self, served: RayGroup, group: Group) -> None:
        """Start to load what a process lacks of another group on the same GPUs."""
        services, settings = self._wanted(group)
        served.change(settings, group=group, services=services)

    def _wanted(self, group: Group) -> tuple[list[Service], tuple[EngineSettings, ...]]:
        services = [self.services[name] for name in sorted(group.services)]
        return services, self.options.settings(services, group)

    def keep(self, group: GroupHandle) -> bool:
        """Whether a group stays loaded: idle ones of this process if asked to, one of a kind."""
        if not self.options.keep_loaded or not isinstance(group, VllmGroup) or group.has_work:
            return False
        return self.options.loaded.setdefault(group.settings, group) is group


@dataclass(slots=True, kw_only=True)
class Groups:
    """Every group of a run, by its state.

    `account` takes reports, `give_back` requests that are in no group any more, `lost` a group
    whose process has died; `dead` has all of these. `waiting` has the requests that were dispatched
    to groups which are not live yet. A group with the name and the GPUs of one that has left is the
    same process, which changes: it loads only what it lacks, and computes nothing meanwhile.
    `resolved` has, by name, how the engines of groups that have loaded were configured.
    """

    cluster: Cluster
    loader: GroupLoader
    clock: Callable[[], float]
    epoch_s: Callable[[], float]
    account: Callable[[Group, Report], None]
    give_back: Callable[[Sequence[Submission]], None]
    lost: Callable[[RayGroup, GroupLost], None]
    deployment: Deployment = field(default_factory=lambda: Deployment(()))
    live: dict[GroupId, GroupHandle] = field(default_factory=dict)
    loading: dict[GroupId, RayGroup] = field(default_factory=dict)
    leaving: list[RayGroup] = field(default_factory=list)
    waiting: dict[GroupId, list[Submission]] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    dead: list[RayGroup] = field(default_factory=list)
    predicted: dict[RequestId, LengthPrediction] = field(default_factory=dict)
    resolved: dict[GroupId, Resolved] = field(default_factory=dict)

    def deploy(self, wanted: Deployment) -> set[ServiceId]:
        """Make `wanted` the deployment; returns the services whose groups have changed.

        Raises ValueError when it cannot be.
        """
        refuse_gpus(wanted, self.cluster)
        refuse_shared_groups(wanted, SUPPORTS)
        before = set(self.deployment.groups)
        changed = {s for g in before.symmetric_difference(wanted.groups) for s in g.services}
        self.deployment = wanted
        for group in before:
            if group not in wanted.groups:
                self._end(group)
            elif group.services & changed:
                self._relieve(group)
        for group in wanted.groups:
            self.waiting.setdefault(group.id, [])
        self.advance()
        return changed

    def _end(self, group: Group) -> None:
        """A group goes: at once where it has not loaded, else when its iteration is over."""
        self.give_back(self.waiting.pop(group.id))
        if group.id in self.live:
            served = self.live.pop(group.id)
            assert isinstance(served, RayGroup)
            served.leave(everything=True)
            self.leaving.append(served)
        elif group.id in self.loading:
            self.loading.pop(group.id).stop()
            life = self._life(group)
            life.ready_s = life.ended_s = self.clock()

    def _relieve(self, group: Group) -> None:
        """A service has other groups too from now on: requests that have not begun may go there."""
        self.give_back(self.waiting[group.id])
        self.waiting[group.id] = []
        served = self.live.get(group.id)
        if served is not None:
            assert isinstance(served, RayGroup)
            served.leave(everything=False)

    def submit(self, group: GroupId, submissions: list[Submission]) -> None:
        """Requests for a group of the deployment, live or not."""
        if group in self.live:
            self._hand(self.live[group], submissions)
        else:
            self.waiting[group].extend(submissions)

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A prediction is ready; whichever group takes the request later hears of it then."""
        self.predicted[request] = length
        for served in self.live.values():
            served.predict(request, length)

    def _hand(self, served: GroupHandle, submissions: list[Submission]) -> None:
        served.submit(submissions)
        for submission in submissions:
            request = submission.facts.id
            if request in self.predicted:
                served.predict(request, self.predicted[request])

    def unanswered(self, group: GroupId) -> Ints:
        """Requests given to a group of the deployment, live or not, less those it has answered."""
        given: list[int] = [submission.facts.id for submission in self.waiting[group]]
        if group in self.live:
            given.extend(self.live[group].unanswered)
        return np.array(sorted(given), np.int64)

    def advance(self) -> bool:
        """Note groups that left or loaded, load where GPUs are free. Whether anything happened."""
        happened = False
        relieved = [s for s in self.live.values() if isinstance(s, RayGroup) and s.leaving]
        for served in (*self.leaving, *relieved):
            happened |= self._note_left(served)
        for served in list(self.loading.values()):
            happened |= self._note_loaded(served)
        for group in self.deployment.groups:
            is_there = group.id in self.live or group.id in self.loading
            if not is_there and not self._occupied & set(group.gpus):
                self._load(group)
                happened = True
        return happened

    def _note_loaded(self, served: RayGroup) -> bool:
        """Begin to serve with a group that has loaded, or replace it. Whether either happened."""
        name = served.group.id
        try:
            if not served.has_loaded:
                return False
        except GroupLost as error:
            if not served.has_begun:
                raise
            del self.loading[name]
            self._life(served.group).ended_s = self.clock()
            self.lose(served, error)
            return True
        del self.loading[name]
        self._begin(name, served)
        return True

    def hear(self, events: Sequence[Event], *, but: GroupId | None) -> None:
        """Tell the copies of the policy in other processes, also of groups that load or leave."""
        for served in (*self.live.values(), *self.loading.values(), *self.leaving):
            if isinstance(served, RayGroup) and served.group.id != but:
                served.hear(events)

    @property
    def have_work(self) -> bool:
        """Whether a request waits in a live group."""
        return any(served.has_work for served in self.live.values())

    @property
    def come_and_go(self) -> bool:
        """Whether any is still to load, or to leave."""
        return bool(self.loading or self.leaving or any(self.waiting.values()))

    @property
    def _occupied(self) -> set[GpuId]:
        """GPUs with a group on them, in whatever state."""
        return {gpu for life in self.lives if life.ended_s == np.inf for gpu in life.group.gpus}

    def _life(self, group: Group) -> Life:
        """The life of a group that has not ended."""
        return next(life for life in self.lives if life.group == group and life.ended_s == np.inf)

    def _load(self, group: Group) -> None:
        self.lives.append(Life(group, self.clock()))
        served = self.loader.start(group)
        if isinstance(served, RayGroup):
            self.loading[group.id] = served
        else:
            self._begin(group.id, served)

    def _begin(self, name: GroupId, served: GroupHandle) -> None:
        """A group has loaded: it takes what has waited for it."""
        self.live[name] = served
        self.resolved[name] = served.resolved
        self._life(served.group).ready_s = self.clock()
        if isinstance(served, RayGroup):
            served.begin(self.epoch_s())
        if self.waiting[name]:
            self._hand(served, self.waiting[name])
            self.waiting[name] = []

    def _note_left(self, served: RayGroup) -> bool:
        """Take the requests that a group has given up, and its GPUs if it goes. False: not yet."""
        try:
            gone = served.left()
        except GroupLost as error:
            self.lose(served, error)
            return True
        if gone is None:
            return False
        self.account(served.group, served.report())
        if served in self.leaving:
            self._succeed(served)
        self.give_back(gone)
        return True

    def _succeed(self, left: RayGroup) -> None:
        """A group has left: its process ends, or goes on as the next of its name on its GPUs."""
        before, now_s = left.group, self.clock()
        self.leaving.remove(left)
        self._life(before).ended_s = now_s
        for group in self.deployment.groups:
            if (group.id, group.gpus) == (before.id, before.gpus):
                self.lives.append(Life(group, now_s))
                self.loading[group.id] = left
                self.loader.change(left, group)
                return
        left.stop()

    def lose(self, served: RayGroup, error: GroupLost) -> None:
        """A process has died: tokens and answers that it has reported count."""
        self.account(served.group, served.report())
        served.leaving.clear()
        if served in self.leaving:
            self.leaving.remove(served)
            self._life(served.group).ended_s = self.clock()
        if served not in self.dead:
            self.dead.append(served)
        served.stop()
        self.lost(served, error)

    def restart(self, died: RayGroup) -> None:
        """Start another process for a group that is to stay, without its requests."""
        name = died.group.id
        if self.live.get(name) is died:
            del self.live[name]
            again = self.loader.start(died.group)
            assert isinstance(again, RayGroup)
            self.loading[name] = again

    def wait(self) -> None:
        """Until every group of the deployment has loaded, which `advance` then notes.

        GroupLost where one does not.
        """
        for served in self.loading.values():
            served.wait()

    def stop(self) -> None:
        """End all groups that are not kept."""
        for served in (*self.live.values(), *self.loading.values(), *self.leaving):
            if not self.loader.keep(served):
                served.stop()
