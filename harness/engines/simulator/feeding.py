"""Calls whose last answer comes from replicas that run ahead: who comes, and when, is known then.

A service feeds another where each of its requests is followed by calls, all of the other service,
for which nobody waits. Its replicas need not stop at every answer: the fed ones run after them, to
the same moment, with the calls that have come by then. A fed service cannot be drained before those
that feed it, so it cuts nobody short.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.engines.simulator.following import Following
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.timeline import Kind
from harness.engines.state import ELSEWHERE, Ints
from harness.interface.entities import GroupId, ServiceId
from harness.interface.graph import NOBODY


@dataclass(slots=True)
class Feeding:
    """Which services are fed now, and what they are fed.

    `feeds` has by service the one that it feeds, `stopping` those whose replicas stop at an answer
    that others wait for.
    """

    lifecycle: Lifecycle
    groups: Mapping[GroupId, LiveGroup]
    following: Following
    feeds: dict[ServiceId, ServiceId] = field(init=False)
    stopping: frozenset[ServiceId] = field(init=False)
    _last_calls: dict[ServiceId, Ints] = field(init=False)
    _calls_before: dict[ServiceId, Ints] = field(init=False)

    def __post_init__(self) -> None:
        """Nobody is fed before the first look: all stop."""
        self.stopping = self.lifecycle.awaited
        self.feeds = self._find_feeds()
        graph, workload = self.lifecycle.graph, self.lifecycle.workload
        here = {
            service.id: workload.service == index
            for index, service in enumerate(workload.services)
            if service.id in self.feeds
        }
        is_last = graph.chain == NOBODY
        self._last_calls = {s: np.flatnonzero(calls & is_last) for s, calls in here.items()}
        self._calls_before = {s: np.flatnonzero(calls & ~is_last) for s, calls in here.items()}

    def _find_feeds(self) -> dict[ServiceId, ServiceId]:
        graph, workload = self.lifecycle.graph, self.lifecycle.workload
        is_unseen = not self.lifecycle.system.dispatch.reads_load
        may_feed = self.following.arrivals.fast_forward and is_unseen
        parent, child = workload.edges.parent, workload.edges.child
        last = graph.chain[parent] == NOBODY
        feeds = {}
        for index, service in enumerate(workload.services if may_feed else ()):
            here = workload.service == index
            fed = np.unique(workload.service[child[last & here[parent]]])
            if len(fed) == 1 and fed[0] != index and graph.has_children[here].all():
                name = workload.services[fed[0]].id
                if name not in self.lifecycle.awaited:
                    feeds[service.id] = name
        return feeds

    def fed(self) -> frozenset[ServiceId]:
        """Services that are fed ahead of the clock from now until something is decided."""
        now = {s for s in self.feeds if self.lifecycle.remaining[s] and self._may_feed(s)}
        stopping = self.lifecycle.awaited - now
        for service in (stopping ^ self.stopping) & self.feeds.keys():
            last = NOBODY if service in now else ELSEWHERE
            self.lifecycle.state.arrays.next[self._last_calls[service]] = last
        self.stopping = stopping
        return frozenset(self.feeds[service] for service in now)

    def _may_feed(self, service: ServiceId) -> bool:
        """Nobody learns of a call that comes, chains are followed, and fed groups are asked."""
        follows, before = self.lifecycle.state.arrays.next, self._calls_before[service]
        return (
            self.following.arrivals.come_unheard
            and bool((follows[before] == self.lifecycle.graph.chain[before]).all())
            and self._may_be_fed(self.feeds[service])
        )

    def _may_be_fed(self, service: ServiceId) -> bool:
        """Whether calls that come later may be given to its groups, if it has any.

        That is where the policy names groups, as it has before, and those which it may name fill
        batches by themselves. One that is loading has what has come when it is asked.
        """
        homes = [live for live in self.groups.values() if service in live.group.services]
        return not homes or (
            service in self.lifecycle.dispatching.named
            and all(live.replica is not None or not live.is_ready for live in homes)
        )

    def feed(self, answered: Ints, until_s: float) -> None:
        """Calls that these have released come to their groups, at times before `until_s`.

        `answered` is in order of the ends. What ends then is answered when the clock is there; an
        answer that is on its way then comes by the timeline.
        """
        arrays, hand_over_s = self.lifecycle.state.arrays, self.following.arrivals.hand_over_s
        ended = answered[arrays.finished_s[answered] < until_s]
        for come_s, calls in self._released(ended, hand_over_s).items():
            arrays.arrival_s[calls] = come_s
            if come_s < until_s:
                # What is predicted of them was foreseen.
                self.following.arrivals.dispatch(np.array(calls, np.int64))
            else:
                self.following.arrivals.timeline.add(come_s, Kind.ARRIVAL, calls)
        for live in self.groups.values():
            if live.inbox and live.replica is not None:
                self.following.take_in(live)

    def _released(self, ended: Ints, hand_over_s: float) -> dict[float, list[int]]:
        """Who waits for these alone, by the time at which they come; times ascend."""
        graph, state = self.lifecycle.graph, self.lifecycle.state
        left: dict[int, int] = {}
        released: dict[float, list[int]] = {}
        for request in ended[graph.chain[ended] == NOBODY].tolist():
            come_s = float(state.arrays.finished_s[request]) + hand_over_s
            for call in graph.children(request):
                left[call] = left.get(call, int(state.waits[call])) - 1
                if not left[call]:
                    released.setdefault(come_s, []).append(call)
        return released
