"""Advances all replicas to one time: the horizon, or the first moment that concerns others.

That is when a service has answered its last request, or a request that others elsewhere wait for.
Replicas do not depend on each other between such moments, so each runs ahead by itself; one that
ran past a moment found later is undone and run again to it.
"""

from collections.abc import Mapping

import numpy as np

from harness.engines.simulator.fast.arrays import CLOCK
from harness.engines.simulator.fast.heaps import count_followers
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.group import LiveGroup
from harness.engines.state import Ints
from harness.interface.entities import ServiceId


def run_replicas(
    groups: list[LiveGroup],
    remaining: Mapping[ServiceId, int],
    horizon_s: float,
    *,
    may_stop: bool,
) -> tuple[float, Ints]:
    """Advance to the horizon or the first such moment, whichever is earlier.

    `remaining` counts the unfinished requests of each service, those to come included; `may_stop`
    says whether replicas may stop before the horizon for requests that others wait for. Returns the
    time reached and the ids finished by then, in order of their end.
    """
    by_service: dict[ServiceId, list[tuple[LiveGroup, ReplicaState]]] = {}
    for live in groups:
        if live.replica is not None and live.replica.has_work:
            (service,) = live.group.services
            by_service.setdefault(service, []).append((live, live.replica))
    closing = _closing(by_service, remaining)
    replicas = sum(len(pairs) for pairs in by_service.values())
    saved = []
    for service in sorted(by_service, key=lambda s: closing.get(s, np.inf)):
        for live, replica in by_service[service]:
            # Only another replica's stop or another service's drain can cut this one's run short.
            if closing.keys() - {service} or (may_stop and replicas > 1):
                saved.append((live, replica, replica.save()))
            replica.run_to(min(horizon_s, live.stop_s))
            if replica.stopped:
                horizon_s = min(horizon_s, float(replica.arrays.time_s[CLOCK]))
        if service in closing:
            horizon_s = min(
                horizon_s,
                _drained_s([replica for _, replica in by_service[service]], remaining[service]),
            )
    for live, replica, before in saved:
        if replica.arrays.time_s[CLOCK] > horizon_s:
            replica.restore(before)
            replica.run_to(min(horizon_s, live.stop_s))
    return horizon_s, _collect([replica for pairs in by_service.values() for _, replica in pairs])


def _closing(
    by_service: Mapping[ServiceId, list[tuple[LiveGroup, ReplicaState]]],
    remaining: Mapping[ServiceId, int],
) -> dict[ServiceId, float]:
    """Services with all unfinished requests in replicas, and the tokens that each replica has left.

    Running the one with the least first keeps what must be undone small.
    """
    closing = {}
    for service, pairs in by_service.items():
        ids = np.concatenate([replica.open_ids() for _, replica in pairs])
        arrays = pairs[0][1].requests
        if len(ids) + count_followers(arrays, ids) == remaining[service]:
            closing[service] = float((arrays.output[ids] - arrays.generated[ids]).sum()) / len(
                pairs
            )
    return closing


def _drained_s(replicas: list[ReplicaState], remaining: int) -> float:
    """When the last of `remaining` requests ended; infinite if some have not."""
    done = np.concatenate([replica.done() for replica in replicas])
    if len(done) < remaining:
        return np.inf
    return float(replicas[0].requests.finished_s[done].max())


def _collect(replicas: list[ReplicaState]) -> Ints:
    """Ids finished since the last report, in order of their end."""
    done = [replica.done().copy() for replica in replicas]
    for replica, ids in zip(replicas, done, strict=True):
        replica.reported += len(ids)
    if not done:
        return np.zeros(0, np.int64)
    ids = np.concatenate(done)
    in_order: Ints = ids[np.lexsort((ids, replicas[0].requests.finished_s[ids]))]
    return in_order
