"""The groups of a run on real vLLM: which are loading, live or leaving, and what waits for them.

One deployment is turned into another as in the simulator: a group that is to go ends its iteration,
gives its requests back with the tokens they have, and frees its GPUs; a group whose GPUs are all
free loads; the requests of a service go to its groups, or wait for one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from harness.engines.ask import refuse_gpus, refuse_shared_groups
from harness.engines.state import Ints
from harness.engines.vllm.group import Report, Submission
from harness.engines.vllm.measured import Life
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
    ServiceId,
)
from harness.interface.events import Event


class Served(Protocol):
    """One group being served, in this process or another."""

    @property
    def has_work(self) -> bool:
        """Whether anybody is unanswered."""

    @property
    def unanswered(self) -> Collection[RequestId]:
        """Requests that it has been given and has not reported as finished."""

    @property
    def wake_s(self) -> float | None:
        """Until when nothing will run unless something happens."""

    def submit(self, submissions: list[Submission]) -> None:
        """Requests come in."""

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""

    def hear(self, events: Sequence[Event]) -> None:
        """What has happened elsewhere, where its policy is not the same object."""

    def step(self) -> None:
        """Compute, or let compute."""

    def report(self) -> Report:
        """What has been done since the last report."""

    def stop(self) -> None:
        """End it."""


@dataclass(slots=True, kw_only=True)
class Groups:
    """Every group of a run, by its state.

    `start` asks for a group; one in this process has loaded when it returns. `account` takes
    reports, `give_back` requests that are in no group any more. `waiting` has the requests that
    were dispatched to groups which are not live yet.
    """

    cluster: Cluster
    start: Callable[[Group], Served]
    clock: Callable[[], float]
    epoch_s: Callable[[], float]
    account: Callable[[GroupId, Report], None]
    give_back: Callable[[Sequence[Submission]], None]
    deployment: Deployment = field(default_factory=lambda: Deployment(()))
    live: dict[GroupId, Served] = field(default_factory=dict)
    loading: dict[GroupId, RayGroup] = field(default_factory=dict)
    leaving: dict[GroupId, RayGroup] = field(default_factory=dict)
    waiting: dict[GroupId, list[Submission]] = field(default_factory=dict)
    lives: dict[GroupId, Life] = field(default_factory=dict)

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
            self.leaving[group.id] = served
        elif group.id in self.loading:
            self.loading.pop(group.id).stop()
            life = self.lives[group.id]
            life.ready_s = life.ended_s = self.clock()

    def _relieve(self, group: Group) -> None:
        """A service has other groups too from now on: who has not begun may go there."""
        self.give_back(self.waiting[group.id])
        self.waiting[group.id] = []
        served = self.live.get(group.id)
        if served is not None:
            assert isinstance(served, RayGroup)
            served.leave(everything=False)

    def submit(self, group: GroupId, submissions: list[Submission]) -> None:
        """Requests for a group of the deployment, live or not."""
        if group in self.live:
            self.live[group].submit(submissions)
        else:
            self.waiting[group].extend(submissions)

    def unanswered(self, group: GroupId) -> Ints:
        """Requests given to a group of the deployment, live or not, less those it has answered."""
        given: list[int] = [submission.facts.id for submission in self.waiting[group]]
        if group in self.live:
            given.extend(self.live[group].unanswered)
        return np.array(sorted(given), np.int64)

    def advance(self) -> bool:
        """Note who has left and loaded, load where GPUs are free. Whether anything happened."""
        happened = False
        relieved = [s for s in self.live.values() if isinstance(s, RayGroup) and s.leaving]
        for served in (*self.leaving.values(), *relieved):
            happened |= self._note_left(served)
        for name, served in list(self.loading.items()):
            if served.has_loaded:
                del self.loading[name]
                self._begin(name, served)
                happened = True
        for group in self.deployment.groups:
            if group.id not in self.lives and not self._occupied & set(group.gpus):
                self._load(group)
                happened = True
        return happened

    def hear(self, events: Sequence[Event], *, but: GroupId | None) -> None:
        """Tell the copies of the policy in other processes, those that load included."""
        for name, served in (*self.live.items(), *self.loading.items()):
            if name != but and isinstance(served, RayGroup):
                served.hear(events)

    @property
    def have_work(self) -> bool:
        """Whether anybody waits in a group that is live."""
        return any(served.has_work for served in self.live.values())

    @property
    def come_and_go(self) -> bool:
        """Whether any is still to load, or to leave."""
        return bool(self.loading or self.leaving or any(self.waiting.values()))

    @property
    def _occupied(self) -> set[GpuId]:
        """GPUs with a group on them, in whatever state."""
        return {
            gpu for life in self.lives.values() if life.ended_s == np.inf for gpu in life.group.gpus
        }

    def _load(self, group: Group) -> None:
        self.lives[group.id] = Life(group, self.clock())
        served = self.start(group)
        if isinstance(served, RayGroup):
            self.loading[group.id] = served
        else:
            self._begin(group.id, served)

    def _begin(self, name: GroupId, served: Served) -> None:
        """A group has loaded: it takes what has waited for it."""
        self.live[name] = served
        self.lives[name].ready_s = self.clock()
        if isinstance(served, RayGroup):
            served.begin(self.epoch_s())
        if self.waiting[name]:
            served.submit(self.waiting[name])
            self.waiting[name] = []

    def _note_left(self, served: RayGroup) -> bool:
        """Take the requests that a group has given up, and its GPUs if it goes. False: not yet."""
        try:
            gone = served.left()
        except GroupLost:
            gone = tuple(served.unanswered.values())
            served.unanswered.clear()
        if gone is None:
            return False
        name = served.group.id
        self.account(name, served.report())
        if name in self.leaving:
            served.stop()
            del self.leaving[name]
            self.lives[name].ended_s = self.clock()
        self.give_back(gone)
        return True

    def restart(self, name: GroupId) -> None:
        """A live group's process has died: start another, without its requests."""
        died = self.live.pop(name)
        assert isinstance(died, RayGroup)
        died.stop()
        again = self.start(died.group)
        assert isinstance(again, RayGroup)
        self.loading[name] = again

    def wait(self) -> None:
        """Until every group of the deployment has loaded. GroupLost where one does not."""
        for served in self.loading.values():
            served.wait()
        self.advance()

    def stop(self, keep: Callable[[Served], bool]) -> None:
        """End all but those that are kept."""
        for served in (*self.live.values(), *self.loading.values(), *self.leaving.values()):
            if not keep(served):
                served.stop()
