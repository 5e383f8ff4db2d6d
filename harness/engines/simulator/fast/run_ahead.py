"""Advances all replicas to one time: the horizon, or the first moment that concerns others.

That is when a service has answered its last request, or a request that others elsewhere wait for.
Replicas do not depend on each other between such moments, so each runs ahead by itself; one that
ran past a moment found later is undone and run again to it. Those of a service whose requests go by
load run together.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness.engines.simulator.fast.arrays import CLOCK
from harness.engines.simulator.fast.heaps import count_followers
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.fast.undispatched import Undispatched
from harness.engines.simulator.group import LiveGroup
from harness.engines.state import Ints
from harness.interface.entities import ServiceId


class Runner(Protocol):
    """One replica, or several that run together.

    `stops_s` is when it stopped for the sake of others, infinite if it did not, `reached_s` the
    time that it has seen. It will not stop before `clear_s`, and will at `expected_s` if finite.
    """

    @property
    def replicas(self) -> Sequence[ReplicaState]:
        """Who runs."""

    @property
    def left(self) -> Ints:
        """Requests that are to come and in none of them."""

    @property
    def stops_s(self) -> float:
        """See above."""

    @property
    def reached_s(self) -> float:
        """See above."""

    @property
    def clear_s(self) -> float:
        """See above."""

    @property
    def expected_s(self) -> float:
        """See above."""

    def run_to(self, horizon_s: float) -> None:
        """Advance to the horizon, or to `stops_s`."""

    def learn(self, clear_s: float, *, stops_then: bool) -> None:
        """Be told what a run has shown that was undone."""

    def save(self) -> Any:
        """Enough to undo a run."""

    def restore(self, saved: Any) -> None:
        """Undo everything since `save`."""


@dataclass(frozen=True, slots=True)
class _Alone:
    """A group whose requests are all in it."""

    live: LiveGroup
    replica: ReplicaState

    @property
    def replicas(self) -> Sequence[ReplicaState]:
        return (self.replica,)

    @property
    def left(self) -> Ints:
        return np.zeros(0, np.int64)

    @property
    def stops_s(self) -> float:
        return self.reached_s if self.replica.stopped else np.inf

    @property
    def reached_s(self) -> float:
        return float(self.replica.arrays.time_s[CLOCK])

    @property
    def clear_s(self) -> float:
        return self.replica.clear_s

    @property
    def expected_s(self) -> float:
        return self.replica.clear_s if self.replica.stops_then else np.inf

    def run_to(self, horizon_s: float) -> None:
        self.replica.run_to(min(horizon_s, self.live.stop_s))

    def learn(self, clear_s: float, *, stops_then: bool) -> None:
        self.replica.clear_s, self.replica.stops_then = clear_s, stops_then

    def save(self) -> Any:
        return self.replica.save()

    def restore(self, saved: Any) -> None:
        self.replica.restore(saved)


def run_replicas(
    groups: list[LiveGroup],
    undispatched: Mapping[ServiceId, Undispatched],
    remaining: Mapping[ServiceId, int],
    horizon_s: float,
    *,
    fed: Collection[ServiceId],
    feed: Callable[[Ints, float], None],
    may_stop: Collection[ServiceId],
) -> tuple[float, Ints]:
    """Advance to the horizon or the first such moment, whichever is earlier.

    `undispatched` has requests that are in no group yet; `horizon_s` is not beyond theirs.
    `remaining` counts the unfinished requests of each service, those to come included; `may_stop`
    has the services whose replicas may stop before the horizon, for requests that others wait for.
    Those of the services that are `fed` run when the others have, and `feed` has given them what
    these have answered by the time reached. Returns that time and the ids finished by then, in
    order of their end.
    """
    together = {service: coming for service, coming in undispatched.items() if len(coming.left)}
    by_service = _runners(groups, together)
    feeders = {service: line for service, line in by_service.items() if service not in fed}
    stops = {s for s in feeders if s in may_stop or _is_given_unasked(together.get(s))}
    horizon_s = _run_side_by_side(feeders, stops, remaining, horizon_s)
    replicas = _replicas(feeders)
    if fed:
        feed(_ended(replicas), horizon_s)
        by_service = {s: line for s, line in _runners(groups, together).items() if s in fed}
        for line in by_service.values():
            for runner in line:
                runner.run_to(horizon_s)
        replicas += _replicas(by_service)
    ended = _ended(replicas)
    for replica in replicas:
        replica.reported += len(replica.done())
    return horizon_s, ended


def _run_side_by_side(
    by_service: Mapping[ServiceId, list[Runner]],
    stops: Collection[ServiceId],
    remaining: Mapping[ServiceId, int],
    horizon_s: float,
) -> float:
    """Advance all to the horizon or the first moment that concerns others; returns which it is."""
    closing = _closing(by_service, remaining)
    # Whoever may cut the others short goes first, so that few are run for nothing.
    order = sorted(by_service, key=lambda s: (s not in stops, closing.get(s, _OPEN).tokens))
    line = [(s, one) for s in order for one in sorted(by_service[s], key=lambda r: r.clear_s)]
    last, cuts_s = dict(line), _cuts(line, stops, closing)
    horizon_s = min([horizon_s, *(one.expected_s for service, one in line if service in stops)])
    saved: list[tuple[Runner, Any]] = []
    for (service, runner), cut_s in zip(line, cuts_s, strict=True):
        if cut_s < horizon_s:
            saved.append((runner, runner.save()))
        runner.run_to(horizon_s)
        horizon_s = min(horizon_s, runner.stops_s)
        if service in closing and runner is last[service]:
            horizon_s = min(
                horizon_s, _drained_s(_replicas({service: by_service[service]}), remaining[service])
            )
    _undo(saved, horizon_s)
    for _, runner in line:
        if runner.clear_s <= horizon_s:
            runner.learn(-np.inf, stops_then=False)
    return horizon_s


def _undo(saved: Sequence[tuple[Runner, Any]], horizon_s: float) -> None:
    """Those that ran past the horizon are run again to it, and know what lies behind."""
    for runner, before in saved:
        stops_s, reached_s = runner.stops_s, runner.reached_s
        if reached_s > horizon_s:
            runner.restore(before)
            runner.run_to(horizon_s)
            runner.learn(reached_s, stops_then=stops_s < np.inf)


def _cuts(
    line: Sequence[tuple[ServiceId, Runner]],
    stops: Collection[ServiceId],
    closing: Mapping[ServiceId, "_Close"],
) -> list[float]:
    """For each in line, the first moment that concerns others which one behind it may find."""
    found: list[float] = []
    cut_s, own_s, last = np.inf, np.inf, None
    for service, runner in reversed(line):
        if service != last:
            # When a service is drained concerns those of others.
            cut_s, own_s, last = min(cut_s, own_s), closing.get(service, _OPEN).ends_s, service
        found.append(cut_s)
        if service in stops:
            cut_s = min(cut_s, runner.clear_s)
    return found[::-1]


def _is_given_unasked(coming: Undispatched | None) -> bool:
    """Whether some of who comes may go to a group that is no replica, which stops the others."""
    return coming is not None and len(coming.replicas) < len(coming.groups)


def _runners(
    groups: list[LiveGroup], together: Mapping[ServiceId, Undispatched]
) -> dict[ServiceId, list[Runner]]:
    """Who has anything to run, by service."""
    by_service: dict[ServiceId, list[Runner]] = {s: [coming] for s, coming in together.items()}
    for live in groups:
        if live.replica is not None and live.replica.has_work:
            (service,) = live.group.services
            if service not in together:
                by_service.setdefault(service, []).append(_Alone(live, live.replica))
    return by_service


class _Close(NamedTuple):
    """A service with all its unfinished requests here: tokens left in each replica on average.

    It is not drained before `ends_s`.
    """

    tokens: float
    ends_s: float


_OPEN = _Close(np.inf, np.inf)


def _closing(
    by_service: Mapping[ServiceId, list[Runner]], remaining: Mapping[ServiceId, int]
) -> dict[ServiceId, _Close]:
    """Services that may be drained by what runs here. Who has least left runs first."""
    closing = {}
    for service, runners in by_service.items():
        replicas = [replica for runner in runners for replica in runner.replicas]
        if not replicas:
            continue
        open_ids = [replica.open_ids() for replica in replicas]
        arrays = replicas[0].requests
        ids = np.concatenate([*open_ids, *(runner.left for runner in runners)])
        if len(ids) + count_followers(arrays, ids) == remaining[service]:
            tokens = (arrays.output[ids] - arrays.generated[ids]).sum()
            ends_s = max(map(_ends_after_s, replicas, open_ids))
            closing[service] = _Close(float(tokens) / len(replicas), ends_s)
    return closing


def _ends_after_s(replica: ReplicaState, open_ids: Ints) -> float:
    """A time before which one of these is not answered: it needs an iteration for each token."""
    if not len(open_ids):
        return -np.inf
    left = replica.requests.output[open_ids] - replica.requests.generated[open_ids]
    return float(replica.arrays.time_s[CLOCK] + left.max() * replica.least_s)


def _drained_s(replicas: list[ReplicaState], remaining: int) -> float:
    """When the last of `remaining` requests ended; infinite if some have not."""
    done = np.concatenate([replica.done() for replica in replicas])
    if len(done) < remaining:
        return np.inf
    return float(replicas[0].requests.finished_s[done].max())


def _replicas(by_service: Mapping[ServiceId, list[Runner]]) -> list[ReplicaState]:
    """All that run for these services."""
    return [replica for line in by_service.values() for one in line for replica in one.replicas]


def _ended(replicas: list[ReplicaState]) -> Ints:
    """Ids finished since the last report, in order of their end."""
    if not replicas:
        return np.zeros(0, np.int64)
    ids = np.concatenate([replica.done() for replica in replicas])
    in_order: Ints = ids[np.lexsort((ids, replicas[0].requests.finished_s[ids]))]
    return in_order
